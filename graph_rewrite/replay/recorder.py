"""Recording: the steps of a search, found by their keys, are written down with all by which they are found again."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay.fingerprint import fingerprint, graph_digest
from graph_rewrite.replay.recording import RecordedStep, Recording
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.rewriting.enumerator import Enumerator

LONGEST = 300
"""Characters of a description that are kept."""


class KeyedAction(Protocol):
    """An action of a search: the key of the candidate that was applied, and its rule."""

    @property
    def key(self) -> str: ...

    @property
    def rule(self) -> str: ...


class UnrecordableError(UserError):
    """Actions that lead from graph to graph by something else than candidates, such as an extraction from an
    e-graph."""


def record(
    graph: Graph,
    rewriter: Enumerator,
    actions: Sequence[KeyedAction],
    *,
    end: Graph | None = None,
    rules: str = "default",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> Recording:
    """Record the actions that a search took from the normalised `graph`, by candidates of `rewriter`.

    Args:
        end: the graph that they led to. Where it is given, choices of the deployment that are no candidates are
            recorded as a last step, and a recording that would lead elsewhere is refused.
        rules: names of the rule sets of the rewriter.
        shapes: shapes that were fixed where the model leaves them open.
        deployment: provider and threads for which the actions were found.

    Raises:
        UnrecordableError: an action is no candidate of the graph before it, or the actions lead elsewhere.
    """
    traced = TracedGraph(graph, rewriter)
    steps, choices = [], list[str]()
    for number, action in enumerate(actions, start=1):
        candidate = find_by_key(traced, action.rule, action.key)
        if candidate is None and end is not None and action.rule not in traced.rules:
            choices.append(action.rule)
            continue
        if candidate is None:
            raise UnrecordableError(f"step {number} ({action.rule}) is no candidate of the graph before it")
        steps.append(_step(traced, candidate))
    if end is not None and traced.graph.hash != end.hash:
        steps.append(_last_choice(traced, end, " and ".join(choices) or "deployment"))
    domains = None if rewriter.domains is None else tuple(sorted(rewriter.domains))
    return Recording(
        tuple(steps), fingerprint(graph), fingerprint(graph, any_size=True), graph.opset, rules, rewriter.granularity,
        domains, dict(shapes or {}), dict(deployment or {}), installed_version(), checkout_commit(),
        mutants=_embedded(steps, traced),
    )  # fmt: skip


def _embedded(steps: Sequence[RecordedStep], traced: TracedGraph) -> tuple[Mapping[str, Any], ...]:
    """Return the rules of steps that must be recorded with them, each once."""
    used = dict.fromkeys(step.rule for step in steps if step.rule in traced.rules)
    found = (traced.rules[rule].embedded for rule in used)
    return tuple(rule for rule in found if rule is not None)


def find_by_key(traced: TracedGraph, rule: str, key: str) -> Candidate | None:
    """Return the candidate with this key, at whichever granularity: the rewriter's own first."""
    rewriter = traced.rewriter
    for candidate in deployment_candidates(traced.graph):
        if candidate.key == key:
            return candidate
    if rule not in traced.rules:
        return None
    for candidate in rewriter.candidates_by(traced.graph, (rule,)):
        if candidate.key == key:
            return candidate
    return next((c for c in by_rule(traced, rule) if c.key == key), None)


def by_rule(traced: TracedGraph, rule: str) -> list[Candidate]:
    """Return the candidates of one rule at both granularities, those of classes first."""
    classes: dict[str, list[Any]] = {}
    sites = traced.sites(rule)
    for site in sites:
        classes.setdefault(site.class_key, []).append(site)
    whole = [Candidate("class", traced.graph, tuple(group)) for group in classes.values()]
    return whole + [Candidate("site", traced.graph, (site,)) for site in sites]


def _last_choice(traced: TracedGraph, end: Graph, label: str) -> RecordedStep:
    """Record that the graph is run as `end` is."""
    choice = Candidate(
        "deployment", traced.graph, disabled_optimizers=end.disabled_optimizers,
        session_settings=end.session_settings, label=label,
    )  # fmt: skip
    step = _step(traced, choice)
    if traced.graph.hash != end.hash:
        raise UnrecordableError(f"the recorded actions do not lead to the result; last came {label}")
    return step


def _step(traced: TracedGraph, candidate: Candidate) -> RecordedStep:
    at = tuple(traced.around.record(site) for site in candidate.sites)
    rule, kind, count = candidate.rule, candidate.kind, candidate.count
    description, key = _shortened(candidate.description), candidate.key
    if not traced.take(candidate):
        raise UnrecordableError(f"{description} gives no valid graph")
    refused = tuple(sorted(traced.graph.disabled_optimizers)) if kind == "deployment" else None
    after = graph_digest(traced.graph, traced.around.above, any_size=True)
    return RecordedStep(
        rule, kind, count, description, key, at, refused, dict(traced.graph.session_settings),
        fingerprint(traced.graph), after,
    )  # fmt: skip


def _shortened(text: str) -> str:
    """A rewrite of half a network lists hundreds of operators."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


@cache
def installed_version() -> str:
    """Return the version of the installed package; empty where there is none."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("rewritegym")
    return ""


@cache
def checkout_commit() -> str:
    """Return the commit of this checkout; empty for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""
