"""The timing loops under a clock of our own."""

import gc
import math
from collections.abc import Callable

import numpy as np
import pytest

from graph_rewrite.runtime.ort_worker.plan import Plan
from graph_rewrite.runtime.ort_worker.statistics import estimate
from graph_rewrite.runtime.ort_worker.timing import (
    LONG_S,
    block_budget,
    repeats_for,
    time_alone,
    time_block,
    warm_up,
)


class Clock:
    """Time passes only in runs, which are written down."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log = ""

    def __call__(self) -> float:
        return self.now

    def run(self, name: str, seconds: float) -> Callable[[], None]:
        def run() -> None:
            self.now += seconds
            self.log += name

        return run


def test_sides_alternate() -> None:
    clock = Clock()
    plan = Plan(min_pairs=4, max_pairs=4, target_ci_width=0.0)
    block = time_block(clock.run("A", 2.0), clock.run("B", 1.0), plan, 1, budget_s=100.0, clock=clock)
    assert clock.log == "ABBAABBA"
    assert (block.baseline, block.candidate) == ((2.0,) * 4, (1.0,) * 4)
    assert estimate([block]).speedup == 2.0


def test_repeats_make_one_sample() -> None:
    clock = Clock()
    plan = Plan(min_pairs=2, max_pairs=2)
    block = time_block(clock.run("A", 0.5), clock.run("B", 0.25), plan, 3, budget_s=100.0, clock=clock)
    assert clock.log == "AAABBBBBBAAA"
    assert block.baseline == (0.5, 0.5)
    assert block.repeats == 3


def test_what_lies_between_runs_is_not_timed() -> None:
    clock = Clock()
    plan = Plan(min_pairs=2, max_pairs=2, target_ci_width=0.0)
    runs = clock.run("A", 0.5), clock.run("B", 0.25)
    block = time_block(*runs, plan, 2, 100.0, clock, between=clock.run("-", 7.0))
    assert clock.log == "-A-A-B-B-B-B-A-A"
    assert (block.baseline, block.candidate) == ((0.5, 0.5), (0.25, 0.25))


@pytest.mark.parametrize("stolen_s", [0.0, -0.25])
def test_a_clock_that_stood_still_disturbs_one_pair(stolen_s: float) -> None:
    clock = Clock()
    durations = iter([0.5] * 4 + [stolen_s] + [0.5] * 11)

    def run() -> None:
        clock.now += next(durations)

    plan = Plan(min_pairs=8, max_pairs=8, target_ci_width=0.0)
    assert estimate([time_block(run, run, plan, 1, 100.0, clock)]).speedup == 1.0
    clock.now, samples = 0.0, iter([0.5, stolen_s, 0.5])
    alone = Plan(min_pairs=3, max_pairs=3, target_ci_width=0.0)
    assert min(time_alone(lambda: clock.run("A", next(samples))(), alone, 1, clock)) > 0.0


@pytest.mark.parametrize(("spread_s", "left_s", "pairs"), [(0.0, 60.0, 5), (0.1, 60.0, 13), (0.1, 9.0, 8)])
def test_pairs_that_differ_much_are_timed_for_longer(spread_s: float, left_s: float, pairs: int) -> None:
    """Five pairs of a second fill the budget, and twelve the patience."""
    clock, rng = Clock(), np.random.default_rng(0)

    def run() -> None:
        clock.now += 0.5 + spread_s * float(rng.uniform(-1.0, 1.0))

    plan = Plan(min_pairs=5, max_pairs=40, target_ci_width=0.0, patience_s=12.0)
    block = time_block(run, run, plan, 1, 4.5, clock, left_s=left_s)
    assert len(block.baseline) == pairs


def test_ends_when_precise_and_on_the_budget() -> None:
    clock = Clock()
    plan = Plan(min_pairs=5, max_pairs=40, target_ci_width=0.07)
    assert len(time_block(clock.run("A", 0.01), clock.run("B", 0.01), plan, 1, 100.0, clock).baseline) == 5
    never = Plan(min_pairs=5, max_pairs=40, target_ci_width=0.0)
    assert len(time_block(clock.run("A", 0.01), clock.run("B", 0.01), never, 1, 100.0, clock).baseline) == 40
    assert len(time_block(clock.run("A", 0.5), clock.run("B", 0.5), never, 1, 9.5, clock).baseline) == 10
    assert len(time_block(clock.run("A", 0.5), clock.run("B", 0.5), never, 1, 3.0, clock).baseline) == 5


def test_a_hopeless_candidate_costs_one_pair() -> None:
    clock = Clock()
    assert len(time_block(clock.run("A", 0.1), clock.run("B", 50.0), Plan(), 1, 0.3, clock).candidate) == 1


def test_alone() -> None:
    clock = Clock()
    plan = Plan(min_pairs=5, max_pairs=20, target_ci_width=0.05, budget_s=1.0)
    assert time_alone(clock.run("A", 0.25), plan, 1, clock) == [0.25] * 5


def test_garbage_collection_waits() -> None:
    seen = []
    time_alone(lambda: seen.append(gc.isenabled()), Plan(min_pairs=2, max_pairs=2), 1)
    assert seen == [False, False]
    assert gc.isenabled()


def test_repeats_fill_a_millisecond() -> None:
    assert repeats_for(0.1) == 1
    assert repeats_for(1e-4) == 10
    assert repeats_for(0.0) == 1000


def test_long_runs_are_warmed_up_once_or_as_often_as_they_must() -> None:
    clock = Clock()
    assert warm_up(clock.run("A", LONG_S / 2), 3, clock) == pytest.approx(LONG_S / 2)
    assert warm_up(clock.run("B", 2 * LONG_S), 3, clock) == pytest.approx(2 * LONG_S)
    assert warm_up(clock.run("C", 2 * LONG_S), 3, clock, least=2) == pytest.approx(2 * LONG_S)
    assert warm_up(clock.run("D", LONG_S / 2), 0, clock) > 0.0
    assert clock.log == "AAABCCD"


@pytest.mark.parametrize(("pair_s", "left_s", "pairs"), [(0.5, 2.5, 4), (0.5, 4.7, 8), (1.2, 5.5, 4), (0.01, 1.0, 11)])
def test_a_block_ends_with_its_measurement(pair_s: float, left_s: float, pairs: int) -> None:
    """Also where the plan asks for more pairs than there is time for."""
    plan, clock = Plan(instances=4, min_pairs=11, budget_s=45.0, target_ci_width=0.0), Clock()
    run = clock.run("A", pair_s / 2)
    block = time_block(run, run, plan, 1, block_budget(plan, left_s, pair_s), clock)
    assert len(block.baseline) == pairs
    assert clock.now <= left_s


def test_a_block_takes_the_time_that_is_left_where_its_fewest_pairs_fit() -> None:
    plan = Plan(instances=1, min_pairs=4, budget_s=45.0)
    assert block_budget(plan, left_s=10.0, pair_s=1.0) == pytest.approx(8.5)
    assert block_budget(plan, left_s=5.0, pair_s=1.0) == pytest.approx(3.5 / 4)
    assert block_budget(plan, left_s=100.0, pair_s=1.0) == 45.0
    assert block_budget(plan, left_s=0.5, pair_s=1.0) == 0.0


@pytest.mark.parametrize(
    ("spent_s", "left_s", "number", "expected"),
    [(5.0, 8.0, 1, 6.0), (5.0, 6.0, 1, 4.875), (0.5, 40.0, 1, 3.0), (5.0, math.inf, 1, 3.0), (9.0, 9.0, 3, 3.0)],
)
def test_the_last_block_has_time_for_pairs_that_tell_their_error(
    spent_s: float, left_s: float, number: int, expected: float
) -> None:
    """A block has 3 s for four pairs; eight fit into 6 s. A further block fits where two fifths of the time are over,
    or where several blocks took little."""
    plan = Plan(instances=4, min_pairs=4, budget_s=12.0)
    assert block_budget(plan, left_s, 0.75, spent_s, number) == pytest.approx(expected)


def test_no_patience_for_a_graph_and_itself() -> None:
    plan = Plan(min_pairs=5, budget_s=0.5, patience_s=3.0)
    assert plan.without_patience() == Plan(min_pairs=5, budget_s=0.5)
