"""Twins: the site in another lane that does there what a site does in the graph that was searched."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.body_sites import BodySite
from graph_rewrite.rewriting.building import build_site
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementNode
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.symbolic.lanes import Lane
from graph_rewrite.symbolic.plans import Planner, reshape_target


class NoTwin(Exception):
    """A lane has no twin of a site; the message says which and why."""


def twins_of(site: Site, lanes: Sequence[Lane], planner: Planner) -> list[Site]:
    """Return the twins of a site, one per lane.

    Raises:
        NoTwin: a lane has none, or what they insert cannot be written for all shapes.
    """
    twins = [_twin(site, lane) for lane in lanes]
    replacements = [twin.replacement for twin in twins]
    for number, node in enumerate(site.replacement.nodes):
        for position, ref in enumerate(node.inputs):
            if ref is None or ref.constant is None:
                continue
            operands = [replacement.nodes[number] for replacement in replacements]
            if not _is_general(position, operands, planner):
                raise NoTwin(f"the {ref.type} that its {node.op} reads is not known for all shapes")
    for position, output in enumerate(site.replacement.outputs):
        constants = [replacement.outputs[position].constant for replacement in replacements]
        if output.constant is not None and planner.plan([c for c in constants if c is not None]) is None:
            raise NoTwin(f"its constant result {output.type} is not known for all shapes")
    return twins


def _is_general(position: int, nodes: Sequence[ReplacementNode], planner: Planner) -> bool:
    """Tell whether a constant operand of the same node in all lanes has a plan."""
    constants = [constant for node in nodes if (constant := _constant(node.inputs[position])) is not None]
    if planner.plan(constants) is not None:
        return True
    if nodes[0].op != "Reshape" or position != 1:
        return False
    shapes = [ref.shape for node in nodes if (ref := node.inputs[0]) is not None]
    return reshape_target([[int(i) for i in c.numpy()] for c in constants], shapes) is not None


def _constant(ref: Ref | None) -> Constant | None:
    return None if ref is None else ref.constant


def _twin(site: Site, lane: Lane) -> Site:
    nodes = [lane.nodes.get(node.id, -1) for node in site.match.nodes]
    if any(node not in lane.graph.nodes for node in nodes):
        raise NoTwin("it needs a rewrite that was left out")
    rule, reason = site.rule.as_in(site.replacement), "the rule does not match there"
    anchor = lane.graph.nodes[lane.nodes[site.anchor]]
    if isinstance(site, BodySite):
        return _twin_inside(site, lane, anchor)
    for match in Matcher(lane.graph, rule.pattern, set(), rule.symmetric).at(anchor):
        if [node.id for node in match.nodes] != nodes:
            continue
        built = build_site(rule, site.rule_index, match)
        if isinstance(built, Refusal):
            reason = built.reason
        elif difference := _difference(site, built, lane):
            reason = difference
        else:
            return built
    raise NoTwin(f"at {lane.describe()}: {reason}")


def _twin_inside(site: BodySite, lane: Lane, node: Node) -> Site:
    """Return the same rewrite of the same body, which must be the same at all shapes after it, too."""
    offered = Enumerator([site.rule], "site", deployment=False).sites_at(lane.graph, node)[0]
    twin = next((other for other in offered if other.key[1] == site.key[1]), None)
    reason = "the rule does not match there" if twin is None else _difference(site, twin, lane)
    if twin is None or reason:
        raise NoTwin(f"at {lane.describe()}: {reason}")
    return twin


def _difference(site: Site, other: Site, lane: Lane) -> str:
    """Return how a site of a lane differs from the one that was searched, in words; empty where it does the same."""
    before, after = site.replacement, other.replacement
    if [(n.op, n.domain) for n in before.nodes] != [(n.op, n.domain) for n in after.nodes]:
        return f"it inserts other operators: {_operators(after)} instead of {_operators(before)}"
    for node, twin in zip(before.nodes, after.nodes, strict=True):
        if node.signature != twin.signature:
            return f"the attributes of its {node.op} depend on the shape"
        if [_place(ref, lane) for ref in node.inputs] != [_place(ref, None) for ref in twin.inputs]:
            return f"its {node.op} reads other values"
    if [_place(ref, lane) for ref in before.outputs] != [_place(ref, None) for ref in after.outputs]:
        return "its results are other values"
    if {lane.nodes.get(node.id) for node in site.removed} != {node.id for node in other.removed}:
        return "it removes other operators"
    return ""


def _operators(replacement: Replacement) -> str:
    return " ".join(node.op for node in replacement.nodes) or "none"


def _place(ref: Ref | None, lane: Lane | None) -> tuple[str, int, int] | None:
    """Return where a value of a replacement comes from, in terms of the lane's values."""
    if ref is None:
        return None
    if ref.constant is not None:
        return "constant", 0, 0
    if ref.external is not None:
        return "value", ref.external if lane is None else lane.values.get(ref.external, -1), 0
    return "made", ref.node, ref.index
