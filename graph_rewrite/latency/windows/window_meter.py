"""A meter for small differences: only the windows in which two graphs differ are timed, taken out of both.

A rewrite that saves 0.2% of a model is lost in the noise of the whole, but is several per cent of its window.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.cache import MeasurementCache
from graph_rewrite.latency.device import device_key
from graph_rewrite.latency.lock import MachineLock, unblocked_time
from graph_rewrite.latency.meter import ComparingMeter, MeasurementError
from graph_rewrite.latency.windows.difference import Difference, WindowTiming, of_whole_models, timing_of, total
from graph_rewrite.latency.windows.extraction import NotSeparable
from graph_rewrite.latency.windows.identical import run_alike
from graph_rewrite.latency.windows.window import MARGIN, WindowPair, changed_windows
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import PROTOCOL, Block, Deployment, FeedSpec, Plan, WorkerClient, WorkerFailure, runtime_of

BATCH = Plan(instances=4, min_instances=4, min_pairs=3, max_pairs=12, warmup=1, target_ci_width=0.0, budget_s=0.4)
"""The plan of one batch, after which the meter decides whether to time another: fresh sessions and few pairs each,
since sessions differ."""
BUDGET_S = 2.8
"""Seconds for all windows of a difference together."""
CLEAR = 0.05
"""Share of a window's time: a difference whose whole interval lies above it is no noise between two sessions."""
LARGEST = 1 << 28
"""Bytes of weights of a window above which the meter does not look at what ONNX Runtime makes of it: that would be
written out."""
RESOLUTION = 0.002
"""Half-width of the interval, relative to the window's time, at which timing ends where no absolute one is wanted."""

Sides = tuple[Deployment, Deployment]
"""Deployments of a window before and after a change."""

_INTEGERS = frozenset(
    {
        onnx.TensorProto.INT8, onnx.TensorProto.INT16, onnx.TensorProto.INT32, onnx.TensorProto.INT64,
        onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64,
    }
)  # fmt: skip


class NotTimed(MeasurementError):
    """A window cannot be written, opened or run by itself."""


class WindowMeter:
    """Times what differs between two graphs, and nothing else, in a worker process.

    Each kind of changed window is taken out of both graphs with a margin of neighbours. Both sides are timed in turn,
    in batches of fresh sessions and in both orders, until the interval is as narrow as wanted or the budget is spent.
    Where the first batch finds no clear difference and ONNX Runtime makes the same of both sides, the difference is 0.
    Of k alike sites one is timed and counts k times, with k times its interval; kinds of windows add up. The same kind
    of window with other weights is answered from memory, the same window with the same weights from `cache`.

    Before each run as much memory is read as the rest of the model passes through the caches (`traffic`), and then the
    window's inputs: so weights come from where they come from in the whole model. The meter cannot see optimisations of
    ONNX Runtime that reach farther than the margin, such as the blocked layout of a whole network. Use it to screen and
    to rank; results are validated end to end.

    With one thread on the CPU, times are those of the thread itself, so that other load on the machine counts only by
    what it takes from caches; else they are wall-clock.

    Args:
        deployment: how the graphs are run, without the optimisers they refuse themselves.
        workspace: folder for the files of the windows, removed after use.
        whole: times whole models where a difference cannot be timed apart; without it these have status `error`.
        margin: neighbours that a window takes in, in each direction.
        resolution_s: half-width in seconds per inference at which a difference is known well enough, for instance
            0.1% of the model's latency; by default 0.2% of each window's time.
        budget_s: seconds for all windows of a difference together: no further batch is begun that would take longer.
        exchange: time each batch in both orders. Without it a batch takes half the time and may be wrong by a percent.
        traffic: bytes that are read between two runs (`traffic_of` the whole model). With 0 a window finds its weights
            in the caches, if they hold them, which flatters rewrites that enlarge weights and intermediate results.
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
        traffic: int = 0,
        plan: Plan = BATCH,
        cache: MeasurementCache | None = None,
        timeout_s: float = 30.0,
        memory_limit_mb: int | None = None,
        lock_path: str | os.PathLike[str] | None = None,
    ) -> None:
        if margin < 0 or budget_s < 0 or (resolution_s is not None and resolution_s <= 0):
            raise ValueError("WindowMeter: margin and budget_s must not be negative, resolution_s must be positive")
        self.deployment = deployment if deployment is not None else Deployment()
        self.workspace = Path(workspace)
        self.margin, self.resolution_s, self.budget_s, self.plan = margin, resolution_s, budget_s, plan
        self.exchange, self.traffic = exchange, traffic
        self._whole = whole
        self._cache = cache
        self._worker = WorkerClient(timeout_s=timeout_s, memory_limit_mb=memory_limit_mb)
        self._lock = MachineLock(lock_path)
        self._memo: dict[tuple[str, ...], WindowTiming] = {}
        self._measurements = 0

    @property
    def measurements(self) -> int:
        """Number of kinds of windows that were really timed."""
        return self._measurements

    def difference(self, before: Graph, after: Graph) -> Difference:
        """Return the seconds per inference that `after` saves over `before`, both made from one graph by rewrites."""
        if before.hash == after.hash:
            return Difference(0.0, (0.0, 0.0), how="same")
        try:
            found = changed_windows(before, after, self.margin)
            return self._sum(found)
        except (NotSeparable, NotTimed) as error:
            return self._end_to_end(before, after, str(error))

    def time(self, pair: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        """Return the difference at the sites of one kind of window; `anew` times it whatever is known already."""
        timing = self._timing(pair, self.budget_s if budget_s is None else budget_s, 1, anew=anew)
        return total([(pair.count, timing)])

    def close(self) -> None:
        """End the worker; a later measurement starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _sum(self, found: list[WindowPair]) -> Difference:
        started = unblocked_time()
        timings: list[tuple[int, WindowTiming]] = []
        for i, pair in enumerate(found):
            left = max(0.0, self.budget_s - (unblocked_time() - started)) / (len(found) - i)
            timings.append((pair.count, self._timing(pair, left, len(found))))
        return total(timings)

    def _timing(self, pair: WindowPair, budget_s: float, kinds: int, *, anew: bool = False) -> WindowTiming:
        sides = self.deployment.asked_by(pair.before), self.deployment.asked_by(pair.after)
        key, disk_key = (pair.key, *(side.key for side in sides)), self._disk_key(pair, sides)
        known = None if anew else self._memo.get(key)
        if known is None and not anew and self._cache is not None and (stored := self._cache.get(disk_key)) is not None:
            known = WindowTiming.from_json(stored)
        if known is None:
            begin = unblocked_time()
            known = self._measure(pair, sides, budget_s, kinds, anew)
            known = replace(known, cost_s=unblocked_time() - begin)
            if self._cache is not None and not anew:
                self._cache.put(disk_key, known.to_json())
        self._memo[key] = known
        return known

    def _disk_key(self, pair: WindowPair, sides: Sides) -> Mapping[str, Any]:
        deployment, other = sides
        return {
            "kind": "region, timed unless alike",
            "before": pair.before.hash,
            "after": pair.after.hash,
            "deployment": deployment.key,
            **device_key(deployment.provider),
            **runtime_of(deployment.provider).version(),
            "inputs": PROTOCOL,
            "plan": [self.plan.key, self.budget_s, self.resolution_s, *([] if self.exchange else ["one order"])],
            "traffic": self.traffic,
            **({} if other == deployment else {"after deployed": other.key}),
        }

    def _measure(self, pair: WindowPair, sides: Sides, budget_s: float, kinds: int, anew: bool) -> WindowTiming:
        """Time batches until the interval is narrow enough, the budget is spent, or nothing differs."""
        self._measurements += 1
        feeds = _feeds(pair)
        started, blocks, plan = unblocked_time(), list[Block](), self.plan
        paths: list[Path] = []
        try:
            while True:
                begin, first = unblocked_time(), not blocks
                with self._lock:
                    if first:
                        paths += map(self._written, (pair.before, pair.after))
                    files = list(zip(paths, sides, strict=True))
                    blocks += self._batch(files, feeds, plan)
                    # The same again with the sides exchanged: where a session's memory lies depends on its turn, from
                    # batch to batch alike, and would pass for a difference.
                    exchanged = self._batch(files[::-1], feeds, plan) if self.exchange else []
                    blocks += [Block(block.candidate, block.baseline, block.repeats) for block in exchanged]
                timing = timing_of(blocks)
                if first and not anew and self._is_none(timing, pair, files):
                    return replace(timing, seconds=0.0, half=0.0)
                wanted = RESOLUTION * timing.window_seconds
                if self.resolution_s is not None:
                    # Independent kinds of windows add up in squares.
                    wanted = self.resolution_s / (pair.count * math.sqrt(kinds))
                now = unblocked_time()
                left = int(plan.instances * (budget_s - (now - started)) / (now - begin))
                if timing.half <= wanted or left < 1:
                    return timing
                # As many sessions as the rest of the budget has time for.
                most = min(left, self.plan.instances)
                plan = replace(self.plan, instances=most, min_instances=min(most, self.plan.min_instances))
        finally:
            for path in paths:
                path.unlink(missing_ok=True)

    def _written(self, graph: Graph) -> Path:
        try:
            return materialize(graph, self.workspace)
        except OSError as error:
            raise NotTimed(f"a window cannot be written into {self.workspace}: {error}") from error

    def _is_none(self, timing: WindowTiming, pair: WindowPair, files: Sequence[tuple[Path, Deployment]]) -> bool:
        """Return whether the difference is noise, since ONNX Runtime runs the same for both sides."""
        if abs(timing.seconds) - timing.half > CLEAR * timing.window_seconds:
            return False
        if any(weight_bytes(graph) > LARGEST for graph in (pair.before, pair.after)):
            return False
        return run_alike(self._worker, files)

    def _batch(self, files: Sequence[tuple[Path, Deployment]], feeds: FeedSpec, plan: Plan) -> list[Block]:
        sides = [{"path": str(path), "deployment": deployment.to_request()} for path, deployment in files]
        request = {
            "kind": "compare",
            "baseline": sides[0],
            "candidate": sides[1],
            "feeds": feeds.to_json(),
            "plan": plan.to_json(),
            "clock": clock_of(files[0][1]),
            "traffic_bytes": self.traffic if files[0][1].facts.is_cpu else 0,
        }
        try:
            reply = self._worker.request(request)
        except WorkerFailure as failure:
            raise NotTimed(f"a window cannot be timed by itself: {failure.message}") from failure
        if reply["status"] != "ok":
            raise NotTimed(f"a window cannot be timed by itself: {reply['message']}")
        return [Block(tuple(one), tuple(other), repeats) for one, other, repeats in reply["blocks"]]

    def _end_to_end(self, before: Graph, after: Graph, reason: str) -> Difference:
        return of_whole_models(None if self._whole is None else self._whole.compare(before, after), reason)


def clock_of(deployment: Deployment) -> Literal["wall", "cpu"]:
    """Return the clock by which windows are timed: one thread's own time leaves out what else the machine runs."""
    return "cpu" if deployment.facts.is_cpu and deployment.threads == 1 else "wall"


def _feeds(pair: WindowPair) -> FeedSpec:
    """Return feeds with integers in the range of the tables that they index, else 1: they may be divisors or sizes.

    Only what is looked up in tables changes from run to run. Other inputs of a window are activations: in the whole
    model the operator before has just written them, and they are in the caches.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for graph in (pair.before, pair.after):
        integers = [v for v in graph.inputs if (type := graph.types[v]) is not None and type.dtype in _INTEGERS]
        ranges |= {graph.names[value]: (1, 2) for value in integers}
    for graph in (pair.before, pair.after):
        ranges |= index_ranges(graph)
    indices = {name for graph in (pair.before, pair.after) for name in index_ranges(graph)}
    return FeedSpec(input_ranges=ranges, rotated=tuple(sorted(indices)))
