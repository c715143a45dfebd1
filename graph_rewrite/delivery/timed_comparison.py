"""A comparison for which hardly any time is left: one process opens both models once, compares and times them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from graph_rewrite.delivery.comparison_inputs import SEEDS, comparison_inputs
from graph_rewrite.delivery.equivalence import Equivalence, judge_findings
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.latency import Deployment, Latency, OrtMeter, Plan
from graph_rewrite.latency.files import DeployedFile, compare_with_answers
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.runtime import FeedSpec, WorkerClient
from graph_rewrite.runtime.ort_worker.comparison import Finding


def timed_comparison(
    meter: OrtMeter,
    original: Path,
    optimised: Path,
    deployment: Deployment,
    *,
    plan: Plan,
    tolerance: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    data: Sequence[FeedSpec] = (),
) -> tuple[Latency, Equivalence]:
    """Time a model file as deployed and in turn with the original, and compare their outputs on the inputs that every
    comparison must have (`equivalent`). Those runs warm both models up. The original is run with all optimisations of
    its runtime, as it is timed; further inputs are left out.

    Args:
        meter: says how the original is run, on which inputs both are timed, and by which clock.
        plan: of the timing, with as much of it as the time limit leaves.
        tolerance, rtol, atol, data: as in `equivalent`.

    Raises:
        ModelLoadError: the original is no readable ONNX model.
        OutOfTime: the time limit is reached.
    """
    graph = load_once(original)
    limit = default_tolerance(graph, deployment) if tolerance is None else tolerance
    inputs = comparison_inputs(graph, SEEDS, None, data, extremes=True)
    answers = {"feeds": [spec.to_json() for spec in inputs.run], "rtol": rtol, "atol": atol}
    before, after = DeployedFile(original, meter.deployment.plain()), DeployedFile(optimised, deployment)
    with WorkerClient() as worker:
        latency, reply = compare_with_answers(
            before, after, worker, plan=plan, feeds=meter.feeds, clock=meter.clock, answers=answers
        )
    if not latency.ok:
        return latency, Equivalence(False, math.inf, limit, latency.message)
    outcome = judge_findings([Finding(**finding) for finding in reply["findings"]], limit, graph)
    if outcome.ok and (constant := reply["constant"]):
        message = f"vacuous: output {constant[0]!r} is the same on all inputs, and no time was left to look before it"
        return latency, replace(outcome, ok=False, message=message, vacuous=tuple(constant))
    left_out = len(inputs.more) + len(inputs.extra)
    remark = f"; {left_out} of {left_out} further inputs were left out for lack of time" if outcome.ok else ""
    return latency, replace(outcome, message=outcome.message + remark)
