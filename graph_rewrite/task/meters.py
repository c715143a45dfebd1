"""Meters of problems: those of a process are shared, with their worker processes and baselines."""

from __future__ import annotations

import atexit
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from pathlib import Path

from graph_rewrite.delivery.acceptance import acceptance
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import FULL, SCREEN, Clock, Deployment, Measurable, MeasurementCache, OrtMeter, Plan
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.operators.usual_values import settled_values
from graph_rewrite.runtime import FeedSpec, Recipes, recipes_key
from graph_rewrite.task.models import Model

_SHARED_METERS = 8

_meters: OrderedDict[tuple[str, str, Path, bool, Clock, str], OrtMeter] = OrderedDict()


def shared_meter(
    model: Model, deployment: Deployment, folder: Path, cached: bool, clock: Clock, feeds: Recipes | None = None
) -> OrtMeter:
    """Return this process's meter for a model and a deployment; with `cached`, latencies are remembered on disk."""
    inputs = "" if feeds is None else recipes_key(feeds)
    key = (model.original.named_hash, deployment.key, folder, cached, clock, inputs)
    if key not in _meters:
        cache = MeasurementCache() if cached else None
        _meters[key] = ort_meter(model, deployment, folder, cache, clock=clock, feeds=feeds)
    _meters.move_to_end(key)
    while len(_meters) > _SHARED_METERS:
        # A problem may still hold the meter: it works on, and starts its worker anew when it needs one.
        _meters.popitem(last=False)[1].close()
    return _meters[key]


def ort_meter(
    model: Model,
    deployment: Deployment,
    folder: Path,
    cache: MeasurementCache | None = None,
    screen: Plan = SCREEN,
    clock: Clock = "wall",
    feeds: Recipes | None = None,
    full: Plan = FULL,
) -> OrtMeter:
    """Make a meter that runs a model's rewritten graphs in ONNX Runtime, from files in `folder`, on given inputs, in
    turn; by default on random ones, with token ids that lie within the model's tables."""
    other = None if feeds is not None else partial(_accepted_feeds, model, deployment, folder)
    return OrtMeter(
        model.original, _write_candidate, deployment, workspace=folder, cache=cache, screen=screen, clock=clock,
        feeds=random_feeds(model.graph) if feeds is None else feeds, full=full, other_feeds=other,
    )  # fmt: skip


def random_feeds(graph: Graph) -> FeedSpec:
    """Return the recipe of random inputs to measure a model with: token ids are drawn from the whole of its tables, and
    inputs that say how a node works have values that fit."""
    return FeedSpec(
        input_ranges=index_ranges(graph), element_shapes=element_shapes(graph), values=settled_values(graph)
    )


def _accepted_feeds(model: Model, deployment: Deployment, folder: Path) -> FeedSpec | None:
    """Return inputs that a model runs on which does not run on random ones; None where there are none."""
    file = materialize(model.original, folder) if model.shapes else model.path
    values = acceptance(file, model.original, deployment).values
    random = random_feeds(model.graph)
    return replace(random, values={**random.values, **values}) if values else None


def _write_candidate(graph: Measurable, folder: Path) -> Path:
    if not isinstance(graph, Graph):
        raise TypeError(f"only a Graph can be written as a model, not {type(graph).__name__}")
    return materialize(graph, folder)


@atexit.register
def close_meters() -> None:
    """End the worker processes of all shared meters; they start again when needed."""
    for meter in _meters.values():
        meter.close()
