"""One application of a rule: all its matches at once, then congruence and cycles. What saturation repeats, and what a
search over the construction of the e-graph takes as one action."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from graph_rewrite.egraph.core import ABSENT, EGraph
from graph_rewrite.egraph.cycles import Descendants, filter_cycles
from graph_rewrite.egraph.matching import EMatcher, Position
from graph_rewrite.egraph.view import Ambiguous, EMatch, Found, GraphView
from graph_rewrite.region import Ref, Region
from graph_rewrite.rule import Refusal, Rule
from graph_rewrite.types import TypeInferenceError

LimitKind = Literal["after", "within"]
"""When a node limit is looked at: after an application, which may exceed it (as Hartmann et al. do, PACT'24, section
5.1), or before every insertion, so that it holds."""

Cycles = Literal["filter", "allow"]

MATCH_LIMIT = 1000
"""Matches that one application tries. Rules of several patterns have one per pair or triple of operators that share
an operand, which is cubic in the size of a class. 1,000 is also what the default scheduler of egg allows."""


@dataclass(slots=True)
class Application:
    """What one application of a rule did."""

    rule: str
    matches: int = 0
    applied: int = 0
    """Matches that added an e-node or made two classes one."""
    refused: int = 0
    cyclic: int = 0
    """Matches left out as their target would read what it computes."""
    added: int = 0
    filtered: int = 0
    stopped: bool = False
    """Whether a limit kept it from trying all matches."""
    over_limit: bool = False
    """Whether insertions were left out that the node limit forbids."""
    seconds: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether all matches that there were have been tried now."""
        return not self.stopped

    @property
    def changed(self) -> bool:
        """Whether the e-graph is no longer the same."""
        return self.applied > 0


def find_matches(egraph: EGraph, rule: Rule) -> Iterator[Found]:
    """Where the rule's pattern occurs, conditions not looked at."""
    yield from EMatcher(egraph, rule.pattern, rule.symmetric).matches()


def can_match(egraph: EGraph, rule: Rule) -> bool:
    """Whether every pattern of the rule has its operators in the e-graph and the pattern occurs: rules for which this
    is False need not be tried (Hartmann et al., PACT'24, section 4.1, blacklist). A change later may enable them."""
    for pattern in rule.pattern.nodes:
        if not any(egraph.with_operator(op, pattern.domain) for op in pattern.operators):
            return False
    return next(find_matches(egraph, rule), None) is not None


def apply_rule(
    egraph: EGraph,
    rule: Rule,
    *,
    node_limit: int | None = None,
    limit: LimitKind = "after",
    cycles: Cycles = "filter",
    match_limit: int | None = MATCH_LIMIT,
    incremental: bool = True,
) -> Application:
    """Apply a rule at all its matches; the e-graph is rebuilt afterwards.

    Args:
        node_limit: most e-nodes. With `limit="after"` nothing here stops at it: compare `egraph.size` afterwards. With
            "within" insertions that would exceed it are left out.
        cycles: "filter" keeps every choice of members acyclic; "allow" leaves cycles to the extraction.
        match_limit: matches to try at most; the next application goes on behind them.
        incremental: leave out matches that were there when the rule was last applied in full to this e-graph.
    """
    started, log = time.perf_counter(), len(egraph.log)
    report = Application(rule.name)
    size, view = egraph.size, GraphView(egraph)
    order = Descendants(egraph) if cycles == "filter" else None
    beyond = False
    round = _begin(egraph, rule, incremental)
    for found in _collected(egraph, rule, round, match_limit, report):
        match = EMatch(view, rule.pattern, found)
        target = _target(egraph, rule, match)
        beyond = beyond or match.beyond
        if isinstance(target, Refusal):
            report.refused += 1
            report.reasons[target.reason] = report.reasons.get(target.reason, 0) + 1
        elif order is not None and _is_cyclic(order, target, match.root_values):
            report.cyclic += 1
        elif limit == "within" and node_limit is not None and not _fits(egraph, target, node_limit):
            report.stopped = report.over_limit = True
        elif _insert(egraph, target, match.root_values):
            report.applied += 1
    egraph.rebuild()
    if len(egraph.log) > log:
        egraph.ranks = None
        report.filtered = len(filter_cycles(egraph)) if cycles == "filter" else 0
    _end(egraph, rule, round, beyond, report)
    report.added, report.seconds = egraph.size - size, time.perf_counter() - started
    return report


@dataclass(slots=True)
class Round:
    """One way through the matches of a rule, in one application or, with a match limit, in several: those that changes
    since `since` have made (all where it is None); `log` is the length of the log as it began."""

    since: int | None
    log: int
    position: Position | None = None


def _begin(egraph: EGraph, rule: Rule, incremental: bool) -> Round:
    open_round: Round | None = egraph.resume.pop(rule, None)
    if open_round is not None:
        return Round(open_round.since, open_round.log, open_round.position)
    return Round(egraph.seen.get(rule) if incremental else None, len(egraph.log))


def _collected(egraph: EGraph, rule: Rule, round: Round, match_limit: int | None, report: Application) -> list[Found]:
    """All matches before the first is applied: an application must not see its own results."""
    if round.since == len(egraph.log):
        return []
    matcher = EMatcher(egraph, rule.pattern, rule.symmetric)
    found: list[Found] = []
    position = round.position
    for match in matcher.matches(round.since, round.position):
        if match_limit is not None and len(found) >= match_limit:
            report.stopped = True
            break
        found.append(match)
        position = matcher.position
    round.position = position
    report.matches = len(found)
    return found


def _end(egraph: EGraph, rule: Rule, round: Round, beyond: bool, report: Application) -> None:
    """Remember where the next application goes on. Conditions that looked beyond the pattern are asked again, and
    insertions that the node limit left out are tried again."""
    if report.over_limit or (beyond and report.complete):
        egraph.seen.pop(rule, None)
    elif report.complete:
        egraph.seen[rule] = round.log
    else:
        egraph.resume[rule] = Round(None if beyond else round.since, round.log, round.position)


def _target(egraph: EGraph, rule: Rule, match: EMatch) -> Region | Refusal:
    builder = egraph.builder()
    try:
        refusal = rule.check(match, *match.refs)
        if refusal is not None:
            return refusal
        result = rule.target(builder, match, *match.refs)
    except Ambiguous as error:
        return Refusal(str(error))
    except TypeInferenceError as error:
        return Refusal(f"the target has no valid types: {error}")
    if isinstance(result, Refusal):
        return result
    outputs: tuple[Ref, ...] = result if isinstance(result, tuple) else (result,)
    for output, cls in zip(outputs, match.root_values, strict=True):
        if output.type != egraph.type_of(cls):
            return Refusal(f"the target gives {output.type}, the source {egraph.type_of(cls)}")
    return builder.finish(outputs)


def _is_cyclic(order: Descendants, region: Region, roots: tuple[int, ...]) -> bool:
    """Whether an operator of the target reads, however indirectly, what it will be equal to."""
    leaves = {
        ref.external for node in region.nodes for ref in node.inputs if ref is not None and ref.external is not None
    }
    computed = [root for output, root in zip(region.outputs, roots, strict=True) if output.node >= 0]
    return any(order.reads(leaf, root) for leaf in leaves for root in computed)


def _fits(egraph: EGraph, region: Region, node_limit: int) -> bool:
    """Whether the e-graph stays within the limit with the e-nodes that the region lacks."""
    made: list[tuple[int, ...] | None] = []
    constants: set[str] = set()
    missing = 0
    for ref in [*(ref for node in region.nodes for ref in node.inputs), *region.outputs]:
        if ref is not None and ref.external is None and ref.constant is not None:
            if ref.constant.digest not in constants and egraph.lookup_constant(ref.constant) is None:
                missing += 1
            constants.add(ref.constant.digest)
    for node in region.nodes:
        operator = egraph.operators.application(node.op, node.domain, node.attrs, node.signature, len(node.types))
        args = tuple(_existing(egraph, ref, made) for ref in node.inputs)
        cls = None if None in args else egraph.lookup(operator, tuple(arg for arg in args if arg is not None))
        if cls is None:
            missing += 1 + (len(node.types) if len(node.types) > 1 else 0)
            made.append(None)
        elif operator.outputs == 1:
            made.append((cls,))
        else:
            outputs = (egraph.lookup(egraph.operators.output(i), (cls,)) for i in range(operator.outputs))
            made.append(tuple(output for output in outputs if output is not None))
    return egraph.size + missing <= node_limit


def _existing(egraph: EGraph, ref: Ref | None, made: list[tuple[int, ...] | None]) -> int | None:
    """The class of an operand where it exists already."""
    if ref is None:
        return ABSENT
    if ref.external is not None:
        return egraph.find(ref.external)
    if ref.constant is not None:
        return egraph.lookup_constant(ref.constant)
    outputs = made[ref.node]
    return None if outputs is None else outputs[ref.index]


def _insert(egraph: EGraph, region: Region, roots: tuple[int, ...]) -> bool:
    """Put a region in and make its outputs equal to the roots; whether anything changed."""
    before = len(egraph.log)
    made: list[tuple[int, ...]] = []
    for node in region.nodes:
        operator = egraph.operators.application(node.op, node.domain, node.attrs, node.signature, len(node.types))
        made.append(egraph.add(operator, [_class_of(egraph, ref, made) for ref in node.inputs], node.types))
    for output, root in zip(region.outputs, roots, strict=True):
        egraph.union(root, _class_of(egraph, output, made))
    return len(egraph.log) > before


def _class_of(egraph: EGraph, ref: Ref | None, made: list[tuple[int, ...]]) -> int:
    if ref is None:
        return ABSENT
    if ref.external is not None:
        return egraph.find(ref.external)
    if ref.constant is not None:
        return egraph.add_constant(ref.constant)
    return made[ref.node][ref.index]
