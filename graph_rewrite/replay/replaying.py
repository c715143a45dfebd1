"""Replay: recorded steps are found in another graph and applied, and every difference is told."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay.differences import ReplayDifference, missing_rule, missing_sites
from graph_rewrite.replay.finding import find_sites
from graph_rewrite.replay.fingerprint import fingerprint
from graph_rewrite.replay.recorder import by_rule, find_by_key
from graph_rewrite.replay.recording import RecordedStep, Recording
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.replay.strictness import step_losses
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.rewriting.session_choices import LOSSY_SETTINGS


@dataclass(frozen=True, slots=True)
class AppliedStep:
    """A recorded step that was applied."""

    number: int
    """Its number in the recording, from 1."""
    rule: str
    key: str
    """Key of the candidate here."""
    description: str
    count: int
    """Number of sites."""
    exact: bool
    """Whether the graph after it has the recorded structure."""


@dataclass(frozen=True, slots=True)
class Replay:
    """The outcome of a replay."""

    graph: Graph
    """The graph that the applied steps lead to."""
    applied: tuple[AppliedStep, ...]
    differences: tuple[ReplayDifference, ...]
    """Steps, or sites of them, that were left out, and the first step after which the structure differs."""
    same_architecture: bool
    """Whether the graph has the structure of the recorded one, leaving out the sizes of dimensions."""

    @property
    def complete(self) -> bool:
        """Return whether every step was applied at every site."""
        return not any(difference.left_out for difference in self.differences)

    @property
    def first_difference(self) -> ReplayDifference | None:
        """Return the first difference; None where all steps lead to graphs of the recorded structure."""
        return self.differences[0] if self.differences else None


def replay(
    recorded: Recording, graph: Graph, rewriter: Enumerator, *, partial: bool = False, strict: bool = False
) -> Replay:
    """Apply recorded steps to a normalised graph: the same model, one with other weights, or one exported anew.

    A step is found by its sites' addresses or their structure, at whichever granularity it was recorded; the rules
    check their conditions anew. Nothing here compares outputs: `delivery.checked_model` does.

    Args:
        partial: go on after a step that does not fit, without it, and apply a step at those of its sites that are
            found. Otherwise the replay ends before the first such step.
        strict: a step that does not keep NaN, infinities, denormals or the sign of zero does not fit.
    """
    traced = TracedGraph(graph, rewriter)
    same = recorded.fingerprint == fingerprint(graph)
    alike = same or recorded.fingerprint_any_size == fingerprint(graph, any_size=True)
    applied: list[AppliedStep] = []
    differences: list[ReplayDifference] = []
    for number, step in enumerate(recorded.steps, start=1):
        known = step.kind == "deployment" or step.rule in traced.rules
        lost = step_losses(step, traced.rules) if strict and known else ""
        reason = f"it does not keep every value ({lost}), and all must be kept (--strict)"
        candidate, difference = (
            (None, ReplayDifference(number, step.rule, _expected(step), reason))
            if lost
            else _find(traced, number, step, partial, strict)
        )
        if difference is not None:
            differences.append(difference)
        if candidate is None:
            if partial:
                continue
            break
        taken = AppliedStep(number, step.rule, candidate.key, candidate.description, candidate.count, False)
        if not traced.take(candidate):
            differences.append(ReplayDifference(number, step.rule, _expected(step), "it gives no valid graph here"))
            if partial:
                continue
            break
        exact = _has_structure(traced, step, same)
        applied.append(AppliedStep(number, step.rule, taken.key, taken.description, taken.count, exact))
        if not exact and step.after and alike and not differences:
            differences.append(
                ReplayDifference(
                    number, step.rule, _expected(step), "the graph after it has another structure than when it was "
                    "recorded: the rule has changed since, or was applied elsewhere", left_out=False,
                )
            )  # fmt: skip
    return Replay(traced.graph, tuple(applied), tuple(differences), alike)


def _has_structure(traced: TracedGraph, step: RecordedStep, same: bool) -> bool:
    if same:
        return step.after == fingerprint(traced.graph)
    return step.after_any_size == fingerprint(traced.graph, any_size=True)


def _find(
    traced: TracedGraph, number: int, step: RecordedStep, partial: bool, strict: bool
) -> tuple[Candidate | None, ReplayDifference | None]:
    """Return the candidate of a step, and what differs."""
    if step.kind == "deployment":
        if traced.rewriter.deployment:
            return _choice(traced, step, strict), None
        return None, ReplayDifference(number, step.rule, step.rule, "the deployment is fixed here")
    if step.rule not in traced.rules:
        return None, missing_rule(traced, number, step.rule, _expected(step))
    if not step.at:
        candidate = find_by_key(traced, step.rule, step.key) or _by_description(traced, step)
        if candidate is None:
            return None, missing_sites(traced, number, step, _expected(step), 0)
        return candidate, None
    found = find_sites(step.at, traced.sites(step.rule), traced.around)
    sites = tuple(site for site in found if site is not None)
    if len(sites) == len(step.at):
        return Candidate(step.kind, traced.graph, sites), None
    lost = tuple(record for record, site in zip(step.at, found, strict=True) if site is None)
    difference = missing_sites(traced, number, step, _expected(step), len(sites), lost)
    kept = Candidate("class" if len(sites) > 1 else "site", traced.graph, sites) if sites and partial else None
    return kept, difference


def _choice(traced: TracedGraph, step: RecordedStep, strict: bool) -> Candidate:
    """Return a deployment choice: what was recorded, or else the choice of this name."""
    if step.refused is not None:
        # A step records all settings after it, those of steps before it that were left out too.
        kept = {name: value for name, value in step.settings.items() if not (strict and name in LOSSY_SETTINGS)}
        settings = tuple(sorted(kept.items()))
        refused = frozenset(step.refused)
        return Candidate(
            "deployment", traced.graph, disabled_optimizers=refused, session_settings=settings, label=step.rule
        )
    for candidate in deployment_candidates(traced.graph):
        if candidate.label == step.rule:
            return candidate
    now, named = traced.graph.disabled_optimizers, frozenset({step.rule.partition(" ")[2]})
    names = now | named if step.rule.startswith("refuse ") else now - named
    return Candidate(
        "deployment", traced.graph, disabled_optimizers=names, session_settings=traced.graph.session_settings,
        label=step.rule,
    )  # fmt: skip


def _by_description(traced: TracedGraph, step: RecordedStep) -> Candidate | None:
    """Return the candidate that reads most like the recorded one, but for the numbers of nodes without a name: all that
    there is to go by in a result that was recorded by keys alone."""
    wanted = _readable(step.description)
    fitting = by_rule(traced, step.rule)
    for same in (_readable, _place):
        for candidate in fitting:
            if candidate.count == step.sites and same(candidate.description) == same(wanted):
                return candidate
    return None


def _readable(description: str) -> str:
    head = re.sub(r" \(all \d+ sites of this kind\)$", "", description)
    return re.sub(r" at #\d+:", " at #:", head)


def _place(description: str) -> str:
    return description.partition(":")[0]


def _expected(step: RecordedStep) -> str:
    names: Sequence[str] = step.where
    if not names:
        place = _place(step.description) or step.rule
        return place if step.sites == 1 else f"{place} ({step.sites} sites)"
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{step.rule} at {shown}"
