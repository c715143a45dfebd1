"""Refusals of ONNX Runtime's fusions, where windows around what is fused show that they pay."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from agents.core.base import Search, Visit, action_of
from agents.regional.chains import Timer, time_cuts
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.latency.windows import NotSeparable, WindowPair, window_around
from graph_rewrite.latency.windows.window import shape_key
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.deployment_choices import deployment_candidate, local_refusals

LEAST_SAVED = 0.005
"""Share of a run of the original that a refusal must surely save."""


def sure_refusals(search: Search, timer: Timer, graph: Graph, seconds: float) -> dict[str, frozenset[int]]:
    """Return the labels of the refusals that surely save by their windows, each with the nodes that are not fused then.
    For a transformer of 18 layers that takes half a second on a Zen 5, and is right within 0.2% of its latency; to
    measure the model takes 2 s, and is right within 4%.

    Args:
        search: its seconds are spent. Where it has no deployment choices, nothing is refused.
        timer: times windows.
        graph: the graph in which the optimisers may find something to fuse.
        seconds: estimated, of a run of the original.
    """
    offered = local_refusals(graph) if search.problem.rewriter.deployment else []
    return {
        candidate.label: frozenset().union(*places)
        for candidate, places in offered
        if _surely_saved(search, timer, candidate, places) > LEAST_SAVED * seconds
    }


def refusing(search: Search, visit: Visit, labels: Iterable[str]) -> Visit:
    """Return a graph with refusals, taken to be as fast as without them."""
    for label in labels:
        candidate = deployment_candidate(visit.graph, label)
        graph = None if candidate is None else search.apply(candidate)
        if candidate is not None and graph is not None:
            visit = replace(visit, graph=graph, actions=(*visit.actions, action_of(candidate)))
    return visit


def _surely_saved(search: Search, timer: Timer, candidate: Candidate, places: Iterable[frozenset[int]]) -> float:
    """Return the lower bound of the 95% interval of the seconds per inference that a refusal saves at all places."""
    saved, half = time_cuts(search, timer, _pairs(candidate, places))
    return saved - half


def _pairs(candidate: Candidate, places: Iterable[frozenset[int]]) -> Iterator[WindowPair]:
    """Yield the kinds of windows of a refusal, as they are and with it."""
    found: dict[str, tuple[Graph, int]] = {}
    for nodes in places:
        try:
            window = window_around(candidate.graph, nodes, 0)
        except NotSeparable:
            continue
        key = shape_key(window)
        first, count = found.get(key, (window, 0))
        found[key] = first, count + 1
    for key, (window, count) in found.items():
        refused = window.with_disabled_optimizers(candidate.disabled_optimizers)
        yield WindowPair(window, refused, count, digest(key, candidate.label))
