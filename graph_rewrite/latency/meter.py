"""The interface of latency meters: what they measure, the Latency that they give, and what some can do besides.

Every meter is a `LatencyMeter`. A meter that can do more has the methods of `ConfirmingMeter`, `ComparingMeter` or
`InspectingMeter`; callers ask with `isinstance`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, Self, runtime_checkable

from graph_rewrite.errors import MachineError
from graph_rewrite.runtime import Deployment, Plan, Status

Effort = Literal["screen", "full"]


@runtime_checkable
class Measurable(Protocol):
    """A graph as the meters see it: what identifies it, and how it asks to be run."""

    @property
    def hash(self) -> str:
        """Canonical structural hash, hexadecimal."""
        ...

    @property
    def disabled_optimizers(self) -> frozenset[str]:
        """ONNX Runtime optimisers refused for this model."""
        ...

    @property
    def session_settings(self) -> tuple[tuple[str, bool | int | str], ...]:
        """Session settings of ONNX Runtime that this model asks for, by name."""
        ...


Materialize = Callable[[Measurable, Path], Path]
"""Writes a graph as an ONNX file into a directory and returns the file's path; external data lie in that directory."""


class MeasurementError(MachineError):
    """A graph cannot be written, opened or run by itself in ONNX Runtime, so that it has no latency."""


class BaselineError(MachineError):
    """The baseline itself cannot be measured, so no speed-up can be given; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Latency:
    """One measurement of a candidate against the baseline. A candidate that failed is a value too, with `status` set.

    `ms` and `baseline_ms` are medians in milliseconds of all timed runs of each side. `speedup` is baseline over
    candidate (above 1 is faster), from pairs of runs that were timed next to each other, so it is not exactly
    `baseline_ms / ms`. `ci95` is the 95% interval of `speedup`; `runs` counts the timed runs of the candidate.
    """

    ms: float
    speedup: float
    ci95: tuple[float, float]
    runs: int
    baseline_ms: float
    status: Status = "ok"
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def lower_bound(self) -> float:
        """The lower bound of the 95% confidence interval of the speed-up.

        Results are ranked by it: of many measured graphs the one that seems fastest is often the one with the widest
        interval.
        """
        return self.ci95[0]

    @classmethod
    def failed(cls, status: Status, message: str) -> Self:
        """Return the result of a candidate that could not be timed: infinitely slow, speed-up 0."""
        return cls(math.inf, 0.0, (0.0, 0.0), 0, math.nan, status, message)

    def to_json(self) -> dict[str, Any]:
        """Plain values; the infinite `ms` of a failed candidate becomes None, as JSON has no infinity."""
        values = asdict(self)
        for name in ("ms", "baseline_ms"):
            values[name] = values[name] if math.isfinite(values[name]) else None
        values["ci95"] = list(self.ci95)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`; raises KeyError, TypeError or ValueError on anything else."""
        low, high = values["ci95"]
        return cls(
            ms=math.inf if values["ms"] is None else float(values["ms"]),
            speedup=float(values["speedup"]),
            ci95=(float(low), float(high)),
            runs=int(values["runs"]),
            baseline_ms=math.nan if values["baseline_ms"] is None else float(values["baseline_ms"]),
            status=values["status"],
            message=str(values["message"]),
        )


class LatencyMeter(Protocol):
    """Times graphs against the baseline that it was made for."""

    @property
    def measurements(self) -> int:
        """Number of measurements that were really taken, those answered from memory or disk not counted."""
        ...

    def measure(self, graph: Measurable, effort: Effort = "screen") -> Latency:
        """Return the latency of `graph`; the same graph and effort give the same value for the life of the meter."""
        ...

    def close(self) -> None:
        """End the worker and free what the meter holds; harmless when called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class ConfirmingMeter(Protocol):
    """A meter that can measure a graph anew. Of other meters the first full measurement counts."""

    def confirm(self, graph: Measurable, plan: Plan | None = None) -> Latency:
        """Take a full measurement, or one by `plan`, whatever is known already."""
        ...


@runtime_checkable
class ComparingMeter(Protocol):
    """A meter that can compare any two graphs. Other meters know graphs against the baseline only."""

    def compare(self, reference: Measurable, candidate: Measurable, plan: Plan | None = None) -> Latency:
        """Return the speed-up of `candidate` over `reference`, timed in turn; with a plan, anew, whatever is known."""
        ...


@runtime_checkable
class InspectingMeter(Protocol):
    """A meter that can tell what ONNX Runtime makes of a graph."""

    def active_optimizers(self, graph: Measurable) -> frozenset[str]:
        """Return the optimisers of ONNX Runtime that change a graph as deployed.

        Raises:
            MeasurementError: the graph cannot be written or opened.
        """
        ...


@runtime_checkable
class FileMeter(Protocol):
    """A meter that times model files itself. Of an `OrtMeter` the files are timed in a fresh worker
    (`latency.files.deployed_latency`)."""

    def compare_files(self, original: Path, optimised: Path, deployment: Deployment, plan: Plan) -> Latency:
        """Return the speed-up of a file, opened with `deployment`, over the original, opened as anybody would."""
        ...
