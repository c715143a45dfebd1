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
    rules: str = "default",
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> Recording:
    """Record the actions that a search took from the normalised `graph`, by candidates of `rewriter`.

    Args:
        rules: names of the rule sets of the rewriter.
        shapes: shapes that were fixed where the model leaves them open.
        deployment: provider and threads for which the actions were found.

    Raises:
        UnrecordableError: an action is no candidate of the graph before it.
    """
    walk = TracedGraph(graph, rewriter)
    steps = []
    for number, action in enumerate(actions, start=1):
        candidate = find_by_key(walk, action.rule, action.key)
        if candidate is None:
            raise UnrecordableError(f"step {number} ({action.rule}) is no candidate of the graph before it")
        steps.append(_step(walk, candidate))
    domains = None if rewriter.domains is None else tuple(sorted(rewriter.domains))
    return Recording(
        tuple(steps), fingerprint(graph), fingerprint(graph, any_size=True), graph.opset, rules, rewriter.granularity,
        domains, dict(shapes or {}), dict(deployment or {}), _version(), _commit(),
    )  # fmt: skip


def find_by_key(walk: TracedGraph, rule: str, key: str) -> Candidate | None:
    """Return the candidate with this key, at whichever granularity: the rewriter's own first."""
    rewriter = walk.rewriter
    for candidate in deployment_candidates(walk.graph):
        if candidate.key == key:
            return candidate
    if rule not in walk.rules:
        return None
    for candidate in rewriter.candidates_by(walk.graph, (rule,)):
        if candidate.key == key:
            return candidate
    return next((c for c in by_rule(walk, rule) if c.key == key), None)


def by_rule(walk: TracedGraph, rule: str) -> list[Candidate]:
    """Return the candidates of one rule at both granularities, those of classes first."""
    classes: dict[str, list[Any]] = {}
    sites = walk.sites(rule)
    for site in sites:
        classes.setdefault(site.class_key, []).append(site)
    whole = [Candidate("class", walk.graph, tuple(group)) for group in classes.values()]
    return whole + [Candidate("site", walk.graph, (site,)) for site in sites]


def _step(walk: TracedGraph, candidate: Candidate) -> RecordedStep:
    at = tuple(walk.around.record(site) for site in candidate.sites)
    rule, kind, count = candidate.rule, candidate.kind, candidate.count
    description, key = _shortened(candidate.description), candidate.key
    if not walk.take(candidate):
        raise UnrecordableError(f"{description} gives no valid graph")
    refused = tuple(sorted(walk.graph.disabled_optimizers)) if kind == "deployment" else None
    after = graph_digest(walk.graph, walk.around.above, any_size=True)
    return RecordedStep(rule, kind, count, description, key, at, refused, fingerprint(walk.graph), after)


def _shortened(text: str) -> str:
    """A rewrite of half a network lists hundreds of operators."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


@cache
def _version() -> str:
    with suppress(metadata.PackageNotFoundError):
        return metadata.version("rewritegym")
    return ""


@cache
def _commit() -> str:
    """Return the commit of this checkout; empty for an installed copy."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return ""
    with suppress(OSError, subprocess.SubprocessError):
        command = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    return ""
