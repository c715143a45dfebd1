"""Decide by measurements which of the shapes that were asked for get a model of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from agents.conclusion.confirmation import judging_plan, surely_faster
from agents.core.base import OptimizationResult
from agents.optimization.single_shapes import ShapeResult
from graph_rewrite.delivery.ship import OriginalModel
from graph_rewrite.errors import MachineError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import shared_weight_bytes, weight_bytes
from graph_rewrite.latency import Latency, OrtMeter, Plan
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.feeds import measured_feeds
from graph_rewrite.symbolic.lanes import NotGeneralError
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.problem import Problem

_MEASURED = 0.8
"""Part of the time left that the two measurements of a model are planned for; the rest opens the sessions."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A shape that was asked for, and what was decided for it."""

    found: ShapeResult
    latency: Latency | None = None
    """Of its own model, against the original with symbolic dimensions at this shape."""
    over_general: Latency | None = None
    """Of its own model, against the model for all shapes."""
    reason: str = ""
    """Why the model for all shapes is used; empty where the own one is."""


def general_graph(problem: Problem, result: OptimizationResult) -> Graph:
    """Return the graph for all shapes of a result; of an original that is kept, that of its file, which asks to be run
    as the result is."""
    if not isinstance(result.checked, OriginalModel):
        return result.graph
    asked = result.graph
    plain = load(problem.model.path).with_disabled_optimizers(asked.disabled_optimizers)
    return plain.with_session_settings(dict(asked.session_settings))


def judge(one: ShapeResult, general: Graph, bindings: DimensionBindings, first: Problem) -> Judged:
    """Decide whether a shape gets a model of its own: it must be surely faster there than the graph for all shapes, and
    than the original with symbolic dimensions.

    Args:
        general: the graph for all shapes.
        first: the problem at the first shape.
    """
    if one.result is None or one.problem is None:
        return Judged(one, reason=one.reason)
    if one.result.is_original:
        why = one.result.message.removeprefix("the original is kept: ") or "nothing was surely faster"
        return Judged(one, reason=f"the search at this shape kept the original: {why}")
    try:
        over, latency = _measured(one.problem, general, one.result.graph, bindings, one.values, first)
    except OutOfTime:
        return Judged(one, reason="no time was left to measure its model")
    except (MachineError, NotGeneralError) as error:  # the other model cannot be run here, or no inputs can be made
        return Judged(one, reason=f"its model cannot be measured: {error}")
    reason = _doubt(over, "the general model") or (latency and _doubt(latency, "the original")) or ""
    return Judged(one, reason=reason) if reason else Judged(one, latency, over)


def _doubt(latency: Latency, against: str) -> str:
    if not latency.ok:
        return f"its model cannot be measured: {latency.message}"
    low, high = latency.ci95
    if surely_faster(latency):
        return ""
    return f"a model of its own is x{latency.speedup:.3f} ({low:.3f} to {high:.3f}) over {against}, which is not sure"


def _measured(
    problem: Problem,
    general: Graph,
    graph: Graph,
    bindings: DimensionBindings,
    values: Mapping[str, int],
    first: Problem,
) -> tuple[Latency, Latency | None]:
    """Measure a graph of one shape in turn with the graph for all shapes, and where it is surely faster against the
    original with symbolic dimensions. A planted meter of a problem is asked itself.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    if not isinstance(problem.meter, OrtMeter):
        return _by_planted_meter(problem, general, graph)
    plan = judging_plan(max(0.0, _MEASURED * seconds_left()))
    # The user's inputs are of the first shape, and further problems have none.
    with _meter_at(values, bindings, problem, first.model.graph, plan) as meter:
        over = meter.compare(general, graph)
        return over, meter.confirm(graph, plan) if surely_faster(over) else None


def measure_own(one: Judged, problem: Problem, bindings: DimensionBindings, plan: Plan) -> Latency:
    """Measure the model of a single shape against the original with symbolic dimensions at this shape, as deployed in
    a problem. A planted meter of the problem is asked itself.

    Raises:
        OutOfTime: the time limit of the run is reached.
        MachineError: the original cannot be run there.
        NotGeneralError: no inputs can be made.
    """
    assert one.found.result is not None
    if not isinstance(problem.meter, OrtMeter):
        return problem.confirm(one.found.result.graph, plan)
    with _meter_at(one.found.values, bindings, problem, problem.model.graph, plan) as meter:
        return meter.confirm(one.found.result.graph, plan)


@contextmanager
def _meter_at(
    values: Mapping[str, int], bindings: DimensionBindings, problem: Problem, graph: Graph, plan: Plan
) -> Iterator[OrtMeter]:
    """Open a meter of the original with symbolic dimensions at sizes of these, deployed as a problem is.

    Args:
        graph: the graph from which the ranges of token ids are read.
    """
    assert isinstance(problem.meter, OrtMeter)
    model, shapes = replace(problem.model, original=load(problem.model.path)), bindings.inputs.shapes(values)
    with tempfile.TemporaryDirectory(prefix="shape-", dir=problem.workspace) as folder:
        feeds = measured_feeds(graph, bindings.inputs, shapes, problem.model.original, problem.data, Path(folder))
        with ort_meter(
            model, problem.deployment, problem.workspace, clock=problem.meter.clock, feeds=feeds, full=plan
        ) as meter:
            yield meter


def _by_planted_meter(problem: Problem, general: Graph, graph: Graph) -> tuple[Latency, Latency]:
    latency, compared = problem.confirm(graph), problem.compare(general, graph)
    if compared is not None:
        return compared[0], latency
    other = problem.confirm(general)
    interval = latency.ci95[0] / other.ci95[1], latency.ci95[1] / other.ci95[0]
    over = replace(latency, speedup=latency.speedup / other.speedup, ci95=interval, baseline_ms=other.ms)
    return over, latency


def within_size(problem: Problem, general: Graph, judged: Sequence[Judged]) -> list[Judged]:
    """Leave out models whose weights make the bundle larger than a result may be."""
    most = problem.limits.most_bytes(weight_bytes(problem.model.original))
    graphs, kept = [general], list[Judged]()
    for one in judged:
        if one.reason or one.found.result is None:
            kept.append(one)
            continue
        size = shared_weight_bytes([*graphs, one.found.result.graph])
        if size > most:
            reason = f"with its weights the bundle has {size / 1e6:.1f} MB, more than --max-size-growth allows"
            kept.append(replace(one, reason=reason))
            continue
        graphs.append(one.found.result.graph)
        kept.append(one)
    return kept
