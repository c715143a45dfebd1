"""Differences between a recording and what a graph offers: where, what was expected, and what is nearest."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

from graph_rewrite.replay.evidence import SiteRecord
from graph_rewrite.replay.recording import RecordedStep
from graph_rewrite.replay.steps import TracedGraph

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class ReplayDifference:
    """A step that does not lead where it led when it was recorded."""

    step: int
    """Number of the step, from 1."""
    rule: str
    expected: str
    reason: str
    nearest: str = ""
    """The nearest that the graph offers, in words; empty where there is nothing like it."""
    left_out: bool = True
    """Whether the step, or some of its sites, could not be applied."""

    def __str__(self) -> str:
        nearest = f"; nearest: {self.nearest}" if self.nearest else ""
        return f"step {self.step}, {self.expected}: {self.reason}{nearest}"


def missing_rule(traced: TracedGraph, number: int, rule: str, expected: str) -> ReplayDifference:
    """Return the difference of a step whose rule does not exist, or is not in the rule sets of the rewriter."""
    close = difflib.get_close_matches(rule, list(traced.rules), n=_SHOWN)
    return ReplayDifference(number, rule, expected, f"there is no rule {rule} among those used here", ", ".join(close))


def missing_sites(
    traced: TracedGraph, number: int, step: RecordedStep, expected: str, found: int, lost: Sequence[SiteRecord] = ()
) -> ReplayDifference:
    """Return the difference of a step of which only `found` sites are here; `lost` are the others."""
    refusals = _refusals(traced, step.rule)
    told = [refusals[name] for name in dict.fromkeys(record.where for record in lost) if name in refusals]
    if told:
        return ReplayDifference(
            number, step.rule, expected, f"the rule refuses: {told[0]}", _nearest(traced, step.rule)
        )
    if found:
        reason = f"only {found} of its {len(step.at)} sites are there; missing: {_names(lost)}"
    else:
        reason = "the rule does not match there"
    return ReplayDifference(number, step.rule, expected, reason, _nearest(traced, step.rule))


def _refusals(traced: TracedGraph, rule: str) -> dict[str, str]:
    """Return why the rule refuses, by the name of the site."""
    found: dict[str, str] = {}
    for refusal in traced.single(rule).explain(traced.graph):
        found.setdefault(refusal.site, refusal.reason)
    return found


def _nearest(traced: TracedGraph, rule: str) -> str:
    sites = traced.sites(rule)
    if not sites:
        return f"{rule} matches nowhere in this graph"
    names = [traced.around.where(site) or site.name for site in sites]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{rule} at {', '.join(names[:_SHOWN])}{more}"


def _names(records: Sequence[SiteRecord]) -> str:
    names = [record.where for record in records]
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
