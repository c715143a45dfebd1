"""The coverage of a rule file: the substitutions that other rules have, or imply by at most two steps.

Both sides of a substitution become graphs over concrete shapes; the source is rewritten by all candidates, breadth
first, and compared with the target by a hash that does not see the order of operands of Add and Mul, whether equal
operators are shared, and how attributes are written. A path counts where the same rules take it over a second choice of
shapes as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rewriting.patterns import COMMUTATIVE
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.helpers.geometry import geometry
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.terms.canonical import differs_by_fusion, is_connected
from graph_rewrite.terms.conditions import Derivation, condition_holds, derive
from graph_rewrite.terms.onnx_form import build_graph, scalar_inputs, weight_inputs
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.small_shapes import Shapes, small_shapes
from graph_rewrite.terms.substitution import Substitution
from graph_rewrite.terms.taso_file import read_taso
from graph_rewrite.terms.tensat_file import read_tensat
from graph_rewrite.terms.term_types import TermType

Weights = Literal["any", "constant"]
_LARGEST = 3
_SHAPES = 2
"""Choices of shapes over which a path must lead to the target."""


@dataclass(frozen=True, slots=True)
class Derived:
    """Names of the rules that lead from source to target, one or two; for which weights they do."""

    rules: tuple[str, ...]
    weights: Weights = "any"

    def __str__(self) -> str:
        return ", ".join(self.rules) + ("" if self.weights == "any" else " (constant weights)")


@dataclass(frozen=True, slots=True)
class Entry:
    """One substitution of a file."""

    number: int
    substitution: Substitution
    """With the conditions derived for it."""
    derivation: Derivation
    path: Derived | None = None
    """The path by which other rules lead from its source to its target; None where they don't in two steps, or it does
    not hold."""


@dataclass(slots=True)
class Report:
    """All substitutions of a file."""

    rules: int
    entries: list[Entry] = field(default_factory=list)

    @property
    def verified(self) -> list[Entry]:
        """Those that hold under a condition."""
        return [entry for entry in self.entries if entry.derivation.holds]

    @property
    def refuted(self) -> list[Entry]:
        """Those that hold under none."""
        return [entry for entry in self.entries if not entry.derivation.holds]

    @property
    def uncovered(self) -> list[Entry]:
        """Those that hold and that other rules don't lead to in two steps."""
        return [entry for entry in self.verified if entry.path is None]

    def counts(self) -> dict[str, int]:
        """`in_set`: one step of another rule; `implied`: two steps. No rule is counted in both."""
        steps = [len(entry.path.rules) for entry in self.verified if entry.path is not None]
        return {
            "rules": self.rules, "imported": len(self.entries), "verified": len(self.verified),
            "refuted": len(self.refuted), "in_set": steps.count(1), "implied": steps.count(2),
        }  # fmt: skip


def read_rule_file(path: str | os.PathLike[str]) -> list[Substitution]:
    """Substitutions of TASO's protobuf or TENSAT's text: text is what is UTF-8 and has a rule's arrow.

    Raises:
        RuleFileError: no such file, or neither of both.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise RuleFileError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        is_text = "=>" in data.decode("utf-8")
    except UnicodeDecodeError:
        is_text = False
    return read_tensat(path) if is_text else read_taso(path)


def conditioned(substitution: Substitution, derivation: Derivation) -> Substitution:
    """The substitution under the conditions derived for it."""
    return Substitution(substitution.source, substitution.target, derivation.conditions)


def cover(
    substitutions: Sequence[Substitution],
    rules: Iterable[Rule],
    *,
    max_dim: int = 4,
    progress: Callable[[int], None] = lambda done: None,
) -> Report:
    """Derive the condition of each substitution, and look for paths of one or two of `rules`.

    Args:
        substitutions: of a file, in its order.
        rules: those that may cover them.
        max_dim: of the shapes over which conditions are derived.
        progress: called with the number of substitutions done.
    """
    search = _Search(tuple(rules))
    report = Report(len(substitutions))
    for number, substitution in enumerate(substitutions):
        derivation = derive(substitution, max_dim)
        whole = conditioned(substitution, derivation)
        path = search.path(whole) if derivation.holds else None
        report.entries.append(Entry(number, whole, derivation, path))
        progress(number + 1)
    return report


class _Search:
    """Breadth-first search for paths, with the rewriters that it needs."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._all = Rewriter(rules, "site", deployment=False)

    def path(self, substitution: Substitution) -> Derived | None:
        """The shortest path, for any weights rather than for constant ones."""
        choices = chosen_shapes(substitution)
        weights = weight_inputs(substitution)
        kinds: tuple[Weights, ...] = ("any", "constant") if weights else ("any",)
        for steps in (1, 2):
            for kind in kinds:
                constants = scalar_inputs(substitution) | (weights if kind == "constant" else frozenset())
                shared = [both_sides(substitution, shapes, constants) for shapes in choices]
                for pairs in (shared, [(unshared(source), target) for source, target in shared]):
                    for names in self._paths(*pairs[0], steps, self._all):
                        only = Rewriter([self._rules[name] for name in dict.fromkeys(names)], "site", deployment=False)
                        if all(any(True for _ in self._paths(*pair, steps, only)) for pair in pairs[1:]):
                            return Derived(names, kind)
        return None

    def _paths(self, source: Graph, target: Graph, steps: int, rewriter: Rewriter) -> Iterator[tuple[str, ...]]:
        """Names of rules along paths of so many steps, each sequence of names once."""
        goal, found = form(target), set[tuple[str, ...]]()
        seen = {form(source)}
        for first in rewriter.candidates(source):
            after = first.apply()
            if steps == 1:
                if form(after) == goal and (first.rule,) not in found:
                    found.add((first.rule,))
                    yield (first.rule,)
                continue
            if form(after) in seen:
                continue
            seen.add(form(after))
            for second in rewriter.candidates(after):
                names = (first.rule, second.rule)
                if names not in found and form(second.apply()) == goal:
                    found.add(names)
                    yield names


def chosen_shapes(substitution: Substitution) -> list[Shapes]:
    """Shapes over which paths are looked for: those with the most different dimensions, by which no two axes are taken
    for each other, then the largest of others.

    Raises:
        ValueError: no small shapes satisfy the conditions.
    """
    fitting = []
    for shapes in small_shapes(substitution, _LARGEST):
        types = {number: TermType(shape) for number, shape in shapes.items()}
        if condition_holds(substitution, types, substitution.conditions):
            fitting.append(shapes)
    if not fitting:
        raise ValueError(f"no small shapes satisfy the conditions of {substitution}")

    def spread(shapes: Shapes) -> tuple[int, int]:
        dims = [dim for shape in shapes.values() for dim in shape]
        return len(set(dims) - {1}), sum(dims)

    ranked = sorted(fitting, key=spread, reverse=True)
    return [ranked[0], *ranked[len(ranked) // 3 :][: _SHAPES - 1]] if len(ranked) > 1 else ranked


def both_sides(substitution: Substitution, shapes: Shapes, constants: frozenset[int]) -> tuple[Graph, Graph]:
    """Source and target as graphs, what is constant in them folded.

    Activations of convolutions are operators of their own, but `FusedConv` where the sides would be the same then.
    """
    types = {number: TermType(shape) for number, shape in shapes.items()}
    fused, joined = differs_by_fusion(substitution), not is_connected(substitution.source)
    source, target = (
        normalise(build_graph(side, types, constants=constants, fused=fused, joined=joined))[0]
        for side in (substitution.source, substitution.target)
    )
    return source, target


def unshared(graph: Graph) -> Graph:
    """The graph with a copy of an operator for each use of it, but for operators of several outputs.

    A rule that asks for a result's only use applies to each occurrence of an expression on its own then.
    """
    editor = GraphEditor(graph)
    for shared in reversed(graph.order()):
        value = shared.outputs[0]
        uses = editor.consumers.get(value, ())
        if len(shared.outputs) > 1 or value in graph.outputs or len(uses) < 2:
            continue
        for user in map(editor.nodes.__getitem__, dict.fromkeys(uses)):
            inputs = []
            for operand in user.inputs:
                if operand == value:
                    operand = editor.new_value(graph.types[value])
                    editor.insert(
                        shared.op, shared.domain, shared.attrs, shared.inputs, (operand,), graph.ranks[shared.id]
                    )
                inputs.append(operand)
            rank = editor.ranks[user.id]
            editor.remove(user)
            editor.insert(user.op, user.domain, user.attrs, inputs, user.outputs, rank)
        editor.remove_dead((value,))
    return editor.finish()[0]


_FORM = MemoKey[str]("form")


def form(graph: Graph) -> str:
    """A hash of what the outputs compute: operands of commutative operators in any order, equal operators shared or
    not, attributes with their defaults."""
    cached = graph.memo.get(_FORM)
    if cached is not None:
        return cached
    values: dict[int, str] = {value: f"input {graph.names[value]}" for value in graph.inputs}
    values.update((value, constant.digest) for value, constant in graph.constants.items())
    for node in graph.order():
        inputs = ["" if value is None else values[value] for value in node.inputs]
        if node.op in COMMUTATIVE and not node.domain:
            inputs.sort()
        shapes = [str(graph.types[value]) for value in node.outputs]
        if node.op in ("Split", "Reshape"):
            inputs = inputs[:1]  # sizes and shape are those of the outputs
        while inputs and not inputs[-1]:
            inputs.pop()
        own = digest(node.op, node.domain, _attributes(graph, node), inputs, shapes)
        values.update((value, f"{own}:{i}") for i, value in enumerate(node.outputs))
    return graph.memo.put(_FORM, digest(*(values[value] for value in graph.outputs)))


def _attributes(graph: Graph, node: Node) -> list[tuple[str, Any]]:
    """Attributes in their canonical form."""
    first = None if not node.inputs or node.inputs[0] is None else graph.types[node.inputs[0]]
    attrs = dict(node.attrs)
    if node.op in ("Conv", "FusedConv", "MaxPool", "AveragePool") and first is not None:
        filters = None if len(node.inputs) < 2 or node.inputs[1] is None else graph.types[node.inputs[1]]
        kernel = tuple(attrs.get("kernel_shape", ())) if filters is None else filters.shape[2:]
        own = geometry(node, Ref(first), kernel)
        attrs = {**attrs, **own.attrs(), "auto_pad": "NOTSET"}
        attrs["count_include_pad"] = int(bool(attrs.get("count_include_pad", 0)) or own.is_unpadded)
    if node.op in ("Concat", "Split") and first is not None:
        attrs = {"axis": attrs.get("axis", 0) % first.rank}
    if node.op == "Reshape":
        attrs = {}
    return sorted((name, value) for name, value in attrs.items() if value is not None)
