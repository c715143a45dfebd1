"""The user's own file as a result: where only the deployment gains, no other file is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from agents.conclusion.confirmation import confirmed, needed_seconds, not_confirmed, surely_faster
from agents.core.base import Search
from graph_rewrite.delivery.deployed import METADATA_KEY
from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.runtime import NODE_ORDER
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.models import Model

_AS_FAST = 0.995
"""Part of the lower bound of the winner's speed-up that the original must reach under the same deployment."""


def asking_original(model: Model, graph: Graph) -> Graph | None:
    """Return the original that asks to be run as `graph` does; None where `graph` has rewrites or lists its nodes in an
    order of its own, or where the file says itself how it is to be run, which counts before what is written beside
    it."""
    in_file = {name: value for name, value in graph.session_settings if name == NODE_ORDER}
    plain = graph.with_disabled_optimizers(model.graph.disabled_optimizers).with_session_settings(in_file)
    recorded = any(entry.key == METADATA_KEY for entry in model.original.header.metadata_props)
    if recorded or plain.hash != model.graph.hash:
        return None
    asking = model.original.with_disabled_optimizers(graph.disabled_optimizers)
    return asking.with_session_settings(dict(graph.session_settings))


def in_own_file(
    search: Search, graph: Graph, known: Latency, keep: Callable[[Graph], CheckedModel]
) -> tuple[Latency, CheckedModel] | str | None:
    """Return the user's own file under the deployment that a winner without rewrites asks for, with its latency,
    measured anew. Its bytes, names and symbolic dimensions stay as they are.

    Args:
        graph: the winner: the normalised original under another deployment.
        known: what the search measured of it.
        keep: returns the user's own file, run as a graph asks and compared; raises OutOfTime where that takes too long.

    Returns:
        Why the own file is not handed over, where it is not surely faster. None where there are rewrites, or the own
        file is slower than the winner, gives other outputs, or cannot be compared and measured in time.
    """
    original, left = asking_original(search.problem.model, graph), seconds_left()
    if original is None or left < needed_seconds(search, graph, known, left):
        return None
    with suppress(OutOfTime):
        checked = keep(original)
        if not checked.outcome.ok:
            return None
        latency = confirmed(search, original, known if original.hash == graph.hash else None)
        if not latency.ok or latency.speedup < _AS_FAST * known.lower_bound:
            return None
        return (latency, checked) if surely_faster(latency) else not_confirmed(latency)
    return None
