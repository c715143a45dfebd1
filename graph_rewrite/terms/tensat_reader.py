"""TENSAT's lines as substitutions: s-expressions, and the terms that they stand for."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.terms.canonical import normalised
from graph_rewrite.terms.rule_file import ACTIVATIONS, PADDINGS, choice
from graph_rewrite.terms.small_shapes import known_ranks
from graph_rewrite.terms.substitution import INPUT, MalformedTermError, Operand, Param, Side, Substitution, Term, term

Tree = str | list["Tree"]
"""An s-expression: a word, or a list of s-expressions."""
_TOKEN = re.compile(r"\s*([()]|[^\s()]+)")
PLAIN = {
    "ewadd": "ewadd", "ewmul": "ewmul", "smul": "smul", "relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh",
    "Imatmul": "imatmul", "Iewmul": "iewmul",
}  # fmt: skip
POOLS = {"poolmax": "maxpool", "poolavg": "avgpool"}
"""TENSAT's names of poolings, with our own."""


def parse_tree(text: str) -> Tree:
    """An s-expression as nested lists."""
    stack: list[list[Tree]] = [[]]
    for token in _TOKEN.findall(text):
        if token == "(":
            stack.append([])
        elif token == ")":
            done = stack.pop()
            if not stack:
                raise MalformedTermError("a closing parenthesis too many")
            stack[-1].append(done)
        else:
            stack[-1].append(token)
    if len(stack) > 1:
        raise MalformedTermError("a closing parenthesis is missing")
    if len(stack[0]) != 1:
        raise MalformedTermError("each side of => must be one expression")
    return stack[0][0]


def is_complete(rule: tuple[Tree, Tree], following: tuple[Tree, Tree] | None) -> bool:
    """Return whether a line is a rule of its own and not the first of a pair."""
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
                    return self._add(PLAIN[tree], [], {})
                raise MalformedTermError(f"{tree!r} is no expression: variables start with ?")
            return Operand(INPUT, self.inputs.setdefault(tree, len(self.inputs)))
        if not tree or not isinstance(tree[0], str):
            raise MalformedTermError("an operator is missing after a parenthesis")
        name, arguments = tree[0], tree[1:]
        if name in ("split_0", "split_1"):
            return self._part(name, arguments)
        op, inputs, params = _parsed(name, arguments)
        return self._add(op, [self.operand(part) for part in inputs], params)

    def _part(self, name: str, arguments: Sequence[Tree]) -> Operand:
        inner = arguments[0] if len(arguments) == 1 else None
        if not isinstance(inner, list) or inner[:1] != ["split"] or len(inner) != 3:
            raise MalformedTermError(f"{name} takes one (split axis x)")
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
    if name in PLAIN:
        _expect(name, count == 0)
        return PLAIN[name], inputs, {}
    if name == "matmul":
        _expect(name, count <= 1)
        return name, inputs, {"activation": choice(ACTIVATIONS, numbers[0] if numbers else 0, "activation")}
    if name == "conv2d":
        _expect(name, count == 4)
        return "conv", inputs, {
            "stride": (numbers[0], numbers[1]), "padding": choice(PADDINGS, numbers[2], "padding"),
            "activation": choice(ACTIVATIONS, numbers[3], "activation"),
        }  # fmt: skip
    if name in POOLS:
        _expect(name, count == 5 or (count == 6 and numbers[5] == 0))
        return POOLS[name], inputs, {
            "kernel": (numbers[0], numbers[1]), "stride": (numbers[2], numbers[3]),
            "padding": choice(PADDINGS, numbers[4], "padding"),
        }  # fmt: skip
    if name == "concat":
        _expect(name, count in (1, 2))
        return name, inputs, {"axis": numbers[0], "rank": numbers[1] if count == 2 else 0}
    if name in ("enlarge", "Iconv", "Cpool"):
        _expect(name, count == 2)
        return name.lower(), inputs, {"kernel": (numbers[0], numbers[1])}
    if name in ("transpose", "reshape"):
        return _moved(name, arguments)
    raise MalformedTermError(f"unknown operator {name!r}")


def _moved(name: str, arguments: Sequence[Tree]) -> tuple[str, Sequence[Tree], dict[str, Param]]:
    """(transpose x 1_0 [1]) and (reshape x 2_3): permutation and shape are a word."""
    word = arguments[1] if len(arguments) > 1 else None
    if not isinstance(word, str) or not re.fullmatch(r"-?\d+(_-?\d+)*", word):
        raise MalformedTermError(f"{name} takes an expression and numbers joined by _")
    values = tuple(int(part) for part in word.split("_"))
    if name == "reshape":
        return name, arguments[:1], {"shape": values}
    if arguments[2:] not in ([], ["1"]):
        raise MalformedTermError("a transpose that does not move its elements")
    return name, arguments[:1], {"perm": values}


def _is_int(part: Tree) -> bool:
    return isinstance(part, str) and re.fullmatch(r"-?\d+", part) is not None


def _int(part: Tree, what: str) -> int:
    if not _is_int(part):
        raise MalformedTermError(f"{what} must be a number, not {part!r}")
    return int(str(part))


def _expect(name: str, fits: bool) -> None:
    if not fits:
        raise MalformedTermError(f"{name} has too few or too many numbers, or a fused activation")


def read_group(group: Sequence[tuple[Tree, Tree]]) -> Substitution:
    inputs: dict[str, int] = {}
    sides = []
    for place in (0, 1):
        reader = _Reader(inputs)
        outputs = tuple(reader.operand(rule[place]) for rule in group)
        sides.append(Side(tuple(reader.terms), outputs))
        if place == 0:
            known = len(inputs)
    if len(inputs) > known:
        raise MalformedTermError(f"the target has variables that the source lacks: {', '.join(list(inputs)[known:])}")
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
