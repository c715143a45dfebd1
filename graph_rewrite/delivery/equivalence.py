"""Comparison of an optimised model with the original: both run in ONNX Runtime, the original with all its optimisations
off, the optimised one as it will be deployed."""

from __future__ import annotations

import json
import math
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.leaf_process import describe_exit, leaf_command, leaf_environment
from graph_rewrite.runtime.ort_worker.comparison import Finding
from graph_rewrite.system.deadline import check_time, seconds_left

TIMEOUT_S = 900.0
"""For opening both models and running each on all inputs."""

# Unit roundoff, and how many of them an operator may contribute. Sums of products are accumulated in float32 whatever
# the type of their operands, so low precision allows fewer. Measured on whole models in float32, in unit roundoffs:
# up to 130 for Winograd's F(4,4), 500 for one-dimensional Toom-Cook with m = 4 (relative to the output's scale).
_PRECISION: dict[int, tuple[float, float]] = {
    TensorProto.DOUBLE: (2.0**-53, 4096.0),
    TensorProto.FLOAT: (2.0**-24, 256.0),
    TensorProto.FLOAT16: (2.0**-11, 8.0),
    TensorProto.BFLOAT16: (2.0**-8, 4.0),
}
# ONNX Runtime multiplies float32 matrices on CUDA in TF32, with 10 bits of mantissa.
_TF32 = (2.0**-11, 4.0)
_FREE_DEPTH = 8


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The outcome of a comparison. `max_rel_error` is the largest difference of any output, relative to the largest
    magnitude in that output of the original."""

    ok: bool
    max_rel_error: float
    tolerance: float
    message: str


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
    magnitude; integers, booleans and strings must be equal; NaN and infinities must stand in the same places. Both
    run in a process of their own: a crash, a hang or a failure of either is an outcome, not an exception.

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
    request = {
        "original": os.fspath(original),
        "optimised": os.fspath(optimised),
        "deployment": deployment.to_json(),
        "feeds": [spec.to_json() for spec in _feed_specs(graph, seeds, feeds)],
    }
    try:
        findings = _compare_in_process(request)
    except _ComparisonError as error:
        return Equivalence(False, math.inf, limit, str(error))
    return _judge(findings, limit)


def default_tolerance(graph: Graph, deployment: Deployment) -> float:
    """Return the relative error that rounding may cause: c u sqrt(8 + depth).

    u is the unit roundoff of the least precise floating-point type in the graph (that of TF32 for float32 on CUDA), c a
    factor per type, and depth the number of operators on the longest path: independent roundings add up like a random
    walk. In float32 that is 5e-5 for a single operator and 2e-4 for BERT-base.
    """
    unit, factor = _coarsest(graph, deployment)
    return factor * unit * math.sqrt(_FREE_DEPTH + depth(graph))


def is_single_or_finer(graph: Graph, deployment: Deployment) -> bool:
    """Return whether everything in the graph is computed in float32 or float64, not in a coarser type or in TF32."""
    return _coarsest(graph, deployment)[0] <= _PRECISION[TensorProto.FLOAT][0]


def _coarsest(graph: Graph, deployment: Deployment) -> tuple[float, float]:
    """Unit roundoff and factor of the least precise floating-point type."""
    types = [*graph.types.values(), *(constant.type for constant in graph.constants.values())]
    present = {type.dtype for type in types if type is not None} & set(_PRECISION)
    unit, factor = max((_PRECISION[dtype] for dtype in present), default=_PRECISION[TensorProto.FLOAT])
    if deployment.provider == "cuda" and TensorProto.FLOAT in present:
        unit, factor = max((unit, factor), _TF32)
    return unit, factor


def depth(graph: Graph) -> int:
    """Return the number of operators on the longest path."""
    longest: dict[int, int] = {}
    for node in graph.order():
        before = max((longest.get(value, 0) for value in node.inputs if value is not None), default=0)
        longest.update(dict.fromkeys(node.outputs, before + 1))
    return max(longest.values(), default=0)


def _feed_specs(graph: Graph, seeds: int, given: FeedSpec | None) -> list[FeedSpec]:
    if given is not None and given.npz is not None:
        return [given]
    ranges: dict[str, tuple[float, float]] = {**index_ranges(graph), **(given.input_ranges if given else {})}
    masks = {name: (0, 2) for value in graph.inputs if "mask" in (name := graph.names[value]).lower()}
    first = given.seed if given else 0
    return [FeedSpec(first + i, ranges if i == 0 else {**masks, **ranges}) for i in range(seeds)]


class _ComparisonError(RuntimeError):
    """The comparison did not come to an end."""


def _compare_in_process(request: Mapping[str, object]) -> list[Finding]:
    with tempfile.TemporaryDirectory(prefix="rewritegym-verify-") as folder:
        report = Path(folder, "findings")
        command = leaf_command("ort_worker.comparison", [json.dumps(request), str(report)])
        check_time()
        patience = min(TIMEOUT_S, seconds_left())
        try:
            ended = subprocess.run(command, capture_output=True, text=True, env=leaf_environment(), timeout=patience)
        except subprocess.TimeoutExpired as error:
            check_time()
            raise _ComparisonError(f"no end after {TIMEOUT_S:g} s ({_last_stage(report)})") from error
        messages = _messages(report)
        last: dict[str, Any] = messages[-1] if messages else {}
        if "findings" in last:
            return [Finding(**finding) for finding in last["findings"]]
        stage = _last_stage(report)
        if "error" in last:
            raise _ComparisonError(f"{stage}: {last['error']}")
        words = " / ".join(ended.stderr.strip().splitlines()[-3:])
        raise _ComparisonError(f"{stage}: ONNX Runtime crashed ({describe_exit(ended.returncode)}) {words}".strip())


def _messages(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def _last_stage(report: Path) -> str:
    stages = [str(message["stage"]) for message in _messages(report) if "stage" in message]
    return stages[-1] if stages else "start"


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
    if constant:
        listed = ", ".join(sorted(constant))
        message += f"; vacuous for {listed}, constant in the original too: there agreement proves little"
    return Equivalence(True, worst, tolerance, message)
