"""Dynamic shapes in an optimisation: what a search found at one shape becomes a result for all shapes of the model."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.conclusion.conclude import kept_message, original_kept
from agents.conclusion.confirmation import MARGIN, MOST_LOOKS, is_doubtful, surely_faster
from agents.conclusion.savings import saved_ms
from agents.conclusion.size_tradeoff import TOO_LARGE
from agents.core.base import Action, OptimizationResult
from graph_rewrite.delivery.ship import OriginalModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, OrtMeter, Plan
from graph_rewrite.latency.estimates import pooled
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.feeds import measured_feeds
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.limits import priced
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.problem import Problem

GENERAL_SHARE = 0.2
"""Share of the time limit for carrying rewrites over to all shapes, comparing and measuring what comes out."""
GENERAL_S = 120.0
"""Most seconds of it."""


@dataclass(frozen=True, slots=True)
class DynamicResult:
    """A result whose file keeps the model's symbolic dimensions, and what is said of them in its JSON."""

    result: OptimizationResult
    dynamic: Mapping[str, Any] = field(default_factory=dict)


def seconds_for_all_shapes(bindings: DimensionBindings, static: bool, limit: float) -> float:
    """Return the seconds of a time limit that a result for all shapes takes after the search: none for static models
    and fixed shapes."""
    return 0.0 if static or bindings.inputs.is_static else min(GENERAL_S, GENERAL_SHARE * limit)


def for_all_shapes(
    problem: Problem,
    result: OptimizationResult,
    bindings: DimensionBindings,
    *,
    static: bool,
    deadline: float,
    plan: Plan,
) -> DynamicResult:
    """Carry the rewrites of a result over to all shapes of the model, and measure the outcome against the original,
    both with symbolic dimensions, at every binding that was asked for.

    Where the rewrites do not generalise, or are not surely faster at the first binding or slower at another, the
    original is kept.

    Args:
        static: leave the result as it is, with the shapes that the search was for.
        deadline: the moment of `time.monotonic` at which this has to end.
        plan: the plan of the measurement.
    """
    if bindings.inputs.is_static:
        return DynamicResult(result)
    if static or result.is_original or isinstance(result.checked, OriginalModel):
        kept = isinstance(result.checked, OriginalModel)
        message = "" if kept else "the shapes are fixed, as asked (--static)"
        known = SymbolicResult(bindings, message=message).to_json()
        return DynamicResult(result, {**known, "symbolic": kept})
    with ending_at(deadline):
        made = generalise(problem, result.actions, bindings)
        measured: tuple[Latency, ...] = ()
        reason = made.message
        if made.ok and made.graph is not None:
            try:
                measured = _judged(problem, made.graph, bindings, plan)
                reason = _objection(bindings, measured) or _too_dear(problem, made.graph, measured[0])
            except OutOfTime:
                reason = "no time was left to measure the result with symbolic dimensions"
    dynamic = {**made.to_json(), **_gains(result, made, bindings, measured)}
    if reason:
        reason = f"the rewrites do not give a surely faster model for all shapes: {reason}"
        return DynamicResult(_original(problem, result, measured, reason), {**dynamic, "symbolic": True})
    return DynamicResult(_carried(result, made, measured[0]), dynamic)


def _judged(problem: Problem, graph: Graph, bindings: DimensionBindings, plan: Plan) -> tuple[Latency, ...]:
    """Measure a graph as `measure_at` does; where that leaves a doubt at the first binding, a few more times there, as
    long as time is left.

    Raises:
        OutOfTime: not even the first measurement came to its end.
    """
    first, *others = measure_at(problem, graph, bindings, plan)
    alone = replace(bindings, values=bindings.values[:1])
    for look in range(1, MOST_LOOKS):
        if not is_doubtful(first):
            break
        try:
            first = pooled(first, measure_at(problem, graph, alone, plan, look=look)[0])
        except OutOfTime:
            break
    return first, *others


def measure_at(
    problem: Problem, graph: Graph, bindings: DimensionBindings, plan: Plan, *, look: int = 0
) -> tuple[Latency, ...]:
    """Measure a graph with symbolic dimensions against the original at every binding that was asked for. A planted
    meter of a problem is asked itself, without shapes.

    Args:
        look: number of the measurement, where there are several.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    if not isinstance(problem.meter, OrtMeter):
        return tuple(problem.confirm(graph, plan, look) for _ in bindings.values)
    model = replace(problem.model, original=load(problem.model.path))
    found = []
    with tempfile.TemporaryDirectory(prefix="dynamic-", dir=problem.workspace) as folder:
        for number, values in enumerate(bindings.values):
            shapes = bindings.inputs.shapes(values)
            data = () if number else problem.data  # the user's inputs are of the shape that was searched
            feeds = measured_feeds(
                problem.model.graph, bindings.inputs, shapes, problem.model.original, data, Path(folder)
            )
            with ort_meter(
                model, problem.deployment, problem.workspace, clock=problem.meter.clock, feeds=feeds
            ) as meter:
                found.append(meter.confirm(graph, plan))
    return tuple(found)


def _objection(bindings: DimensionBindings, measured: Sequence[Latency]) -> str:
    """Return why a measured graph is not to be handed over; empty where it is."""
    first, *others = measured
    if not first.ok:
        return f"it cannot be measured: {first.message}"
    if not surely_faster(first):
        return f"x{first.speedup:.3f} ({first.ci95[0]:.3f} to {first.ci95[1]:.3f})"
    for values, latency in zip(bindings.values[1:], others, strict=True):
        where = ", ".join(f"{symbol}={value}" for symbol, value in values.items())
        if not latency.ok:
            return f"at {where} it cannot be measured: {latency.message}"
        if latency.ci95[1] < 1.0 - MARGIN:
            return f"at {where} it is slower: x{latency.speedup:.3f}"
    return ""


def _too_dear(problem: Problem, graph: Graph, latency: Latency) -> str:
    """Return that a graph saves too little for the weights that it adds; empty where it does not."""
    price = problem.limits.price(problem.model.original, graph)
    return TOO_LARGE if priced(latency.lower_bound, price) <= 1.0 else ""


def _gains(
    result: OptimizationResult, made: SymbolicResult, bindings: DimensionBindings, measured: Sequence[Latency]
) -> dict[str, Any]:
    """Return what the result gains at each binding, what it gained with fixed shapes, and what was left out."""
    saved = saved_ms(result)
    shown = made.to_json()["left_out"]
    left_out = [{**entry, "saved_ms": saved[one.action]} for entry, one in zip(shown, made.left_out, strict=True)]
    gains = [
        {"at": dict(values), "speedup": latency.speedup, "speedup_ci95": list(latency.ci95), "latency_ms": latency.ms}
        for values, latency in zip(bindings.values, measured, strict=False)
        if latency.ok
    ]
    return {"left_out": left_out, "speedup_at": gains, "fixed_speedup": result.latency.speedup}


def _carried(result: OptimizationResult, made: SymbolicResult, latency: Latency) -> OptimizationResult:
    """Return the result for all shapes: the actions that hold, at the sites where they hold."""
    assert made.graph is not None
    assert made.checked is not None
    actions = tuple(
        replace(action, count=sites) for action, sites in zip(result.actions, made.sites, strict=True) if sites
    )
    # What the search measured on the way says what rewrites save as long as none of them is missing.
    path = result.path if not made.left_out else ()
    return replace(
        result,
        graph=made.graph,
        latency=latency,
        actions=actions,
        checked=made.checked,
        message=made.message,
        path=path,
    )


def _original(
    problem: Problem, result: OptimizationResult, measured: Sequence[Latency], reason: str
) -> OptimizationResult:
    known = [latency.baseline_ms for latency in measured if latency.ok] or [result.latency.baseline_ms]
    ms = known[0] if math.isfinite(known[0]) else math.nan
    no_actions: tuple[Action, ...] = ()
    checked = original_kept(problem)
    return replace(
        result, graph=problem.model.original, latency=Latency(ms, 1.0, (1.0, 1.0), 1, ms), actions=no_actions, path=(),
        checked=checked, message=kept_message(reason, checked),
    )  # fmt: skip
