"""Models for single shapes beside the one for all shapes: which of them are kept, and the bundle that holds them."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from agents.conclusion.conclude import original_file
from agents.conclusion.recordings import recording_or_none, write_recording
from agents.optimization.dynamic import DynamicResult
from agents.optimization.judging_shapes import Judged, general_graph, judge, within_size
from agents.optimization.other_threads import ByThreads, thread_entry
from agents.optimization.single_shapes import ShapeResult
from graph_rewrite.delivery.acceptance import refusals
from graph_rewrite.delivery.checked_bundle import (
    BundlePart,
    CheckedBundle,
    GeneralBundle,
    WritableBundle,
    checked_bundle,
)
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.delivery.ship import OriginalModel
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay import Recording
from graph_rewrite.runtime import Deployment
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.feeds import write_data, write_feeds
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left
from graph_rewrite.task.problem import Problem

MEASURING_SHARE = 0.5
"""Part of the time for the bundle that measuring its models may take."""
_TRIAL_S = 30.0
"""Most seconds for trying at which shapes the original runs."""
_UNKNOWN: dict[str, Any] = {"speedup": None, "speedup_ci95": None, "latency_ms": None}

Binding = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class ShapeBundle:
    """A bundle that can be written, and what is told of it."""

    writable: WritableBundle
    judged: tuple[Judged, ...]
    general_gains: Mapping[Binding, Mapping[str, Any]] = field(default_factory=dict)
    """What is known of the gain of the model for all shapes, by the sizes of the symbolic dimensions."""
    recordings: Mapping[str, Recording | None] = field(default_factory=dict)
    """The recorded rewrites of each model, by its file."""
    by_threads: Mapping[Binding, ByThreads] = field(default_factory=dict)
    """The latency of each model of a single shape with each number of threads, by the sizes of the symbolic dimensions;
    empty where only one number was asked for."""

    @property
    def own(self) -> tuple[Judged, ...]:
        """The models of single shapes."""
        return tuple(one for one in self.judged if not one.reason)

    def with_threads(self, first: int, others: Sequence[ByThreads]) -> ShapeBundle:
        """Return the bundle with what its models of single shapes take with further numbers of threads.

        Args:
            first: the number of threads that the models were made for.
            others: for each of `own`.
        """
        known = {
            _binding(one.found.values): ((first, one.latency), *found)
            for one, found in zip(self.own, others, strict=True)
            if one.latency is not None
        }
        return replace(self, by_threads=known)

    def write_to(self, folder: Path) -> Path:
        """Write the bundle with the recorded rewrites of its models."""

        def finish(staged: Path) -> None:
            for file, recording in self.recordings.items():
                write_recording(recording, staged / file)

        return self.writable.write_to(folder, finish)

    def told(self, dynamic: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
        """Return the object `dynamic` of a result's JSON with the models of single shapes.

        Args:
            folder: where the bundle was written; None where it was not.
        """
        general, *own = self.writable.files
        files, entries = iter(own), []
        for one in self.judged:
            file = general if one.reason else next(files)
            entries.append(
                {
                    "at": dict(one.found.values),
                    "own": not one.reason,
                    **self.general_gains.get(_binding(one.found.values), _UNKNOWN),
                    **_figures(one),
                    "threads": [
                        thread_entry(count, latency)
                        for count, latency in self.by_threads.get(_binding(one.found.values), ())
                    ],
                    "onnx_path": None if folder is None else str(folder / file),
                    "reason": one.reason,
                }
            )
        return {**dynamic, "bundle": None if folder is None else str(folder), "specialised": entries}


def specialise(
    problem: Problem,
    general: DynamicResult,
    recording: Recording | None,
    found: Sequence[ShapeResult],
    bindings: DimensionBindings,
    deadline: float,
) -> ShapeBundle:
    """Measure what was found at single shapes against the model for all shapes, and make a bundle of what is surely
    faster, in which each file is compared with the original.

    Args:
        problem: the problem at the first shape.
        general: the result for all shapes.
        recording: its recorded rewrites.
        found: what was found at each shape that was asked for.
        deadline: the moment of `time.monotonic` at which this has to end. What is not sure by then is not kept.
    """
    graph = general_graph(problem, general.result)
    if general.result.is_original and recording is None:
        recording = recording_or_none(problem, (), graph)  # it names the original
    began = time.monotonic()
    judged: Sequence[Judged] = []
    for number, one in enumerate(found, start=1):
        share = number / len(found) * MEASURING_SHARE
        with ending_at(began + share * (deadline - began)):
            judged = [*judged, judge(one, graph, bindings, problem)]
    judged = within_size(problem, graph, judged)
    with ending_at(deadline):
        made, judged, recordings = _bundle(problem, general, graph, recording, judged, bindings)
    return ShapeBundle(made, tuple(judged), _general_gains(general, bindings), recordings)


def _bundle(
    problem: Problem,
    general: DynamicResult,
    graph: Graph,
    recording: Recording | None,
    judged: Sequence[Judged],
    bindings: DimensionBindings,
) -> tuple[WritableBundle, Sequence[Judged], dict[str, Recording | None]]:
    """Save and compare the models that are left; without one that fails, or all if it is the general one."""
    while own := [one for one in judged if not one.reason]:
        try:
            made = _checked(problem, general, graph, own, bindings)
        except OutOfTime:
            judged = [
                one if one.reason else replace(one, reason="no time was left to check the bundle") for one in judged
            ]
            continue
        first, *others = made.outcomes
        wrong = {id(one): outcome.message for one, outcome in zip(own, others, strict=True) if not outcome.ok}
        if not first.ok:
            wrong = {id(one): f"the general model cannot share its weights: {first.message}" for one in own}
        if not wrong:
            files = [(made.files[0], recording), *zip(made.files[1:], (o.found.recording for o in own), strict=True)]
            return made, judged, dict(files)
        judged = [replace(one, reason=wrong.get(id(one), one.reason)) for one in judged]
    alone = GeneralBundle(general.result.checked)
    return alone, judged, {alone.files[0]: recording}


def _checked(
    problem: Problem, general: DynamicResult, graph: Graph, own: Sequence[Judged], bindings: DimensionBindings
) -> CheckedBundle:
    def compare(path: Path, deployment: Deployment) -> Equivalence:
        return _compared_at_many(problem, general, bindings, path, deployment)

    parts = [BundlePart(graph, problem.deployment, compare)]
    for one in own:
        assert one.found.problem is not None
        assert one.found.result is not None
        parts.append(
            BundlePart(
                one.found.result.graph, problem.deployment, _Comparison(one.found.problem),
                bindings.inputs.shapes(one.found.values),
            )
        )  # fmt: skip
    return checked_bundle(parts, problem.workspace)


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Compares a file of one shape with the original, as the end of a search does."""

    problem: Problem

    def __call__(self, path: Path, deployment: Deployment) -> Equivalence:
        problem, limits = self.problem, self.problem.limits
        return equivalent(
            original_file(problem), path, deployment, rtol=limits.rtol, atol=limits.atol, data=problem.data,
            tolerance=limits.tolerance(problem.model.original, problem.deployment),
        )  # fmt: skip


def _compared_at_many(
    problem: Problem, general: DynamicResult, bindings: DimensionBindings, path: Path, deployment: Deployment
) -> Equivalence:
    """Compare the file for all shapes with the original, at the shapes that were asked for and those at which its graph
    was compared before."""
    model, limits = problem.model, problem.limits
    wanted = [*bindings.values, *general.dynamic.get("verified_at", ())]
    tolerance = limits.tolerance(model.original, problem.deployment)
    if isinstance(general.result.checked, OriginalModel):
        # A tighter limit than rounding explains is for rewrites.
        tolerance = max(tolerance, default_tolerance(model.original, problem.deployment))
    with tempfile.TemporaryDirectory(prefix="bundle-feeds-", dir=problem.workspace) as name:
        folder = Path(name)
        feeds = [
            write_feeds(model.graph, bindings.inputs, bindings.inputs.shapes(values), folder, number)
            for number, values in enumerate(wanted)
        ]
        seconds = max(0.0, min(_TRIAL_S, seconds_left()))
        refused = refusals(model.path, feeds[1:], problem.deployment, folder, seconds)
        feeds = feeds[:1] + [spec for spec, reason in zip(feeds[1:], refused, strict=True) if not reason]
        return equivalent(
            model.path, path, deployment, tolerance=tolerance, rtol=limits.rtol, atol=limits.atol, feeds=feeds,
            data=write_data(model.original, problem.data, folder / "data"),
        )  # fmt: skip


def _binding(values: Mapping[str, int]) -> Binding:
    return tuple(sorted(values.items()))


def _general_gains(general: DynamicResult, bindings: DimensionBindings) -> dict[Binding, dict[str, Any]]:
    """Return what is known of the gain of the model for all shapes at those that were asked for."""
    result = general.result
    if result.is_original:
        unchanged = {"speedup": 1.0, "speedup_ci95": [1.0, 1.0], "latency_ms": None}
        return {_binding(values): unchanged for values in bindings.values}
    first = {
        "speedup": result.latency.speedup, "speedup_ci95": list(result.latency.ci95), "latency_ms": result.latency.ms
    }  # fmt: skip
    measured = {
        _binding(one["at"]): {name: one[name] for name in first} for one in general.dynamic.get("speedup_at", ())
    }
    return {_binding(bindings.values[0]): first, **measured}


def _figures(one: Judged) -> dict[str, Any]:
    """Return what was measured of a model of one shape, and its rewrites."""
    if one.reason or one.latency is None or one.over_general is None or one.found.result is None:
        return {"over_general": None, "rewrites": []}
    return {
        "speedup": one.latency.speedup,
        "speedup_ci95": list(one.latency.ci95),
        "latency_ms": one.latency.ms,
        "over_general": one.over_general.speedup,
        "rewrites": [{"rule": a.rule, "where": a.description, "sites": a.count} for a in one.found.result.actions],
    }
