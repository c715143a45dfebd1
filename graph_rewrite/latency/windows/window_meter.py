"""Latency of a difference: only the region in which two graphs differ is timed, cut out of both.

A rewrite that saves 0.2% of a model is lost in the noise of the whole, but is several per cent of the region it
touches. Not exported by the package, which must load without onnx.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Literal, Self

import onnx
import onnxruntime as ort

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.cache import MeasurementCache
from graph_rewrite.latency.device import device_name
from graph_rewrite.latency.lock import MachineLock, unblocked_time
from graph_rewrite.latency.meter import ComparingMeter, MeasurementError
from graph_rewrite.latency.windows.cut import MARGIN, Cut, NotCuttable, cuts
from graph_rewrite.latency.windows.identical import run_alike
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import Block, Deployment, FeedSpec, Plan, Status, WorkerClient, WorkerFailure, estimate

BATCH = Plan(instances=4, min_instances=4, min_pairs=3, max_pairs=12, warmup=1, target_ci_width=0.0, budget_s=0.4)
"""What is timed before asking again whether it is enough: fresh sessions, few pairs each, since sessions differ."""
BUDGET_S = 2.8
CLEAR = 0.05
"""Share of a region's time: a difference whose whole interval lies above is none of noise between two sessions."""
LARGEST = 1 << 28
"""Bytes of weights of a region above which what ONNX Runtime makes of it is not looked at: it would be written out."""
RESOLUTION = 0.002
"""Half-width of the interval, relative to the region's time, below which no more is timed, where no absolute one is
wanted."""

_INTEGERS = frozenset(
    {
        onnx.TensorProto.INT8, onnx.TensorProto.INT16, onnx.TensorProto.INT32, onnx.TensorProto.INT64,
        onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """What a change saves: `seconds` per inference, negative where the graph after is slower, and its 95% interval.

    `sites` counts the regions that changed, `timed` the kinds of regions among them that were timed, `runs` the timed
    runs of each side. `how` says what was timed: `region`, or the whole models where the change cannot be cut out
    (`message` says why); `same` where the graphs do not differ.
    """

    seconds: float
    ci95: tuple[float, float]
    sites: int = 0
    timed: int = 0
    runs: int = 0
    region_seconds: float = 0.0
    """Time of one run of each kind of region before the change, summed up."""
    cost_s: float = 0.0
    """Seconds that the timing took, when it was taken: answers from memory or disk cost what they cost then."""
    how: Literal["region", "whole", "same"] = "region"
    status: Status = "ok"
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def surely_faster(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.ok and self.ci95[0] > 0.0


@dataclass(frozen=True, slots=True)
class _Timing:
    """Seconds saved at one place of a kind, the half-width of its 95% interval, runs and seconds of the region, and
    the seconds that timing it took."""

    seconds: float
    half: float
    runs: int
    region_seconds: float
    cost_s: float = 0.0


class NotTimed(MeasurementError):
    """A window cannot be written, opened or run by itself."""


class RegionalMeter:
    """Times what differs between two graphs, and nothing else, in a worker process.

    Each kind of changed region is cut out of both graphs with a margin of neighbours and timed in turn, in batches of
    fresh sessions, in both orders, until its interval is as narrow as wanted or the budget is spent. Where the first
    batch finds no clear difference and ONNX Runtime makes the same of both, the difference is none. Of k alike places
    one is timed and counts k times, with k times its interval; kinds of regions add up. The same kind of region with
    other weights is answered from memory, the same region with the same weights from `cache`.

    What it cannot see: caches that the rest of the model fills, memory bandwidth that weights of other layers take, and
    optimisations of ONNX Runtime that reach farther than the margin, such as the blocked layout of a whole network.
    Use it to screen and to rank; results are validated end to end.

    With one thread on the CPU, times are those of the thread itself, so that other load on the machine counts only by
    what it takes from caches; else they are wall-clock.

    Args:
        deployment: how the graphs are run, without the optimisers they refuse themselves.
        workspace: folder for the files of the regions, removed after use.
        whole: times differences that cannot be cut out; without it these have status `error`.
        margin: neighbours that are cut out with a region, in each direction.
        resolution_s: half-width in seconds per inference at which a difference is known well enough, for instance
            0.1% of the model's latency; by default 0.2% of each region's time.
        budget_s: seconds for all regions of a difference together: no further batch is begun that would take longer.
        exchange: time each batch in both orders. Without it a batch takes half the time and may be wrong by a percent.
    """

    def __init__(
        self,
        deployment: Deployment | None = None,
        *,
        workspace: str | os.PathLike[str],
        whole: ComparingMeter | None = None,
        margin: int = MARGIN,
        resolution_s: float | None = None,
        budget_s: float = BUDGET_S,
        exchange: bool = True,
        plan: Plan = BATCH,
        cache: MeasurementCache | None = None,
        timeout_s: float = 30.0,
        memory_limit_mb: int | None = None,
        lock_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if margin < 0 or budget_s < 0 or (resolution_s is not None and resolution_s <= 0):
            raise ValueError("RegionalMeter: margin and budget_s must not be negative, resolution_s must be positive")
        self.deployment = deployment if deployment is not None else Deployment()
        self.workspace = Path(workspace)
        self.margin, self.resolution_s, self.budget_s, self.plan = margin, resolution_s, budget_s, plan
        self.exchange = exchange
        self._whole = whole
        self._cache = cache
        self._worker = WorkerClient(timeout_s=timeout_s, memory_limit_mb=memory_limit_mb)
        self._lock = MachineLock(lock_path)
        self._memo: dict[tuple[str, str], _Timing] = {}
        self._measurements = 0

    @property
    def measurements(self) -> int:
        """How many kinds of regions were really timed."""
        return self._measurements

    def difference(self, before: Graph, after: Graph) -> Difference:
        """Seconds per inference that `after` saves over `before`. Both must come from one graph by rewrites."""
        if before.hash == after.hash:
            return Difference(0.0, (0.0, 0.0), how="same")
        try:
            found = cuts(before, after, self.margin)
            return self._sum(found)
        except (NotCuttable, NotTimed) as error:
            return self._end_to_end(before, after, str(error))

    def time(self, cut: Cut, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        """The difference at the places of one kind of region; `anew` times it whatever is known already."""
        timing = self._timing(cut, self.budget_s if budget_s is None else budget_s, 1, anew=anew)
        return _total([(cut.count, timing)])

    def close(self) -> None:
        """Ends the worker; a later measurement starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sum(self, found: list[Cut]) -> Difference:
        started = unblocked_time()
        timings: list[tuple[int, _Timing]] = []
        for i, cut in enumerate(found):
            left = max(0.0, self.budget_s - (unblocked_time() - started)) / (len(found) - i)
            timings.append((cut.count, self._timing(cut, left, len(found))))
        return _total(timings)

    def _timing(self, cut: Cut, budget_s: float, kinds: int, *, anew: bool = False) -> _Timing:
        deployment = self.deployment.with_disabled(cut.before.disabled_optimizers)
        key, disk_key = (cut.key, deployment.key), self._disk_key(cut, deployment)
        known = None if anew else self._memo.get(key)
        if known is None and not anew and self._cache is not None and (stored := self._cache.get(disk_key)) is not None:
            known = _Timing(**stored)
        if known is None:
            begin = unblocked_time()
            known = self._measure(cut, deployment, budget_s, kinds, anew)
            known = replace(known, cost_s=unblocked_time() - begin)
            if self._cache is not None and not anew:
                self._cache.put(disk_key, asdict(known))
        self._memo[key] = known
        return known

    def _disk_key(self, cut: Cut, deployment: Deployment) -> Mapping[str, Any]:
        return {
            "kind": "region, timed unless alike",
            "before": cut.before.hash,
            "after": cut.after.hash,
            "deployment": deployment.key,
            "device": device_name(deployment.provider),
            "onnxruntime": ort.__version__,
            "plan": [self.plan.key, self.budget_s, self.resolution_s, *([] if self.exchange else ["one order"])],
        }

    def _measure(self, cut: Cut, deployment: Deployment, budget_s: float, kinds: int, anew: bool) -> _Timing:
        """Batches until the interval is narrow enough or the budget is spent, or nothing differs."""
        self._measurements += 1
        feeds = _feeds(cut)
        started, blocks, plan = unblocked_time(), list[Block](), self.plan
        paths: list[Path] = []
        try:
            while True:
                begin, first = unblocked_time(), not blocks
                with self._lock:
                    paths = paths or [materialize(graph, self.workspace) for graph in (cut.before, cut.after)]
                    blocks += self._batch(paths, deployment, feeds, plan)
                    # The same again with the sides exchanged: where a session's memory lies depends on its turn, from
                    # batch to batch alike, and would pass for a difference.
                    exchanged = self._batch(paths[::-1], deployment, feeds, plan) if self.exchange else []
                    blocks += [Block(block.candidate, block.baseline, block.repeats) for block in exchanged]
                timing = _timing_of(blocks)
                if first and not anew and self._is_none(timing, cut, paths, deployment):
                    return replace(timing, seconds=0.0, half=0.0)
                wanted = RESOLUTION * timing.region_seconds
                if self.resolution_s is not None:
                    # Independent kinds of regions add up in squares.
                    wanted = self.resolution_s / (cut.count * math.sqrt(kinds))
                now = unblocked_time()
                left = int(plan.instances * (budget_s - (now - started)) / (now - begin))
                if timing.half <= wanted or left < 1:
                    return timing
                # As many sessions as the rest of the budget has time for.
                most = min(left, self.plan.instances)
                plan = replace(self.plan, instances=most, min_instances=min(most, self.plan.min_instances))
        except OSError as error:
            raise NotTimed(f"a region cannot be written into {self.workspace}: {error}") from error
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    def _is_none(self, timing: _Timing, cut: Cut, paths: list[Path], deployment: Deployment) -> bool:
        """Whether what was timed is noise: the same runs for both."""
        if abs(timing.seconds) - timing.half > CLEAR * timing.region_seconds:
            return False
        if any(weight_bytes(graph) > LARGEST for graph in (cut.before, cut.after)):
            return False
        return run_alike(self._worker, paths, deployment)

    def _batch(self, paths: list[Path], deployment: Deployment, feeds: FeedSpec, plan: Plan) -> list[Block]:
        sides = [{"path": str(path), "deployment": deployment.to_json()} for path in paths]
        request = {
            "kind": "compare",
            "baseline": sides[0],
            "candidate": sides[1],
            "feeds": feeds.to_json(),
            "plan": plan.to_json(),
            # One thread's own time leaves out what else the machine runs.
            "clock": "cpu" if deployment.provider == "cpu" and deployment.threads == 1 else "wall",
        }
        try:
            reply = self._worker.request(request)
        except WorkerFailure as failure:
            raise NotTimed(f"a region cannot be timed by itself: {failure.message}") from failure
        if reply["status"] != "ok":
            raise NotTimed(f"a region cannot be timed by itself: {reply['message']}")
        return [Block(tuple(one), tuple(other), repeats) for one, other, repeats in reply["blocks"]]

    def _end_to_end(self, before: Graph, after: Graph, reason: str) -> Difference:
        if self._whole is None:
            return Difference(0.0, (-math.inf, math.inf), how="whole", status="error", message=reason)
        latency = self._whole.compare(before, after, "full")
        if not latency.ok:
            limits = (-math.inf, math.inf)
            return Difference(0.0, limits, how="whole", status=latency.status, message=f"{reason}; {latency.message}")
        base = latency.baseline_ms / 1e3
        low, high = (base * (1.0 - 1.0 / speedup) if speedup > 0 else -math.inf for speedup in latency.ci95)
        saved = base * (1.0 - 1.0 / latency.speedup)
        return Difference(saved, (low, high), 1, 1, latency.runs, base, how="whole", message=f"end to end: {reason}")


def _feeds(cut: Cut) -> FeedSpec:
    """Integers in range of the tables they index, and else 1: they may be divisors, or sizes."""
    ranges: dict[str, tuple[float, float]] = {}
    for graph in (cut.before, cut.after):
        integers = [v for v in graph.inputs if (type := graph.types[v]) is not None and type.dtype in _INTEGERS]
        ranges |= {graph.names[value]: (1, 2) for value in integers}
    for graph in (cut.before, cut.after):
        ranges |= index_ranges(graph)
    return FeedSpec(input_ranges=ranges)


def _timing_of(blocks: list[Block]) -> _Timing:
    found = estimate(blocks)
    base = median(seconds for block in blocks for seconds in block.baseline)
    low, high = (base * (1.0 - 1.0 / speedup) if speedup > 0 else -math.inf for speedup in (found.low, found.high))
    runs = sum(len(block.baseline) * block.repeats for block in blocks)
    return _Timing(base * (1.0 - 1.0 / found.speedup), (high - low) / 2, runs, base)


def _total(timings: list[tuple[int, _Timing]]) -> Difference:
    seconds = sum(count * timing.seconds for count, timing in timings)
    half = math.hypot(*(count * timing.half for count, timing in timings)) if timings else 0.0
    return Difference(
        seconds,
        (seconds - half, seconds + half),
        sites=sum(count for count, _ in timings),
        timed=len(timings),
        runs=sum(timing.runs for _, timing in timings),
        region_seconds=sum(timing.region_seconds for _, timing in timings),
        cost_s=sum(timing.cost_s for _, timing in timings),
    )
