"""One application of a rule: all its matches at once, then congruence and cycles.

Saturation repeats it; a search over the construction of the e-graph takes it as one action.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from graph_rewrite.egraph.matching.ematching import EMatcher, MatchPosition, in_order
from graph_rewrite.egraph.matching.root_joining import FoundMatch
from graph_rewrite.egraph.matching.targets import RuleTarget, insert, matched_classes, missing, target_of
from graph_rewrite.egraph.matching.view import GraphView
from graph_rewrite.egraph.structure.classes import FILTERED
from graph_rewrite.egraph.structure.cycles import Descendants, filter_cycles
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Refusal, Rule

LimitKind = Literal["after", "within"]
"""The time at which a node limit is checked: after an application, which may exceed it (as Hartmann et al. do, PACT'24,
section 5.1), or before every insertion, so that it holds."""

Cycles = Literal["filter", "allow"]

MATCH_LIMIT = 1000
"""Matches that one application tries. Rules of several patterns have one per pair or triple of operators that share
an operand, which is cubic in the size of a class. 1,000 is also what the default scheduler of egg allows."""


@dataclass(slots=True)
class Application:
    """A report of one application of a rule."""

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
    """True where a limit kept it from trying all matches."""
    over_limit: bool = False
    """True where insertions were left out that the node limit forbids."""
    seconds: float = 0.0
    reasons: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Return whether all matches that there were have been tried now."""
        return not self.stopped

    @property
    def changed(self) -> bool:
        """Return whether the application changed the e-graph."""
        return self.applied > 0


@dataclass(slots=True)
class MatchRound:
    """The matches of a rule that one application tries or, with a match limit, several after one another.

    They are those that changes since `since` have made, all where it is None; `log` is the length of the log as the
    round began.
    """

    since: int | None
    log: int
    position: MatchPosition | None = None
    found: Sequence[FoundMatch] = ()
    stopped: bool = False
    """True where there are more matches than `found`."""


def find_matches(egraph: EGraph, rule: Rule) -> Iterator[FoundMatch]:
    """Yield the matches of the rule's pattern; conditions are not checked."""
    yield from EMatcher(egraph, rule.pattern, rule.symmetric).matches()


def can_match(egraph: EGraph, rule: Rule) -> bool:
    """Return whether the rule's operators are all in the e-graph and its pattern occurs: rules for which this
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
    remember: bool = True,
    round: MatchRound | None = None,
    faults: RuleFaults | None = None,
) -> Application:
    """Apply a rule at all its matches; the e-graph is rebuilt afterwards.

    Args:
        node_limit: most e-nodes. With `limit="after"` nothing here stops at it: compare `egraph.size` afterwards. With
            "within" insertions that would exceed it are left out.
        cycles: "filter" keeps every choice of members acyclic; "allow" leaves cycles to the extraction.
        match_limit: matches to try at most; the next application goes on behind them.
        incremental: leave out matches that were there when the rule was last applied in full to this e-graph.
        remember: take over what the rule made of an equal match before, in this e-graph or in one that it shares a fork
            with, and where it matched in the e-graph's `base`. Changes nothing but the time.
        round: matches that `search_rule` has found in this e-graph, which may have grown since; by default it is
            searched now.
        faults: collects exceptions that the rule raises; with None they go through, with a note that names the rule.
    """
    started, log = time.perf_counter(), len(egraph.log)
    report = Application(rule.name)
    size, view = egraph.size, GraphView(egraph)
    order = Descendants(egraph) if cycles == "filter" else None
    most = node_limit if limit == "within" else None
    beyond = False
    if round is None:
        round = search_rule(egraph, rule, match_limit=match_limit, incremental=incremental, remember=remember)
    report.matches, report.stopped = len(round.found), round.stopped
    for found in round.found:
        if any(egraph.node_state[node] == FILTERED for node in found.nodes.values()):
            continue
        matched = matched_classes(egraph, rule, found)
        target, classes, looked_beyond = target_of(view, rule, found, matched, remember, faults)
        beyond = beyond or looked_beyond
        if isinstance(target, Refusal):
            report.refused += 1
            report.reasons[target.reason] = report.reasons.get(target.reason, 0) + 1
        elif order is not None and _is_cyclic(order, target, classes, matched.roots):
            report.cyclic += 1
        elif most is not None and egraph.size + missing(egraph, target, classes) > most:
            report.stopped = report.over_limit = True
        elif insert(egraph, target, classes, matched.roots):
            report.applied += 1
    egraph.rebuild()
    if len(egraph.log) > log:
        egraph.ranks = None
        report.filtered = len(filter_cycles(egraph)) if cycles == "filter" else 0
    _end(egraph, rule, round, beyond, report)
    report.added, report.seconds = egraph.size - size, time.perf_counter() - started
    return report


def search_rule(
    egraph: EGraph,
    rule: Rule,
    *,
    match_limit: int | None = MATCH_LIMIT,
    incremental: bool = True,
    remember: bool = True,
) -> MatchRound:
    """Return the matches that the next application of a rule tries, for `apply_rule(..., round=...)`.

    The application must follow: the e-graph gives up its record of where the last one stopped.
    """
    round = _begin(egraph, rule, incremental)
    if round.since == len(egraph.log):
        return round
    if remember and egraph.base is not None and round.since is None and round.position is None:
        known: list[FoundMatch] | None = egraph.base.matches(egraph, rule, match_limit)
        if known is not None:
            round.found = known
            return round
    matcher = EMatcher(egraph, rule.pattern, rule.symmetric)
    found: list[FoundMatch] = []
    for match in matcher.matches(round.since, round.position):
        if match_limit is not None and len(found) >= match_limit:
            round.stopped = True
            break
        found.append(match)
        round.position = matcher.position
    round.found = found if round.stopped else in_order(found)
    return round


def _begin(egraph: EGraph, rule: Rule, incremental: bool) -> MatchRound:
    open_round: MatchRound | None = egraph.resume.pop(rule, None)
    if open_round is not None:
        return MatchRound(open_round.since, open_round.log, open_round.position)
    return MatchRound(egraph.seen.get(rule) if incremental else None, len(egraph.log))


def _end(egraph: EGraph, rule: Rule, round: MatchRound, beyond: bool, report: Application) -> None:
    """Record where the next application continues. Conditions that looked beyond the pattern are asked again, and
    insertions that the node limit left out are tried again."""
    if report.over_limit or (beyond and report.complete):
        egraph.seen.pop(rule, None)
    elif report.complete:
        egraph.seen[rule] = round.log
    else:
        egraph.resume[rule] = MatchRound(None if beyond else round.since, round.log, round.position)


def _is_cyclic(order: Descendants, target: RuleTarget, classes: Sequence[int], roots: tuple[int, ...]) -> bool:
    """Return whether an operator of the target reads, however indirectly, a value that it will be equal to."""
    return any(order.reads(classes[leaf], roots[i]) for leaf in target.leaves for i in target.computed)
