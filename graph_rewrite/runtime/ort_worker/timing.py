"""Timing of models: one alone, or two in turn. Runs inside the worker."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

from .plan import Plan
from .statistics import FEWEST, KNOWS_ITS_ERROR, Block, block_is_precise, is_blurred, median_standard_error
from .traffic import Between

Run = Callable[[], None]
Clock = Callable[[], float]
TurnTo = Callable[[int], None]
"""Tells the sides which inputs the next run takes, counted from 0 at the beginning of a block."""

MIN_SAMPLE_S = 1e-3
"""Runs are repeated until a sample is this long: the clock and the interpreter cost some microseconds each."""

LONG_S = 0.05
"""Seconds of a run from which further warm-ups are not worth their time: what they warm is small beside it."""

_LEAST_S = 1e-6
"""Seconds that a run takes at least. A thread's clock stands still, or falls back, where the host takes the processor
away in the middle of a run, and no ratio can be told from nothing."""

_MAX_REPEATS = 1000
_OVERRUN = 4.0  # Times the budget after which even the plan's fewest pairs are not waited for.
_SPARE_PAIRS = 1.5  # A pair is not broken off, and the answer takes its time too.
_SPARE_BLOCKS = 1.5  # A further block may take this many times as long as those before did.
_HOPELESS = 3.0  # Times the baseline, at which one pair tells enough.


def warm_up(run: Run, runs: int, clock: Clock = perf_counter, least: int = 1) -> float:
    """Run a few times untimed, `least` times at least, and then not again after a run of `LONG_S` seconds.

    Returns:
        The seconds of the last run, an estimate for planning.
    """
    seconds = 0.0
    for number in range(max(runs, least)):
        started = clock()
        run()
        seconds = clock() - started
        if seconds >= LONG_S and number + 1 >= least:
            break
    return seconds


def repeats_for(seconds: float) -> int:
    """Return the number of runs in a row that make a sample, for a model that takes `seconds`."""
    return min(_MAX_REPEATS, max(1, math.ceil(MIN_SAMPLE_S / max(seconds, 1e-9))))


def is_last_block(elapsed_s: float, blocks: int, within_s: float) -> bool:
    """Return whether a further block would be cut off, and take all the others with it.

    Args:
        elapsed_s: seconds that the measurement took so far.
        blocks: that it has so far.
        within_s: seconds within which it must end.
    """
    return elapsed_s * (1.0 + _SPARE_BLOCKS / blocks) > within_s


def block_budget(plan: Plan, left_s: float, pair_s: float, spent_s: float = 0.0, number: int = 1) -> float:
    """Return the seconds to plan for a block of pairs of `pair_s`, when `left_s` are left for the whole measurement: so
    many that even its fewest pairs end in time, where three of them fit. The last block that fits takes as many pairs
    as tell their own error, where that leaves time for them.

    Args:
        spent_s: seconds that the measurement took before it.
        number: of the block, from 1 on.
    """
    ends_s = spent_s + left_s
    left_s = max(0.0, left_s - _SPARE_PAIRS * pair_s)
    share_s, fewest_s = plan.budget_s / plan.instances, plan.min_pairs * pair_s
    if left_s < fewest_s:
        return min(share_s, left_s / _OVERRUN)
    if is_last_block(spent_s + max(share_s, fewest_s), number, ends_s):
        share_s = max(share_s, min(plan.budget_s, KNOWS_ITS_ERROR * pair_s))
    return min(share_s, left_s)


def time_block(
    baseline: Run,
    candidate: Run,
    plan: Plan,
    repeats: int,
    budget_s: float,
    clock: Clock = perf_counter,
    turn_to: TurnTo | None = None,
    between: Between | None = None,
    left_s: float = math.inf,
) -> Block:
    """Time two models in turn, A B B A A B ..., until the plan says that the block is precise or the budget ends; where
    its pairs differ much by then, as long as the plan has patience, and `left_s` for the whole measurement.

    The order alternates so that neither side always runs behind the other, on caches the other has filled. Both run
    with the same inputs in the same order: `turn_to` is called before each pair, untimed, and `between` before each
    run.
    """
    times: tuple[list[float], list[float]] = ([], [])
    started = clock()
    with _no_garbage_collection():
        while len(times[0]) < plan.max_pairs:
            if turn_to is not None:
                turn_to(len(times[0]) * repeats)
            for side in (0, 1) if len(times[0]) % 2 == 0 else (1, 0):
                times[side].append(_time(baseline if side == 0 else candidate, repeats, clock, between))
            elapsed = clock() - started
            hopeless = times[1][0] > _HOPELESS * times[0][0]
            enough = hopeless or len(times[0]) >= min(FEWEST, plan.min_pairs)
            is_whole = len(times[0]) >= plan.min_pairs
            late = (enough and elapsed > _OVERRUN * budget_s) or (is_whole and elapsed > budget_s)
            block = Block(tuple(times[0]), tuple(times[1]), repeats)
            patience_s = min(plan.patience_s, left_s - _SPARE_PAIRS * elapsed / len(times[0]))
            if late and (hopeless or elapsed > patience_s or not is_blurred(block)):
                break
            if len(times[0]) >= plan.min_pairs and block_is_precise(block, plan):
                break
    return Block(tuple(times[0]), tuple(times[1]), repeats)


def time_alone(
    run: Run, plan: Plan, repeats: int, clock: Clock = perf_counter, turn_to: TurnTo | None = None
) -> list[float]:
    """Return the seconds per run of one model, sample by sample, within the limits that the plan sets for one block.

    `turn_to` is called before each sample, as in `time_block`.
    """
    samples: list[float] = []
    started = clock()
    with _no_garbage_collection():
        while len(samples) < plan.max_pairs:
            if turn_to is not None:
                turn_to(len(samples) * repeats)
            samples.append(_time(run, repeats, clock))
            if len(samples) < plan.min_pairs:
                continue
            # 3.92 standard errors are the width of a 95% interval.
            error = median_standard_error([math.log(sample) for sample in samples])
            if clock() - started > plan.budget_s or 3.92 * error <= plan.target_ci_width:
                break
    return samples


def _time(run: Run, repeats: int, clock: Clock, between: Between | None = None) -> float:
    if between is not None:
        return max(_LEAST_S, sum(_time_behind(between, run, clock) for _ in range(repeats)) / repeats)
    started = clock()
    for _ in range(repeats):
        run()
    return max(_LEAST_S, (clock() - started) / repeats)


def _time_behind(between: Between, run: Run, clock: Clock) -> float:
    between()
    started = clock()
    run()
    return clock() - started


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
