"""Timing of open sessions: one model alone, or two in turn. Runs inside the worker."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

import onnxruntime as ort

from .deployment import Deployment, open_session
from .feeds import FeedSpec, ModelInput, make_feeds, shape_of
from .narrow_floats import NARROW, runner
from .plan import Plan
from .sessions.cuda_graphs import CudaGraphSession
from .statistics import Block, block_is_precise, median_standard_error

Run = Callable[[], None]
Clock = Callable[[], float]

MIN_SAMPLE_S = 1e-3
"""Runs are repeated until a sample is this long: the clock and the interpreter cost some microseconds each."""

LONG_S = 0.05
"""Seconds of a run from which one warm-up on the CPU is enough: what further ones warm is small beside it."""

_MAX_REPEATS = 1000
_CUDA_WARMUP = 3  # cuDNN picks its algorithms in the first run, the memory arena settles in the second.
_OVERRUN = 4.0  # Times the budget after which even the plan's fewest pairs are not waited for.
_FEWEST = 3  # Pairs of a model that large that are taken all the same: fewer tell nothing about their error.
_HOPELESS = 3.0  # Times the baseline, at which one pair tells enough.


class Runner:
    """A session with its inputs at hand. On CUDA inputs and outputs stay on the device and a run is synchronised."""

    def __init__(self, path: str, deployment: Deployment, feeds: FeedSpec) -> None:
        self.path = path
        self.cuda = deployment.provider == "cuda"
        self.session = open_session(path, deployment, measuring=True)
        self.inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in self.session.get_inputs()]
        self.feeds = make_feeds(self.inputs, feeds)
        self._run = runner(self.session, None, self.feeds)
        self._binding = self._bind() if self.cuda and self._is_bindable() else None

    def require_inputs_of(self, baseline: Runner) -> None:
        """Raise ValueError unless each input is one of `baseline`'s, in type and in the shape that it is run with: then
        both get equal values. One of the models may leave a dimension open that the other fixes."""
        known = {item.name: (item.type, shape_of(baseline.feeds[item.name])) for item in baseline.inputs}
        foreign = [item for item in self.inputs if known.get(item.name) != (item.type, shape_of(self.feeds[item.name]))]
        if foreign:
            listed = ", ".join(f"{item.name} {item.type}{list(item.shape)}" for item in foreign)
            raise ValueError(f"{os.path.basename(self.path)} has inputs that the baseline has not: {listed}")

    def _is_bindable(self) -> bool:
        """Tell whether all inputs and outputs are tensors that can be bound to places of the device."""
        types = [item.type for item in (*self.inputs, *self.session.get_outputs())]
        return all(type.startswith("tensor(") and type[7:-1] not in NARROW for type in types)

    def _bind(self) -> ort.IOBinding:
        binding = self.session.io_binding()
        for name, array in self.feeds.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array, "cuda", 0))
        for output in self.session.get_outputs():
            binding.bind_output(output.name, "cuda", 0)
        if isinstance(self.session, CudaGraphSession):
            self.session.fix_outputs(binding)
        return binding

    def run(self) -> None:
        if self._binding is None:
            self._run()
        else:
            self.session.run_with_iobinding(self._binding)
            self._binding.synchronize_outputs()

    def warm_up(self, runs: int, clock: Clock = perf_counter) -> float:
        """`warm_up` of this session; on CUDA always several runs."""
        if self.cuda:
            return warm_up(self.run, max(runs, _CUDA_WARMUP), clock, long_s=math.inf)
        return warm_up(self.run, runs, clock)


def warm_up(run: Run, runs: int, clock: Clock = perf_counter, long_s: float = LONG_S) -> float:
    """Run a few times untimed, at least once, and not again after a run of `long_s` seconds.

    Returns:
        The seconds of the last run, an estimate for planning.
    """
    seconds = 0.0
    for _ in range(max(runs, 1)):
        started = clock()
        run()
        seconds = clock() - started
        if seconds >= long_s:
            break
    return seconds


def repeats_for(seconds: float) -> int:
    """Return the number of runs in a row that make a sample, for a model that takes `seconds`."""
    return min(_MAX_REPEATS, max(1, math.ceil(MIN_SAMPLE_S / max(seconds, 1e-9))))


def time_block(
    baseline: Run, candidate: Run, plan: Plan, repeats: int, budget_s: float, clock: Clock = perf_counter
) -> Block:
    """Time two models in turn, A B B A A B ..., until the plan says that the block is precise or the budget ends.

    The order alternates so that neither side always runs behind the other, on caches the other has filled.
    """
    times: tuple[list[float], list[float]] = ([], [])
    started = clock()
    with _no_garbage_collection():
        while len(times[0]) < plan.max_pairs:
            for side in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                times[side].append(_time(baseline if side == 0 else candidate, repeats, clock))
            elapsed = clock() - started
            hopeless = times[1][0] > _HOPELESS * times[0][0]
            enough = hopeless or len(times[0]) >= min(_FEWEST, plan.min_pairs)
            if (enough and elapsed > _OVERRUN * budget_s) or (len(times[0]) >= plan.min_pairs and elapsed > budget_s):
                break
            block = Block(tuple(times[0]), tuple(times[1]), repeats)
            if len(times[0]) >= plan.min_pairs and block_is_precise(block, plan):
                break
    return Block(tuple(times[0]), tuple(times[1]), repeats)


def time_alone(run: Run, plan: Plan, repeats: int, clock: Clock = perf_counter) -> list[float]:
    """Return the seconds per run of one model, sample by sample, within the limits that the plan sets for one block."""
    samples: list[float] = []
    started = clock()
    with _no_garbage_collection():
        while len(samples) < plan.max_pairs:
            samples.append(_time(run, repeats, clock))
            if len(samples) < plan.min_pairs:
                continue
            # 3.92 standard errors are the width of a 95% interval.
            error = median_standard_error([math.log(sample) for sample in samples])
            if clock() - started > plan.budget_s or 3.92 * error <= plan.target_ci_width:
                break
    return samples


def _time(run: Run, repeats: int, clock: Clock) -> float:
    started = clock()
    for _ in range(repeats):
        run()
    return (clock() - started) / repeats


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Keep the collector of cycles from running inside a timed run. This leaf cannot import `graph_rewrite.system`."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
