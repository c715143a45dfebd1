"""Seeds: rules that are refused for a border are mutants with a box (as in `Rewriter.explain`).

A rule that merges two convolutions, for example, is refused where the outer one pads with zeros and the inner one gives
its bias there. Inside the border its target is right. Such targets are read as programs; a proof tells the boxes in
which they are wrong, and a repair mends these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.reading import Reading, read
from graph_rewrite.mutate.subprograms import composed, subprogram
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.prefilter import index_of
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule

_BORDER = ("pad", "border", "window")
"""Words in the reason of a refusal that is about a border."""

Seeds = Mapping[tuple[TensorProgram, tuple[Shape, ...]], Sequence[TensorProgram]]
"""Programs to try for a subprogram, by what it computes and by the shapes of its inputs."""


def seeds_of(graph: Graph, rules: Sequence[Rule]) -> Seeds:
    """Return the targets of rules that are refused for a border, by the subprogram that they are meant for."""
    found: dict[tuple[TensorProgram, tuple[Shape, ...]], dict[TensorProgram, None]] = {}
    for sub, made in _targets(graph, rules):
        found.setdefault((sub.program, sub.shapes), {})[made] = None
    return {key: tuple(programs) for key, programs in found.items()}


def _targets(graph: Graph, rules: Sequence[Rule]) -> Iterator[tuple[Subprogram, TensorProgram]]:
    index = index_of(tuple(rule.pattern for rule in rules))
    for node in graph.order():
        for number in index.plausible(graph, node, set()):
            for match in Matcher(graph, rules[number].pattern, set(), rules[number].symmetric).at(node):
                sub = _linear(graph, match)
                if sub is not None:
                    made = _target(graph, rules[number], match, sub)
                    if made is not None and made != sub.program:
                        yield sub, made


def _linear(graph: Graph, match: Match) -> Subprogram | None:
    """Return the matched operators as a subprogram, where they are linear and give what the rule replaces."""
    readings = {node.id: read(graph, node) for node in match.nodes}
    linear = {number: found for number, found in readings.items() if isinstance(found, Reading)}
    if len(linear) < len(readings):
        return None
    sub = subprogram(graph, linear, linear)
    return sub if sub.outputs == match.root_values else None


def _target(graph: Graph, rule: Rule, match: Match, sub: Subprogram) -> TensorProgram | None:
    """Return the target of a rule that is refused for a border, as a program over the inputs of the subprogram."""
    numbers = {value: number for number, value in enumerate(sub.inputs)}

    def fed(ref: object) -> object:
        if isinstance(ref, Ref) and ref.external in numbers:
            return Ref(ref.type, external=ref.external)  # weights stay variables
        return ref

    try:
        refusal = rule.check(match, *match.refs)
        if not isinstance(refusal, Refusal) or not any(word in refusal.reason for word in _BORDER):
            return None
        op = ReplacementBuilder(match.opset)
        built = rule.target(op, match, *map(fed, match.refs))
        outputs = built if isinstance(built, tuple) else (built,)
        if isinstance(built, Refusal) or [ref.type for ref in outputs] != [graph.types[v] for v in sub.outputs]:
            return None
        made = _read_back(op.finish(outputs), graph, sub)
        if made is not None:
            types_of(made, sub.shapes)
        return made
    except (DoesNotFit, LayoutError):
        return None
    except Exception:
        # The contract of a target ends where the condition refuses: it may raise anything there.
        return None


def _read_back(made: Replacement, graph: Graph, sub: Subprogram) -> TensorProgram | None:
    """Return a replacement as a program; None where an operator is no step, or reads a constant that is no input."""
    types: dict[int, TensorType | None] = {number: graph.types[value] for number, value in enumerate(sub.inputs)}
    constants: dict[int, Constant] = {n: graph.constants[sub.inputs[n]] for n in sub.constants}
    inputs = {value: number for number, value in enumerate(sub.inputs)}
    results: list[tuple[int, ...]] = []

    def value(ref: Ref | None) -> int | None:
        if ref is None or ref.node >= 0:
            return None if ref is None else results[ref.node][ref.index]
        if ref.external is not None:
            return inputs[ref.external]
        number = len(types)
        types[number] = ref.type
        if ref.constant is not None:
            constants[number] = ref.constant
        return number

    parts: list[tuple[Reading, tuple[int, ...]]] = []
    for number, each in enumerate(made.nodes):
        operands = [value(ref) for ref in each.inputs]
        result = tuple(range(len(types), len(types) + len(each.types)))
        types |= zip(result, each.types, strict=True)
        found = read(_Known(types, constants), Node(number, each.op, operands, result, each.attrs, each.domain))
        if isinstance(found, Refusal):
            return None
        results.append(result)
        parts.append((found, result))
    try:
        return composed(range(len(sub.inputs)), parts, [results[ref.node][ref.index] for ref in made.outputs])
    except KeyError:
        return None


class _Known:
    """Types and constants of the values of a replacement."""

    def __init__(self, types: dict[int, TensorType | None], constants: dict[int, Constant]) -> None:
        self.types: Mapping[int, TensorType | None] = types
        self.constants: Mapping[int, Constant] = constants
