"""The cost model of TASO: a graph costs the sum of what its operators cost alone.

Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", SOSP'19,
section 5: each operator is measured once per configuration on the hardware, and the graph's cost is their sum. It
is cheap, since candidates share nearly all operators, and it sees neither fusion nor layout nor caches.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Literal, Self

from graph_rewrite.latency.cache import MeasurementCache
from graph_rewrite.latency.device import device_key
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.latency.meter import BaselineError, Effort, Latency, Measurable
from graph_rewrite.latency.models import operator_model
from graph_rewrite.latency.operator_spec import OperatorSpec
from graph_rewrite.runtime import (
    PROTOCOL,
    Deployment,
    FeedSpec,
    Plan,
    Status,
    WorkerClient,
    WorkerFailure,
    median_standard_error,
    runtime_of,
)

# Hundreds of operators are timed for one search: a few milliseconds each.
OPERATOR_PLAN = Plan(min_pairs=3, max_pairs=20, warmup=1, target_ci_width=0.1, budget_s=0.03)

_FLOAT = 1  # onnx.TensorProto.FLOAT
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})  # onnx.TensorProto.INT8 to INT64 and UINT8 to UINT64
_NOTHING = OperatorSpec("Identity", "", {}, ((_FLOAT, (1,)),), ((_FLOAT, (1,)),), opset=16)
_LEAST_MS = 1e-4  # no operator is dispatched in less; keeps ratios finite
_Z = 1.96
_INDEXED = {"Gather": 1, "GatherElements": 1}
"""Operators with an input of indices: its position. Spread over the whole axis, as caches feel the difference."""


@dataclass(frozen=True)
class OperatorCost:
    """The time of one operator alone, in milliseconds; `relative_error` is a standard error."""

    ms: float
    relative_error: float = 0.0
    runs: int = 0
    status: Status = "ok"
    message: str = ""


class OperatorCostMeter:
    """Sums up operator costs and compares the sums of a graph and the baseline.

    `operators` gives the operators of a graph. Each distinct one is timed once, as a model of one node in a worker
    process, with the baseline's plain deployment, and remembered in memory and in `cache`. What a session run costs by
    itself (measured with an Identity of one element) is taken off. Views, such as a Reshape, are not timed: inside a
    model they cost no more than their dispatch. With the clock `cpu` only what the thread computes counts, for a
    machine that runs other things too. `speedup` is the ratio of the sums, and `ci95` follows from the errors of those
    operators whose number differs.
    """

    def __init__(
        self,
        baseline: Measurable,
        operators: Callable[[Measurable], Iterable[OperatorSpec]],
        deployment: Deployment | None = None,
        *,
        workspace: str | os.PathLike[str],
        cache: MeasurementCache | None = None,
        plan: Plan = OPERATOR_PLAN,
        timeout_s: float = 30.0,
        memory_limit_mb: int | None = None,
        lock_path: str | os.PathLike[str] | None = None,
        clock: Literal["wall", "cpu"] = "wall",
    ) -> None:
        self.baseline = baseline
        self.clock = clock
        self.deployment = (deployment if deployment is not None else Deployment()).plain()
        self.workspace = Path(workspace)
        self.plan = plan
        self._operators = operators
        self._cache = cache
        self._worker = WorkerClient(timeout_s=timeout_s, memory_limit_mb=memory_limit_mb)
        self._lock = MachineLock(lock_path)
        self._costs: dict[str, OperatorCost] = {}
        self._empty_run: OperatorCost | None = None
        self._measurements = 0

    @property
    def measurements(self) -> int:
        """Number of operators that were really timed."""
        return self._measurements

    def measure(self, graph: Measurable, effort: Effort = "screen") -> Latency:
        """Return the sum over the operators of `graph`, for any effort. Raises BaselineError, as `OrtMeter` does."""
        baseline_counts, failed = self._price(self.baseline)
        if failed is not None:
            raise BaselineError(f"an operator of the baseline cannot be timed alone: {failed.message}")
        counts, failed = self._price(graph)
        if failed is not None:
            return Latency.failed(failed.status, failed.message)
        return self._latency(baseline_counts, counts)

    def cost(self, spec: OperatorSpec) -> OperatorCost:
        """Return the cost of one operator; zero when it is computed once, as the model is opened."""
        if spec.is_constant:
            return OperatorCost(0.0)
        known = self._costs.get(spec.key)
        if known is None:
            known = OperatorCost(_LEAST_MS) if spec.is_view else self._stored(spec) or self._net(spec)
            self._costs[spec.key] = known
        return known

    def is_known(self, spec: OperatorSpec) -> bool:
        """Return whether `cost` answers without timing anything."""
        return spec.is_constant or spec.is_view or spec.key in self._costs or self._stored(spec) is not None

    def close(self) -> None:
        """End the worker; a later measurement starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _price(self, graph: Measurable) -> tuple[Counter[str], OperatorCost | None]:
        """Count the operators that cost anything, and return the first one that could not be timed."""
        counts: Counter[str] = Counter()
        for spec in self._operators(graph):
            cost = self.cost(spec)
            if cost.status != "ok":
                return counts, cost
            if not spec.is_constant:
                counts[spec.key] += 1
        return counts, None

    def _latency(self, baseline: Counter[str], candidate: Counter[str]) -> Latency:
        baseline_ms, candidate_ms = self._sum(baseline), self._sum(candidate)
        # First-order error of log(baseline / candidate): an operator in both sums moves both alike.
        variance = 0.0
        for key in baseline.keys() | candidate.keys():
            share = baseline[key] / baseline_ms - candidate[key] / candidate_ms
            variance += (share * self._costs[key].ms * self._costs[key].relative_error) ** 2
        speedup, half = baseline_ms / candidate_ms, _Z * math.sqrt(variance)
        return Latency(
            ms=candidate_ms,
            speedup=speedup,
            ci95=(speedup * math.exp(-half), speedup * math.exp(half)),
            runs=sum(self._costs[key].runs for key in candidate),
            baseline_ms=baseline_ms,
        )

    def _sum(self, counts: Counter[str]) -> float:
        return max(_LEAST_MS, sum(number * self._costs[key].ms for key, number in counts.items()))

    def _stored(self, spec: OperatorSpec) -> OperatorCost | None:
        values = self._cache.get(self._disk_key(spec)) if self._cache is not None else None
        return None if values is None else OperatorCost(values["ms"], values["relative_error"], values["runs"])

    def _disk_key(self, spec: OperatorSpec) -> dict[str, Any]:
        return {
            "kind": "operator",
            "operator": spec.key,
            "deployment": self.deployment.key,
            **device_key(self.deployment.provider),
            **runtime_of(self.deployment.provider).version(),
            "plan": self.plan.key,
            **({"inputs": PROTOCOL} if _indices(spec) else {}),
            **({} if self.clock == "wall" else {"clock": self.clock}),
        }

    def _net(self, spec: OperatorSpec) -> OperatorCost:
        """Time an operator and take off what a run of a session costs by itself."""
        if self._empty_run is None:
            empty = self._time(_NOTHING)
            if empty.status != "ok":
                return empty
            self._empty_run = empty
        gross, empty = self._time(spec), self._empty_run
        if gross.status != "ok":
            return gross
        ms = max(_LEAST_MS, gross.ms - empty.ms)
        error = math.hypot(gross.relative_error * gross.ms, empty.relative_error * empty.ms) / ms
        net = OperatorCost(ms, error, gross.runs)
        if self._cache is not None:
            values = {"ms": net.ms, "relative_error": net.relative_error, "runs": net.runs, "op": spec.op}
            self._cache.put(self._disk_key(spec), values)
        return net

    def _time(self, spec: OperatorSpec) -> OperatorCost:
        name = f"{spec.domain}::{spec.op}" if spec.domain else spec.op
        with self._lock:
            path = self.workspace / f"operator-{spec.key[:32]}.onnx"
            try:
                path.write_bytes(operator_model(spec).SerializeToString())
                self._measurements += 1
                reply = self._worker.request(self._request(path, spec))
            except (OSError, ValueError) as error:
                return OperatorCost(math.inf, status="error", message=f"{name}: {error}")
            except WorkerFailure as failure:
                return OperatorCost(math.inf, status=failure.status, message=f"{name}: {failure.message}")
            finally:
                path.unlink(missing_ok=True)
        if reply["status"] != "ok":
            return OperatorCost(math.inf, status=reply["status"], message=f"{name}: {reply['message']}")
        samples = reply["samples"]
        spread = median_standard_error([math.log(sample) for sample in samples])
        runs = len(samples) * reply["repeats"]
        return OperatorCost(1e3 * median(samples), spread if math.isfinite(spread) else 0.0, runs)

    def _request(self, path: Path, spec: OperatorSpec) -> dict[str, Any]:
        return {
            "kind": "time",
            "candidate": {"path": str(path), "deployment": self.deployment.to_request()},
            "feeds": FeedSpec(input_ranges=_index_ranges(spec), rotated=_indices(spec)).to_json(),
            "plan": self.plan.to_json(),
            "clock": self.clock,
        }


def _indices(spec: OperatorSpec) -> tuple[str, ...]:
    """Return the input that is looked up in a table, which changes from run to run. Others are activations: in a model
    the operator before has just written them, and they are in the caches."""
    position = _INDEXED.get(spec.op)
    return () if position is None or position in spec.constant_inputs else (f"i{position}",)


def _index_ranges(spec: OperatorSpec) -> dict[str, tuple[float, float]]:
    """Ranges for integer inputs: valid as indices for any operator, and all over the axis where we know which."""
    ranges: dict[str, tuple[float, float]] = {
        f"i{index}": (0, 2) for index, kind in enumerate(spec.input_types) if kind is not None and kind[0] in _INTEGERS
    }
    position, data = _INDEXED.get(spec.op), spec.input_types[0] if spec.input_types else None
    if position is not None and data is not None and data[1]:
        ranges[f"i{position}"] = (0, data[1][int(spec.attrs.get("axis", 0))])
    return ranges
