"""The control `best-runtime`: `rewritegym optimize --provider best`, which searches in ONNX Runtime and in OpenVINO and
deploys the faster result."""

from __future__ import annotations

from agents.optimization.options import BEST, OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from benchmarks.protocol.searches.runs import Run, located

FASTER_RUNTIME = "best-runtime"
"""The name of the control, in the place of an agent's."""


def optimized_in_each_runtime(run: Run) -> Optimization:
    """Search in both runtimes of the CPU within the time of a run, under the conditions of all runs: no earlier result
    is known, and weights have no price.

    Raises:
        UserError: OpenVINO does not go with the run's settings.
        MachineError: OpenVINO is not installed, or the model cannot be measured in either runtime.
    """
    options = OptimizeOptions(
        provider=BEST, time_limit=f"{run.budget_s:g}s", threads=str(run.threads), memory=False, size_price=0.0,
        seed=run.seed,
    )  # fmt: skip
    return optimize_model(located(run.model, run.batch), options)
