"""Equality saturation: all rules, again and again, until nothing changes or a limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from graph_rewrite.egraph.matching.changes import root_nodes
from graph_rewrite.egraph.saturation.application import (
    MATCH_LIMIT,
    Application,
    Cycles,
    LimitKind,
    MatchRound,
    apply_rule,
    search_rule,
)
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Rule

Stop = Literal["saturated", "node limit", "iterations", "time limit"]

Matching = Literal["application", "iteration"]
"""The time at which a rule is matched: before its application, so that it sees what the rules before it have added, or
all rules as an iteration begins, as egg and TENSAT do (Yang et al., MLSys'21, algorithm 1)."""

Schedule = Callable[[int, Sequence[Rule]], Iterable[Rule]]
"""The rules of an iteration, in order."""


@dataclass(slots=True)
class Saturation:
    """A report of `saturate`: why it stopped, and every application in order."""

    stop: Stop
    iterations: int
    applications: list[Application] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def saturated(self) -> bool:
        return self.stop == "saturated"

    def by_rule(self) -> dict[str, Application]:
        """Sums over the applications of each rule that matched."""
        sums: dict[str, Application] = {}
        for one in self.applications:
            if one.matches:
                total = sums.setdefault(one.rule, Application(one.rule))
                for name in ("matches", "applied", "refused", "cyclic", "added", "filtered", "seconds"):
                    setattr(total, name, getattr(total, name) + getattr(one, name))
        return sums


def is_multi_pattern(rule: Rule) -> bool:
    """Return whether a rule replaces what several operators compute: its matches are pairs, and there can be many."""
    return len(root_nodes(rule.pattern)) > 1


def multi_first(k_multi: int) -> Schedule:
    """TENSAT's schedule: rules of several patterns first, and only in the first `k_multi` iterations (Yang et al.,
    MLSys'21, section 5.1; Hartmann et al., PACT'24, figure 7)."""

    def schedule(iteration: int, rules: Sequence[Rule]) -> Iterable[Rule]:
        if iteration < k_multi:
            yield from (rule for rule in rules if is_multi_pattern(rule))
        yield from (rule for rule in rules if not is_multi_pattern(rule))

    return schedule


def rounds(
    egraph: EGraph, rules: Iterable[Rule], matching: Matching, match_limit: int | None = MATCH_LIMIT
) -> Iterator[tuple[Rule, MatchRound | None]]:
    """Yield the rules of an iteration with their matches, or with None where the application itself searches them.

    The e-graph forgets the matches of rules that are not applied in the end, and finds them again next time.
    """
    if matching == "application":
        yield from ((rule, None) for rule in rules)
        return
    yield from [(rule, search_rule(egraph, rule, match_limit=match_limit)) for rule in rules]


def saturate(
    egraph: EGraph,
    rules: Sequence[Rule],
    *,
    iterations: int = 15,
    node_limit: int | None = 2000,
    limit: LimitKind = "after",
    k_multi: int = 1,
    schedule: Schedule | None = None,
    cycles: Cycles = "filter",
    match_limit: int | None = MATCH_LIMIT,
    time_limit: float | None = None,
    matching: Matching = "application",
    faults: RuleFaults | None = None,
) -> Saturation:
    """Apply rules until an iteration changes nothing. The e-graph is changed in place.

    Args:
        node_limit: construction stops once an application leaves this many e-nodes or more ("after"), or before an
            insertion would exceed it ("within").
        k_multi: iterations in which rules of several patterns are applied.
        schedule: the rules of each iteration; `multi_first(k_multi)` by default.
        time_limit: seconds, looked at between applications.
        matching: whether the rules of an iteration see what those before them have added.
        faults: collects exceptions that rules raise; with None they go through, with a note that names the rule.
    """
    started = time.perf_counter()
    order = schedule if schedule is not None else multi_first(k_multi)
    result = Saturation("iterations", 0)
    for iteration in range(iterations):
        changed = False
        for rule, found in rounds(egraph, order(iteration, rules), matching, match_limit):
            report = apply_rule(
                egraph, rule, node_limit=node_limit, limit=limit, cycles=cycles, match_limit=match_limit, round=found,
                faults=faults,
            )  # fmt: skip
            result.applications.append(report)
            changed = changed or report.changed or not report.complete
            if node_limit is not None and (egraph.size >= node_limit or report.over_limit):
                result.stop = "node limit"
            elif time_limit is not None and time.perf_counter() - started > time_limit:
                result.stop = "time limit"
            else:
                continue
            break
        result.iterations = iteration + 1
        if result.stop != "iterations":
            break
        if not changed and (schedule is not None or iteration + 1 >= k_multi):
            result.stop = "saturated"
            break
    result.seconds = time.perf_counter() - started
    return result
