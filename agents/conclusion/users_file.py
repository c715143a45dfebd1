"""The user's own file as a result: where only the deployment gains, no other file is needed."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from graph_rewrite.delivery.deployed import METADATA_KEY
from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.runtime import NODE_ORDER
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.models import Model
from graph_rewrite.task.problem import Problem

_AS_FAST = 0.995
"""Part of the winner's speed-up that the original must reach under the same deployment."""


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
    problem: Problem, graph: Graph, confirmed: Latency, keep: Callable[[Graph], CheckedModel]
) -> tuple[Latency, CheckedModel] | None:
    """Return the user's own file under the deployment that a winner without rewrites asks for, with its latency. Its
    bytes, names and symbolic dimensions stay as they are.

    Args:
        graph: the winner: the normalised original under another deployment.
        confirmed: its latency.
        keep: returns the user's own file, run as a graph asks and compared; raises OutOfTime where that takes too long.

    Returns:
        None where there are rewrites, or the own file is not as fast, gives other outputs, or was not measured in time.
    """
    original = asking_original(problem.model, graph)
    if original is None:
        return None
    with suppress(OutOfTime):
        latency = confirmed if original.hash == graph.hash else problem.confirm(original)
        if not latency.ok or latency.lower_bound < _AS_FAST * confirmed.lower_bound:
            return None
        checked = keep(original)
        return (latency, checked) if checked.outcome.ok else None
    return None
