"""TENSAT's rule files (MLSys'21): a line `(op args)=>(op args)` per rule, in egg's syntax.

A rule of two outputs ("multi-pattern") is two lines, one per output, which share variables. TENSAT keeps such rules in
a file of their own; here, a file whose name contains `multi` holds pairs only, and in others two lines are a pair where
the first one's target has variables that its source lacks, or the two targets are the two parts of one split.

Operators and the order of their arguments are those of `model.rs`; where its versions disagree, all forms are read:
`(matmul [activation] a b)`, `(concat axis [rank] a b)`, `(enlarge kh kw w)`, pooling with its input first or last, and
with or without an activation. Where `concat` lacks the rank, it follows from the operators around it, else it is 2.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.terms.canonical import normalised
from graph_rewrite.terms.small_shapes import known_ranks
from graph_rewrite.terms.taso_file import ACTIVATIONS, PADDINGS, RuleFileError
from graph_rewrite.terms.terms import INPUT, Operand, Param, Side, Substitution, Term, term

Tree = str | list["Tree"]
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
_PLAIN = {
    "ewadd": "ewadd", "ewmul": "ewmul", "smul": "smul", "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh",
    "Imatmul": "imatmul", "Iewmul": "iewmul",
}  # fmt: skip
_POOLS = {"poolmax": "maxpool", "poolavg": "avgpool"}
_NAMES = {own: name for name, own in (*_PLAIN.items(), *_POOLS.items())}


def read_tensat(path: str | os.PathLike[str]) -> list[Substitution]:
    """The substitutions of a file, in its order.

    Raises:
        RuleFileError: no such file, or a line that is no rule; the message names it.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleFileError(f"{path}: cannot be read as text: {error}") from error
    return parse_tensat(text, str(path), pairs="multi" in Path(path).name)


def parse_tensat(text: str, name: str = "rules", pairs: bool = False) -> list[Substitution]:
    """The substitutions in the text of a file; `name` stands for it in errors, `pairs` says that it holds pairs only.

    Raises:
        RuleFileError: as `read_tensat`.
    """
    lines = [(number, _rule(line, f"{name}: line {number}")) for number, line in _lines(text)]
    if not lines:
        raise RuleFileError(f"{name}: no rules")
    found, at = [], 0
    while at < len(lines):
        number, first = lines[at]
        group = [first]
        if pairs or not _is_complete(first, lines[at + 1][1] if at + 1 < len(lines) else None):
            if at + 1 == len(lines):
                raise RuleFileError(f"{name}: line {number}: the second line of this pair is missing")
            group.append(lines[at + 1][1])
        try:
            found.append(_substitution(group))
        except ValueError as error:
            raise RuleFileError(f"{name}: line {number}: {error}") from error
        at += len(group)
    return found


def tensat_texts(substitutions: Iterable[Substitution]) -> tuple[str, str]:
    """Single rules and multi-pattern rules as the texts of TENSAT's two files.

    Raises:
        RuleFileError: more than two outputs, or an operator that the format lacks.
    """
    single: list[str] = []
    multi: list[str] = []
    for number, substitution in enumerate(substitutions):
        try:
            before, after = _write_side(substitution.source), _write_side(substitution.target)
        except ValueError as error:
            raise RuleFileError(f"rule {number}, {substitution}: {error}") from error
        lines = [f"{a}=>{b}" for a, b in zip(before, after, strict=True)]
        if len(lines) > 2:
            raise RuleFileError(f"rule {number}, {substitution}: TENSAT has rules of one or two outputs")
        (single if len(lines) == 1 else multi).extend(lines)
    return "".join(f"{line}\n" for line in single), "".join(f"{line}\n" for line in multi)


def write_tensat(substitutions: Iterable[Substitution], path: str | os.PathLike[str]) -> list[Path]:
    """Write single rules to `path` and multi-pattern rules beside it, as `<name>_multi<suffix>`, each atomically.

    Returns:
        The files written: one of them is left out where it would be empty.

    Raises:
        RuleFileError: as `tensat_texts`.
    """
    plain = Path(path)
    texts = tensat_texts(substitutions)
    written = []
    for file, text in zip((plain, plain.with_name(f"{plain.stem}_multi{plain.suffix}")), texts, strict=True):
        if text:
            replace_file(file, text)
            written.append(file)
    return written


def _lines(text: str) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            yield number, line.strip()


def _rule(line: str, where: str) -> tuple[Tree, Tree]:
    before, separator, after = line.partition("=>")
    if not separator:
        raise RuleFileError(f"{where}: no rule: write (op args)=>(op args)")
    try:
        return _tree(before), _tree(after)
    except ValueError as error:
        raise RuleFileError(f"{where}: {error}") from error


def _tree(text: str) -> Tree:
    """An s-expression as nested lists."""
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if not stack:
                raise ValueError("a closing parenthesis too many")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise ValueError("a closing parenthesis is missing")
    if len(stack[0]) != 1:
        raise ValueError("each side of => must be one expression")
    return stack[0][0]


def _is_complete(rule: tuple[Tree, Tree], following: tuple[Tree, Tree] | None) -> bool:
    """Whether a line is a rule of its own and not the first of a pair."""
    source, target = rule
    if _variables(target) - _variables(source):
        return False
    other = None if following is None else following[1]
    parts = isinstance(target, list) and isinstance(other, list) and target[0] == "split_0" and other[0] == "split_1"
    return not (parts and isinstance(target, list) and isinstance(other, list) and target[1:] == other[1:])


def _variables(tree: Tree) -> set[str]:
    if isinstance(tree, str):
        return {tree} if tree.startswith("?") else set()
    return set().union(*(_variables(part) for part in tree))


@dataclass(slots=True)
class _Reader:
    """Terms of one side in the making; equal expressions are one term. Inputs are numbered over both sides."""

    inputs: dict[str, int]
    terms: list[Term] = field(default_factory=list)
    known: dict[Term, int] = field(default_factory=dict)

    def operand(self, tree: Tree) -> Operand:
        if isinstance(tree, str):
            if not tree.startswith("?"):
                if tree in ("Imatmul", "Iewmul"):
                    return self._add(_PLAIN[tree], [], {})
                raise ValueError(f"{tree!r} is no expression: variables start with ?")
            return Operand(INPUT, self.inputs.setdefault(tree, len(self.inputs)))
        if not tree or not isinstance(tree[0], str):
            raise ValueError("an operator is missing after a parenthesis")
        name, arguments = tree[0], tree[1:]
        if name in ("split_0", "split_1"):
            return self._part(name, arguments)
        op, inputs, params = _parsed(name, arguments)
        return self._add(op, [self.operand(part) for part in inputs], params)

    def _part(self, name: str, arguments: Sequence[Tree]) -> Operand:
        inner = arguments[0] if len(arguments) == 1 else None
        if not isinstance(inner, list) or inner[:1] != ["split"] or len(inner) != 3:
            raise ValueError(f"{name} takes one (split axis x)")
        made = self._add("split", [self.operand(inner[2])], {"axis": _int(inner[1], "the axis of split")})
        return Operand(made.node, int(name[-1]))

    def _add(self, op: str, inputs: Sequence[Operand], params: Mapping[str, Param]) -> Operand:
        made = term(op, *inputs, **params)
        if made not in self.known:
            self.known[made] = len(self.terms)
            self.terms.append(made)
        return Operand(self.known[made])


def _parsed(name: str, arguments: Sequence[Tree]) -> tuple[str, Sequence[Tree], dict[str, Param]]:
    """An operator of this algebra, its operands and its parameters. A rank of 0 is yet to be found."""
    numbers = [_int(part, name) for part in arguments if _is_int(part)]
    inputs = [part for part in arguments if not _is_int(part)]
    count = len(numbers)
    if name in _PLAIN:
        _expect(name, count == 0)
        return _PLAIN[name], inputs, {}
    if name == "matmul":
        _expect(name, count <= 1)
        return name, inputs, {"activation": _choice(ACTIVATIONS, numbers[0] if numbers else 0, "activation")}
    if name == "conv2d":
        _expect(name, count == 4)
        return "conv", inputs, {
            "stride": (numbers[0], numbers[1]), "padding": _choice(PADDINGS, numbers[2], "padding"),
            "activation": _choice(ACTIVATIONS, numbers[3], "activation"),
        }  # fmt: skip
    if name in _POOLS:
        _expect(name, count == 5 or (count == 6 and numbers[5] == 0))
        return _POOLS[name], inputs, {
            "kernel": (numbers[0], numbers[1]), "stride": (numbers[2], numbers[3]),
            "padding": _choice(PADDINGS, numbers[4], "padding"),
        }  # fmt: skip
    if name == "concat":
        _expect(name, count in (1, 2))
        return name, inputs, {"axis": numbers[0], "rank": numbers[1] if count == 2 else 0}
    if name in ("enlarge", "Iconv", "Cpool"):
        _expect(name, count == 2)
        return name.lower(), inputs, {"kernel": (numbers[0], numbers[1])}
    if name in ("transpose", "reshape"):
        return _moved(name, arguments)
    raise ValueError(f"unknown operator {name!r}")


def _moved(name: str, arguments: Sequence[Tree]) -> tuple[str, Sequence[Tree], dict[str, Param]]:
    """(transpose x 1_0 [1]) and (reshape x 2_3): permutation and shape are a word."""
    word = arguments[1] if len(arguments) > 1 else None
    if not isinstance(word, str) or not re.fullmatch(r"-?\d+(_-?\d+)*", word):
        raise ValueError(f"{name} takes an expression and numbers joined by _")
    values = tuple(int(part) for part in word.split("_"))
    if name == "reshape":
        return name, arguments[:1], {"shape": values}
    if arguments[2:] not in ([], ["1"]):
        raise ValueError("a transpose that does not move its elements")
    return name, arguments[:1], {"perm": values}


def _is_int(part: Tree) -> bool:
    return isinstance(part, str) and re.fullmatch(r"-?\d+", part) is not None


def _int(part: Tree, what: str) -> int:
    if not _is_int(part):
        raise ValueError(f"{what} must be a number, not {part!r}")
    return int(str(part))


def _expect(name: str, fits: bool) -> None:
    if not fits:
        raise ValueError(f"{name} has too few or too many numbers, or a fused activation")


def _choice(names: Sequence[str], code: int, what: str) -> str:
    if not 0 <= code < len(names):
        raise ValueError(f"unknown {what} {code}")
    return names[code]


def _substitution(group: Sequence[tuple[Tree, Tree]]) -> Substitution:
    inputs: dict[str, int] = {}
    sides = []
    for place in (0, 1):
        reader = _Reader(inputs)
        outputs = tuple(reader.operand(rule[place]) for rule in group)
        sides.append(Side(tuple(reader.terms), outputs))
        if place == 0:
            known = len(inputs)
    if len(inputs) > known:
        raise ValueError(f"the target has variables that the source lacks: {', '.join(list(inputs)[known:])}")
    return normalised(_ranked(Substitution(sides[0], sides[1])))


def _ranked(substitution: Substitution) -> Substitution:
    """Ranks put into concats that lack them."""
    if all(node.op != "concat" or node.param("rank") for s in _sides(substitution) for node in s.terms):
        return substitution
    ranks = known_ranks(substitution)

    def side(old: Side) -> Side:
        terms: list[Term] = []
        for node in old.terms:
            if node.op == "concat" and not node.param("rank"):
                rank = max(2, node.param("axis") + 1, *(_rank(old, operand, ranks) for operand in node.inputs))
                node = term("concat", *node.inputs, axis=node.param("axis"), rank=4 if rank > 2 else 2)
            terms.append(node)
        return Side(tuple(terms), old.outputs)

    return Substitution(side(substitution.source), side(substitution.target), substitution.conditions)


def _sides(substitution: Substitution) -> tuple[Side, Side]:
    return substitution.source, substitution.target


def _rank(side: Side, operand: Operand, ranks: Mapping[int, int]) -> int:
    if operand.node == INPUT:
        return ranks.get(operand.index, 0)
    node = side.terms[operand.node]
    return 4 if node.op == "conv" else max((_rank(side, source, ranks) for source in node.inputs), default=0)


def _write_side(side: Side) -> list[str]:
    return [_text(side, operand) for operand in side.outputs]


def _text(side: Side, operand: Operand) -> str:
    if operand.node == INPUT:
        return f"?input_{operand.index + 1}"
    node = side.terms[operand.node]
    inputs = " ".join(_text(side, source) for source in node.inputs)
    if node.op == "split":
        return f"(split_{operand.index} (split {node.param('axis')} {inputs}))"
    if node.op in ("imatmul", "iewmul"):
        return _NAMES[node.op]
    values = dict(node.params)
    if node.op in ("transpose", "reshape"):
        word = "_".join(map(str, node.param("perm" if node.op == "transpose" else "shape")))
        return f"({node.op} {inputs} {word}{' 1' if node.op == 'transpose' else ''})"
    numbers: list[int] = []
    for name in ("kernel", "stride"):
        value = values.get(name)
        numbers.extend(value if isinstance(value, tuple) else ())
    if "padding" in values:
        numbers.append(PADDINGS.index(str(values["padding"])))
    if "activation" in values:
        numbers.append(ACTIVATIONS.index(str(values["activation"])))
    numbers.extend(int(node.param(name)) for name in ("axis", "rank") if name in values)
    names = {"conv": "conv2d", "iconv": "Iconv", "cpool": "Cpool", **_NAMES}
    if node.op in ("maxpool", "avgpool"):
        return f"({names[node.op]} {inputs} {' '.join(map(str, numbers))} 0)"
    parts = [names.get(node.op, node.op), *map(str, numbers), inputs]
    return f"({' '.join(part for part in parts if part)})"
