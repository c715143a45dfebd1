"""Replay: recorded steps are found in another graph and applied, and every difference is told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay.by_keys import find_rest, find_run, find_step, place
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
from graph_rewrite.rewriting.session_choices import LOSSY_SETTINGS, session_candidate
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.system.deadline import check_time


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
    def steps(self) -> int:
        """Return the number of recorded steps that were applied; one may be several candidates now."""
        return len({step.number for step in self.applied})

    @property
    def first_difference(self) -> ReplayDifference | None:
        """Return the first difference; None where all steps lead to graphs of the recorded structure."""
        return self.differences[0] if self.differences else None


def replay(
    recorded: Recording,
    graph: Graph,
    rewriter: Enumerator,
    *,
    partial: bool = False,
    strict: bool = False,
    untouched: frozenset[int] = frozenset(),
    most_bytes: float = math.inf,
) -> Replay:
    """Apply recorded steps to a normalised graph: the same model, one with other weights, or one exported anew.

    A step is found by its sites' addresses or their structure, at whichever granularity it was recorded; the rules
    check their conditions anew. Every candidate that is applied is one that the graph offers now: where classes are cut
    otherwise than when a step was recorded, it is applied as several. Nothing here compares outputs:
    `delivery.checked_model` does.

    Args:
        partial: go on after a step that does not fit, without it, and apply a step at those of its sites that are
            found. Otherwise the replay ends before the first such step.
        strict: a step that does not keep NaN, infinities, denormals or the sign of zero does not fit.
        untouched: ids of nodes of the graph; a step at a site that would remove one does not fit.
        most_bytes: a step after which the graph has more bytes of weights does not fit.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    traced = TracedGraph(graph, rewriter, untouched, most_bytes)
    same = recorded.fingerprint == fingerprint(graph)
    alike = same or recorded.fingerprint_any_size == fingerprint(graph, any_size=True)
    applied: list[AppliedStep] = []
    differences: list[ReplayDifference] = []
    runs: dict[int, str] = {}
    for number, step in enumerate(recorded.steps, start=1):
        check_time()
        known = step.kind == "deployment" or step.rule in traced.rules
        lost = step_losses(step, traced.rules) if strict and known else ""
        way: Sequence[Candidate] | Sequence[Site] = ()
        if lost:
            reason = f"it does not keep every value ({lost}), and all must be kept (--strict)"
            difference: ReplayDifference | None = ReplayDifference(number, step.rule, _expected(step), reason)
        elif step.at or step.kind == "deployment" or step.rule not in traced.rules:
            way, difference = _find(traced, number, step, partial, strict)
        else:
            way, difference = _find_by_key(traced, number, recorded.steps[number - 1 :], runs)
        if difference is not None:
            differences.append(difference)
        taken = _take(traced, way, step.kind)
        if way and not taken:
            differences.append(
                ReplayDifference(number, step.rule, _expected(step), "it gives no valid graph here, or too large a one")
            )
        if not taken:
            if partial:
                continue
            break
        exact = _has_structure(traced, step, same)
        applied += [AppliedStep(number, c.rule, c.key, c.description, c.count, exact) for c in taken]
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


def _take(traced: TracedGraph, way: Sequence[Candidate] | Sequence[Site], kind: str) -> list[Candidate]:
    """Apply deployment choices, a candidate, or sites. Return the candidates that were applied."""
    taken: list[Candidate] = []
    if way and isinstance(way[0], Candidate):
        for candidate in way:
            assert isinstance(candidate, Candidate)
            if traced.take(candidate):
                taken.append(candidate)
        return taken
    return _take_sites(traced, [site for site in way if isinstance(site, Site)], kind)


def _take_sites(traced: TracedGraph, sites: Sequence[Site], kind: str) -> list[Candidate]:
    """Apply a rule at sites, by candidates of the graph as it is now: a class that they make up, or else the classes
    that lie among them and single sites, one after another. A site that another one has removed is passed over, as in a
    class.

    Args:
        kind: of the recorded candidate, which is preferred.
    """
    taken: list[Candidate] = []
    left = {_identity(site) for site in sites}
    while left:
        offered = [c for c in by_rule(traced, sites[0].rule.name) if {_identity(site) for site in c.sites} <= left]
        if not offered:
            break
        candidate = next((c for c in offered if c.kind == kind), offered[0])
        left -= {_identity(site) for site in candidate.sites}
        if traced.take(candidate):
            taken.append(candidate)
    return taken


def _identity(site: Site) -> tuple[tuple[int, ...], str]:
    """Return what stays the same of a site while others are rewritten: not which of its nodes are removed, since it may
    share them."""
    return tuple(node.id for node in site.match.nodes), site.replacement.key


def _find_by_key(
    traced: TracedGraph, number: int, steps: Sequence[RecordedStep], runs: dict[int, str]
) -> tuple[Sequence[Candidate] | Sequence[Site], ReplayDifference | None]:
    """Return the candidate or the sites of the first step, which was recorded by its key alone, and what differs.

    Args:
        runs: keys of candidates that are known already, by the number of the step; those of the next steps are added.
    """
    step = steps[0]
    if number in runs:
        candidate = find_by_key(traced, step.rule, runs[number])
    elif (candidate := find_step(traced, step)) is None and (run := find_run(traced, steps)):
        runs |= {number + i: one.key for i, one in enumerate(run)}
        candidate = run[0]
    if candidate is not None:
        return (candidate,), None
    if rest := find_rest(traced, steps):
        return rest, None
    return (), missing_sites(traced, number, step, _expected(step), 0)


def _find(
    traced: TracedGraph, number: int, step: RecordedStep, partial: bool, strict: bool
) -> tuple[Sequence[Candidate] | Sequence[Site], ReplayDifference | None]:
    """Return the candidates of a step or its sites, and what differs."""
    if step.kind == "deployment":
        if traced.rewriter.deployment:
            return _choices(traced, step, strict), None
        return (), ReplayDifference(number, step.rule, step.rule, "the deployment is fixed here")
    if step.rule not in traced.rules:
        return (), missing_rule(traced, number, step.rule, _expected(step))
    offered = [site for site in traced.sites(step.rule) if traced.untouched.isdisjoint(n.id for n in site.removed)]
    found = find_sites(step.at, offered, traced.around)
    sites = tuple(site for site in found if site is not None)
    if len(sites) == len(step.at):
        return sites, None
    lost = tuple(record for record, site in zip(step.at, found, strict=True) if site is None)
    difference = missing_sites(traced, number, step, _expected(step), len(sites), lost)
    return (sites if partial else ()), difference


def _choices(traced: TracedGraph, step: RecordedStep, strict: bool) -> list[Candidate]:
    """Return a deployment choice: what was recorded, or else the choice of this name. One that stands for several
    session settings is made one setting at a time, as the search made it, where that leads to the same."""
    graph, named = traced.graph, list[Candidate]()
    for label in [] if strict else step.rule.split(" and "):
        candidate = session_candidate(graph, label)
        if candidate is None:
            return [_choice(traced, step, strict)]
        named.append(candidate)
        graph = candidate.apply()
    same = dict(graph.session_settings) == dict(step.settings) and graph.disabled_optimizers == set(step.refused or ())
    return named if named and (same or step.refused is None) else [_choice(traced, step, strict)]


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


def _expected(step: RecordedStep) -> str:
    names: Sequence[str] = step.where
    if not names:
        named = place(step.description) or step.rule
        return named if step.sites == 1 else f"{named} ({step.sites} sites)"
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"{step.rule} at {shown}"
