"""Comparison of an optimised model with the original: both run in ONNX Runtime, the original with all its optimisations
off, the optimised one as it will be deployed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graph_rewrite.delivery.comparison_process import ComparisonError, run_comparison
from graph_rewrite.delivery.hidden_values import Side, examine
from graph_rewrite.delivery.random_operators import random_operators
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.comparison import Finding

TIMEOUT_S = 900.0
"""For opening both models and running each on all inputs."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The outcome of a comparison. `max_rel_error` is the largest difference of any output, relative to the largest
    magnitude in that output of the original."""

    ok: bool
    max_rel_error: float
    tolerance: float
    message: str
    vacuous: tuple[str, ...] = ()
    """Outputs that are the same on all inputs, and of which nothing tells whether they are right. With one of them
    `ok` is False."""
    random: tuple[str, ...] = ()
    """Outputs that differ from themselves when the original runs twice on the same input. With one of them `ok` is
    True for an unchanged model alone."""


def equivalent(
    original: str | os.PathLike[str],
    optimised: str | os.PathLike[str],
    deployment: Deployment,
    *,
    seeds: int = 5,
    tolerance: float | None = None,
    feeds: FeedSpec | None = None,
) -> Equivalence:
    """Compare an optimised model file, run as deployed, with the original, run by the same provider without any
    optimisation, on `seeds` random inputs.

    Floats of an output may differ by `tolerance` (by default `default_tolerance`) times the output's largest
    magnitude; integers, booleans and strings must be equal; NaN and infinities must stand in the same places. Of
    outputs that are the same on all inputs the values before them decide (`hidden_values`). Both models run in a
    process of their own: a crash, a hang or a failure of either is an outcome, not an exception.

    Args:
        feeds: how to make the inputs; by default floats are standard normal, indices of Gather lie in range, and
            masks are all ones for the first input and random for the others. A file of feeds gives one input.

    Raises:
        ModelLoadError: the original is no readable ONNX model.
        ValueError: `seeds` is less than 1.
        OutOfTime: the time limit of the run is reached (`graph_rewrite.system.deadline`).
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    graph = load(original)
    limit = default_tolerance(graph, deployment) if tolerance is None else tolerance
    specs = _feed_specs(graph, seeds, feeds)
    request = {
        "kind": "compare",
        "original": os.fspath(original),
        "optimised": os.fspath(optimised),
        "deployment": deployment.to_json(),
        "feeds": [spec.to_json() for spec in specs],
        "tolerance": limit,
    }
    try:
        reply = run_comparison(request, TIMEOUT_S)
    except ComparisonError as error:
        return Equivalence(False, math.inf, limit, str(error))
    outcome = _judge([Finding(**finding) for finding in reply["findings"]], limit)
    if not outcome.ok and reply["random"]:
        return _random_outcome(graph, Path(optimised), reply["random"], outcome)
    if not outcome.ok or not reply["constant"]:
        return outcome
    sides = Side(Path(original), graph), Side(Path(optimised), load(optimised))
    hidden = examine(*sides, reply["constant"], deployment, specs, limit, TIMEOUT_S)
    untold = [found for found in hidden if found.reason]
    if untold:
        vacuous = tuple(found.output for found in untold)
        return replace(outcome, ok=False, message=f"vacuous: {untold[0]}", vacuous=vacuous)
    return replace(outcome, message="; ".join([outcome.message, *map(str, hidden)]))


def _random_outcome(graph: Graph, optimised: Path, random: Mapping[str, float], outcome: Equivalence) -> Equivalence:
    """Return the outcome for a model that differs from itself: only the unchanged model is equal to it."""
    operators = random_operators(graph)
    drawn = f" ({', '.join(operators)})" if operators else ""
    name, error = next(iter(random.items()))
    message = (
        f"the original draws random numbers{drawn}: its output {name!r} differs from itself by {error:.2g} of its scale"
        " on the same input, so nothing can be compared; export it in eval mode, or make the random numbers an input"
    )
    unchanged = load(optimised).hash == graph.hash
    if unchanged:
        message += "; this model is the original, unchanged"
    return replace(outcome, ok=unchanged, message=message, random=tuple(random))


def _feed_specs(graph: Graph, seeds: int, given: FeedSpec | None) -> list[FeedSpec]:
    if given is not None and given.npz is not None:
        return [given]
    ranges: dict[str, tuple[float, float]] = {**index_ranges(graph), **(given.input_ranges if given else {})}
    masks = {name: (0, 2) for value in graph.inputs if "mask" in (name := graph.names[value]).lower()}
    first = given.seed if given else 0
    return [FeedSpec(first + i, ranges if i == 0 else {**masks, **ranges}) for i in range(seeds)]


def _judge(findings: Sequence[Finding], tolerance: float) -> Equivalence:
    worst = max((finding.error for finding in findings), default=0.0)
    names = list(dict.fromkeys(finding.output for finding in findings))
    constant = {n for n in names if all(f.original_constant for f in findings if f.output == n)}
    for finding in findings:
        where = f"output {finding.output!r} with seed {finding.seed}"
        if finding.optimised_constant and finding.output not in constant and not finding.original_constant:
            return Equivalence(False, worst, tolerance, f"vacuous: {where} is constant, that of the original is not")
        if finding.problem:
            return Equivalence(False, worst, tolerance, f"{where} {finding.problem}")
    if not worst <= tolerance:
        bad = max(findings, key=lambda finding: finding.error)
        where = f"output {bad.output!r} with seed {bad.seed}"
        message = f"{where} differs by {bad.error:.2g} of its scale, more than {tolerance:.2g}"
        return Equivalence(False, worst, tolerance, message)
    seeds = len({finding.seed for finding in findings})
    message = f"outputs agree on {seeds} inputs within {worst:.2g} of their scale (tolerance {tolerance:.2g})"
    return Equivalence(True, worst, tolerance, message)
