"""Targets: the e-nodes that a rule adds at a match, remembered for equal matches.

A rule sees of a match the operators, the types and constants of their operands and results, and which of these are the
same. In a model of many equal layers, and in the forks of a search, few matches differ in that: what check and target
gave is kept by it, with the classes numbered within the match, and put in at other classes. Matches at which a rule
looked beyond its pattern are asked every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graph_rewrite.egraph.matching.root_joining import FoundMatch
from graph_rewrite.egraph.matching.view import EMatch, GraphView
from graph_rewrite.egraph.structure.classes import ABSENT
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.egraph.structure.operators import Operator
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.building import build_replacement
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.patterns import Pattern
from graph_rewrite.rewriting.replacement import Ref, Replacement
from graph_rewrite.rewriting.rule import Refusal, Rule

MOST_KEPT = 1 << 17
"""Targets that the forks of one e-graph remember before they begin anew; one takes about a kilobyte."""

Operands = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RuleTarget:
    """A replacement to be inserted into an e-graph. Values are numbered: the classes of the match, then constants, then
    the results of the nodes; `ABSENT` where an operand is left out."""

    constants: tuple[Constant, ...]
    nodes: tuple[tuple[Operator, Operands, tuple[TensorType, ...]], ...]
    outputs: tuple[int, ...]
    """Values that the roots will be equal to."""
    leaves: tuple[int, ...]
    """Classes of the match that the nodes read."""
    computed: tuple[int, ...]
    """Numbers of the roots whose output a node computes."""


@dataclass(slots=True)
class MatchedClasses:
    """A match as classes: all that its e-nodes read or compute, ascending, and those of the roots."""

    classes: tuple[int, ...]
    roots: tuple[int, ...]
    key: tuple[Any, ...]


def matched_classes(egraph: EGraph, rule: Rule, found: FoundMatch) -> MatchedClasses:
    """Return the classes of a match, with a key of all that the rule can see of it."""
    pattern, nodes = rule.pattern, found.nodes
    shape: list[int] = []
    read: list[int] = []
    outputs: dict[Any, tuple[int, ...]] = {}
    for pattern_node in pattern.nodes:
        node = nodes[pattern_node]
        args, made = egraph.args(node), egraph.outputs_of(node)
        shape += (egraph.node_op[node], len(args))
        read += args
        read += made
        outputs[pattern_node] = made
    classes = sorted({cls for cls in read if cls >= 0})
    number = {cls: i for i, cls in enumerate(classes)}
    number[ABSENT] = ABSENT
    constants, types = egraph.constants, egraph.types
    seen = [constants[cls].digest if cls in constants else types[cls] for cls in classes]
    key = (
        rule, *shape, *[number[cls] for cls in read], *_bound(egraph, pattern, found, number), *seen
    )  # fmt: skip
    roots = tuple([outputs[root.node][root.index] for root in pattern.roots])
    return MatchedClasses(tuple(classes), roots, key)


def _bound(egraph: EGraph, pattern: Pattern, found: FoundMatch, number: dict[int, int]) -> list[Any]:
    """Return the classes that the variables bind, by number: in an operator that commutes it may be either operand."""
    bound: list[Any] = []
    for variable in pattern.variables:
        value = found.variables[variable.name]
        if isinstance(value, tuple):
            bound.append(tuple(number[egraph.find(cls)] for cls in value))
        else:
            bound.append(None if value is None else number[egraph.find(value)])
    return bound


def target_of(
    view: GraphView,
    rule: Rule,
    found: FoundMatch,
    matched: MatchedClasses,
    remember: bool = True,
    faults: RuleFaults | None = None,
) -> tuple[RuleTarget | Refusal, tuple[int, ...], bool]:
    """Return the target of a rule at a match, or its refusal; the classes that the target's numbers stand for; and
    whether the rule looked beyond its pattern.

    Args:
        remember: take over what the rule made of an equal match before.
        faults: collects exceptions that the rule raises; with None they go through.
    """
    egraph = view.egraph
    known = egraph.targets.get(matched.key) if remember else None
    if known is not None:
        return known, matched.classes, False
    match = EMatch(view, rule.pattern, found)
    before = 0 if faults is None else faults.counts[rule.name]
    replacement = build_replacement(
        rule, match, egraph.builder, lambda: [egraph.type_of(cls) for cls in matched.roots], faults
    )
    is_fault = faults is not None and faults.counts[rule.name] > before
    classes = matched.classes
    result: RuleTarget | Refusal
    if isinstance(replacement, Refusal):
        result = replacement
    else:
        outer = sorted(replacement.externals() - set(classes))
        classes = (*classes, *outer)
        result = _numbered(egraph, replacement, classes)
    # A fault is not remembered, so that every exception is counted.
    if remember and not (match.beyond or match.private or is_fault) and classes == matched.classes:
        if len(egraph.targets) >= MOST_KEPT:
            egraph.targets.clear()
        egraph.targets[matched.key] = result
    return result, classes, match.beyond


def _numbered(egraph: EGraph, replacement: Replacement, classes: Sequence[int]) -> RuleTarget:
    number = {cls: i for i, cls in enumerate(classes)}
    refs = [ref for node in replacement.nodes for ref in node.inputs if ref is not None]
    constants: dict[str, Constant] = {}
    for ref in (*refs, *replacement.outputs):
        if ref.external is None and ref.constant is not None:
            constants.setdefault(ref.constant.digest, ref.constant)
    numbers = {digest: len(classes) + i for i, digest in enumerate(constants)}
    first: list[int] = []
    made = len(classes) + len(constants)
    for node in replacement.nodes:
        first.append(made)
        made += len(node.types)

    def value(ref: Ref | None) -> int:
        if ref is None:
            return ABSENT
        if ref.external is not None:
            return number[egraph.find(ref.external)]
        return numbers[ref.constant.digest] if ref.constant is not None else first[ref.node] + ref.index

    table = egraph.operators
    nodes = tuple(
        (
            table.application(node.op, node.domain, node.attrs, node.signature, len(node.types)),
            tuple(map(value, node.inputs)), node.types,
        )
        for node in replacement.nodes
    )  # fmt: skip
    leaves = dict.fromkeys(value(ref) for ref in refs if ref.external is not None)
    computed = tuple(i for i, output in enumerate(replacement.outputs) if output.node >= 0)
    return RuleTarget(tuple(constants.values()), nodes, tuple(map(value, replacement.outputs)), tuple(leaves), computed)


def insert(egraph: EGraph, target: RuleTarget, classes: Sequence[int], roots: Sequence[int]) -> bool:
    """Insert a target and make its outputs equal to the roots; return whether anything changed."""
    before = len(egraph.log)
    values = [*classes, *map(egraph.add_constant, target.constants)]
    for operator, operands, types in target.nodes:
        values += egraph.add(operator, [values[i] if i >= 0 else ABSENT for i in operands], types)
    for output, root in zip(target.outputs, roots, strict=True):
        egraph.union(root, values[output])
    return len(egraph.log) > before


def missing(egraph: EGraph, target: RuleTarget, classes: Sequence[int]) -> int:
    """Return the number of e-nodes that a target would add."""
    count = 0
    values: list[int | None] = [egraph.find(cls) for cls in classes]
    for constant in target.constants:
        values.append(egraph.lookup_constant(constant))
        count += values[-1] is None
    for operator, operands, types in target.nodes:
        args = [ABSENT if i < 0 else values[i] for i in operands]
        present = [arg for arg in args if arg is not None]
        cls = egraph.lookup(operator, tuple(present)) if len(present) == len(args) else None
        if cls is None:
            count += 1 + (len(types) if len(types) > 1 else 0)
            values += [None] * len(types)
        elif operator.outputs == 1:
            values.append(cls)
        else:
            values += [egraph.lookup(egraph.operators.output(i), (cls,)) for i in range(operator.outputs)]
    return count
