"""Differences in time between two graphs, and their confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, Self

from graph_rewrite.latency.meter import Latency
from graph_rewrite.runtime import Block, Status, estimate


@dataclass(frozen=True, slots=True)
class Difference:
    """The time that a change saves: `seconds` per inference, negative where the graph after it is slower.

    `ci95` is the 95% confidence interval of `seconds`. `sites` counts the windows that changed, `timed` the kinds of
    windows among them that were timed, `runs` the timed runs of each side. `how` names what was timed: each `window`;
    the `whole` models, where the change cannot be timed apart (`message` gives the reason); or nothing, where the
    graphs are the `same`.
    """

    seconds: float
    ci95: tuple[float, float]
    sites: int = 0
    timed: int = 0
    runs: int = 0
    window_seconds: float = 0.0
    """Time of one run of each kind of window before the change, summed up."""
    cost_s: float = 0.0
    """Seconds that the timing took when it was taken: answers from memory or disk cost what they cost then."""
    how: Literal["window", "whole", "same"] = "window"
    status: Status = "ok"
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def half(self) -> float:
        """Return the half-width of `ci95`, in seconds."""
        return (self.ci95[1] - self.ci95[0]) / 2

    @property
    def surely_faster(self) -> bool:
        """True where the whole interval lies above 0."""
        return self.ok and self.ci95[0] > 0.0


@dataclass(frozen=True, slots=True)
class WindowTiming:
    """The timing of one window: seconds saved, the half-width of their 95% interval, runs of each side, seconds of one
    run before the change, and the seconds that the timing took."""

    seconds: float
    half: float
    runs: int
    window_seconds: float
    cost_s: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain values for the cache on disk, which calls the seconds of a window `region_seconds`."""
        return {
            "seconds": self.seconds,
            "half": self.half,
            "runs": self.runs,
            "region_seconds": self.window_seconds,
            "cost_s": self.cost_s,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`."""
        return cls(
            values["seconds"], values["half"], values["runs"], values["region_seconds"], values.get("cost_s", 0.0)
        )


def timing_of(blocks: Sequence[Block]) -> WindowTiming:
    """Return the timing of a window from blocks of timed runs."""
    found = estimate(blocks)
    base = median(seconds for block in blocks for seconds in block.baseline)
    low, high = (_saved(base, speedup) for speedup in (found.low, found.high))
    runs = sum(len(block.baseline) * block.repeats for block in blocks)
    return WindowTiming(_saved(base, found.speedup), (high - low) / 2, runs, base)


def total(timings: Sequence[tuple[int, WindowTiming]]) -> Difference:
    """Add up kinds of windows, each with the number of its sites: independent errors add up in squares."""
    seconds = sum(count * timing.seconds for count, timing in timings)
    half = math.hypot(*(count * timing.half for count, timing in timings)) if timings else 0.0
    return Difference(
        seconds,
        (seconds - half, seconds + half),
        sites=sum(count for count, _ in timings),
        timed=len(timings),
        runs=sum(timing.runs for _, timing in timings),
        window_seconds=sum(timing.window_seconds for _, timing in timings),
        cost_s=sum(timing.cost_s for _, timing in timings),
    )


def of_whole_models(latency: Latency | None, reason: str) -> Difference:
    """Return the difference of two whole models, timed in turn; `latency` is None where no meter can do so.

    Args:
        reason: the reason why the change could not be timed apart.
    """
    unknown = (-math.inf, math.inf)
    if latency is None:
        return Difference(0.0, unknown, how="whole", status="error", message=reason)
    if not latency.ok:
        return Difference(0.0, unknown, how="whole", status=latency.status, message=f"{reason}; {latency.message}")
    base = latency.baseline_ms / 1e3
    low, high = (_saved(base, speedup) for speedup in latency.ci95)
    saved, message = _saved(base, latency.speedup), f"end to end: {reason}"
    return Difference(saved, (low, high), 1, 1, latency.runs, base, how="whole", message=message)


def _saved(base: float, speedup: float) -> float:
    """Seconds that a speed-up takes off `base`; minus infinity for a speed-up of 0."""
    return base * (1.0 - 1.0 / speedup) if speedup > 0 else -math.inf
