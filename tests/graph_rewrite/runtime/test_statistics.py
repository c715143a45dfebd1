"""Speed-ups and intervals on synthetic noise of known size."""

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.runtime.ort_worker.plan import FULL, SCREEN, Plan
from graph_rewrite.runtime.ort_worker.statistics import (
    INSTANCE_SD,
    Block,
    block_is_precise,
    estimate,
    is_enough,
    log_ratios,
    median_standard_error,
    student_t,
)

seconds = st.floats(1e-4, 10.0)
pairs = st.lists(st.tuples(seconds, seconds), min_size=1, max_size=12)
blocks = st.lists(pairs.map(lambda rows: Block(*map(tuple, zip(*rows, strict=True)))), min_size=1, max_size=6)


def simulate(rng: np.random.Generator, plan: Plan, speedup: float, between: float, within: float) -> list[Block]:
    """Blocks as the worker takes them, with the stopping rules of `plan` and log-normal noise of two sizes."""
    taken: list[Block] = []
    while not (taken and is_enough(taken, plan, 0.0)):
        ratio = speedup * math.exp(rng.normal(0, between))
        candidate, baseline = [], []
        while len(candidate) < plan.max_pairs:
            noise = np.exp(rng.normal(0, within / math.sqrt(2), 2))
            baseline.append(ratio * noise[0])
            candidate.append(noise[1])
            block = Block(tuple(baseline), tuple(candidate))
            if len(candidate) >= plan.min_pairs and block_is_precise(block, plan):
                break
        taken.append(Block(tuple(baseline), tuple(candidate)))
    return taken


@pytest.mark.parametrize("plan", [SCREEN, FULL], ids=["screen", "full"])
@pytest.mark.parametrize("between", [0.0, 0.004, 0.013])
@pytest.mark.parametrize("within", [0.003, 0.02])
def test_interval_covers_the_truth(plan: Plan, between: float, within: float) -> None:
    """A/A and A/B: at least near 95% with instances that differ as they do in reality, also under early stopping."""
    rng = np.random.default_rng(7)
    for truth in (1.0, 1.1):
        hits = 0
        for _ in range(150):
            found = estimate(simulate(rng, plan, truth, between, within))
            hits += found.low <= truth <= found.high
        # A rate of 0.93 gives less than 133 of 150 in 1 of 60 seeds; the seed is fixed.
        assert hits >= 133


def test_coverage_is_not_bought_by_endless_intervals() -> None:
    """With the prior's own noise the interval misses sometimes, and 8 blocks pin a speed-up down to about 1%."""
    rng = np.random.default_rng(3)
    found = [estimate(simulate(rng, FULL, 1.0, INSTANCE_SD, 0.005)) for _ in range(300)]
    assert 0.92 <= np.mean([one.low <= 1.0 <= one.high for one in found]) <= 0.985
    assert 0.010 < np.median([one.relative_width for one in found]) < 0.020


@pytest.mark.parametrize(("count", "size"), [(1, 8), (1, 11), (1, 20), (2, 11), (4, 11)])
@pytest.mark.parametrize("within", [0.02, 0.05])
def test_what_many_pairs_tell_of_their_own_noise_counts(count: int, size: int, within: float) -> None:
    """On a busy machine the noise of pairs is large beside what sessions differ by, and the pairs tell it: their
    interval is narrower than three degrees of freedom alone allow, and holds nevertheless."""
    rng = np.random.default_rng(13)
    hits, narrower = 0, []
    for _ in range(300):
        centres = rng.normal(0, INSTANCE_SD, count)
        taken = [Block(tuple(np.exp(rng.normal(centre, within, size))), (1.0,) * size) for centre in centres]
        found = estimate(taken)
        hits += found.low <= 1.0 <= found.high
        samples = [log_ratios(block) for block in taken]
        prior = INSTANCE_SD**2 + np.mean([median_standard_error(sample) ** 2 for sample in samples])
        spread = np.sum((np.median(samples, axis=1) - np.mean(np.median(samples, axis=1))) ** 2)
        half = student_t(2 + count) * math.sqrt((3 * prior + spread) / (2 + count) / count)
        narrower.append(math.log(found.high / found.speedup) / half)
    assert hits >= 285
    assert np.median(narrower) < 0.95


def test_ignoring_clusters_would_lie() -> None:
    """Many pairs of a few sessions: pooled pairs give a tiny interval around the wrong value, clusters do not."""
    rng = np.random.default_rng(5)
    pooled_hits = clustered_hits = 0
    for _ in range(200):
        centres = rng.normal(0, 0.013, 4)
        taken = [Block(tuple(np.exp(rng.normal(centre, 0.002, 40))), (1.0,) * 40) for centre in centres]
        pool = [ratio for block in taken for ratio in log_ratios(block)]
        half = 1.96 * np.std(pool) / math.sqrt(len(pool))
        pooled_hits += abs(np.mean(pool)) <= half
        found = estimate(taken)
        clustered_hits += found.low <= 1.0 <= found.high
    assert pooled_hits < 100
    assert clustered_hits >= 180


def test_one_pair_of_sessions_proves_nothing_under_three_percent() -> None:
    """However well its runs agree."""
    found = estimate([Block((1.03,) * 40, (1.0,) * 40)])
    assert found.speedup == pytest.approx(1.03)
    assert found.low < 1.0 < found.high


def test_one_pair_of_runs_claims_nothing() -> None:
    found = estimate([Block((2.0,), (1.0,))])
    assert (found.speedup, found.low, found.high) == (pytest.approx(2.0), 0.0, math.inf)


def test_of_a_few_long_runs_disturbed_ones_are_left_out() -> None:
    """Seconds of DALL-E, one thread of a Zen 4: something else ran beside the last run of the original."""
    baseline, candidate = (0.546, 0.546, 0.547, 0.588), (0.498, 0.497, 0.504, 0.498)
    found = estimate([Block(baseline, candidate)])
    calm = estimate([Block(baseline[:3], candidate[:3])])
    assert found == calm
    assert found.low > 1.05
    assert estimate([Block(candidate, baseline)]).high < 0.95


@pytest.mark.parametrize(
    ("baseline", "why"),
    [
        ((0.01, 0.01, 0.01, 0.02), "short runs vary by themselves"),
        ((0.5, 0.5, 0.6, 0.6), "too few would stay"),
        ((0.5, 0.51, 0.52, 0.52), "none was disturbed"),
        ((0.5,) * 7 + (0.6,), "of eight the median knows its error"),
    ],
)
def test_all_other_pairs_count(baseline: tuple[float, ...], why: str) -> None:
    assert len(log_ratios(Block(baseline, (0.4,) * len(baseline)))) == len(baseline), why


@given(blocks)
def test_interval_contains_the_speedup_and_swaps_with_the_sides(taken: list[Block]) -> None:
    found = estimate(taken)
    assert found.low <= found.speedup <= found.high
    swapped = estimate([Block(block.candidate, block.baseline) for block in taken])
    assert swapped.speedup == pytest.approx(1 / found.speedup, rel=1e-9)
    if math.isfinite(found.high):
        assert swapped.low == pytest.approx(1 / found.high, rel=1e-6)


@given(blocks, st.floats(0.1, 10.0))
def test_a_slower_machine_changes_nothing(taken: list[Block], factor: float) -> None:
    slower = [
        Block(tuple(factor * s for s in block.baseline), tuple(factor * s for s in block.candidate)) for block in taken
    ]
    assert estimate(slower).speedup == pytest.approx(estimate(taken).speedup, rel=1e-6)


@given(blocks, st.integers(0, 2**32 - 1))
def test_the_order_of_blocks_does_not_matter(taken: list[Block], seed: int) -> None:
    order = np.random.default_rng(seed).permutation(len(taken))
    assert estimate([taken[i] for i in order]).speedup == pytest.approx(estimate(taken).speedup)


@pytest.mark.parametrize("size", [3, 5, 9, 20])
def test_error_of_a_median(size: int) -> None:
    """On normal data the estimate is, in the mean, within 40% of the true error, on the careful side for small n."""
    rng = np.random.default_rng(11)
    samples = rng.normal(0, 1, (2000, size))
    truth = float(np.median(samples, axis=1).std())
    estimated = float(np.mean([median_standard_error(sample.tolist()) for sample in samples]))
    assert 0.9 * truth < estimated < 1.4 * truth


def test_error_of_a_single_value_is_unknown() -> None:
    assert median_standard_error([1.0]) == math.inf


@pytest.mark.parametrize(("dof", "quantile"), [(3, 3.1824), (5, 2.5706), (10, 2.2281), (30, 2.0423), (10_000, 1.9602)])
def test_student_t(dof: int, quantile: float) -> None:
    assert student_t(dof) == pytest.approx(quantile, rel=2e-3)
    assert student_t(dof) >= NormalDist().inv_cdf(0.975)


def test_stopping() -> None:
    same = Block((1.0,) * 5, (1.0,) * 5)
    plan = Plan(instances=4, min_instances=2, min_pairs=5, target_ci_width=0.01, budget_s=10.0)
    assert not is_enough([same], plan, elapsed_s=100.0)  # the minimum is taken whatever it costs
    assert not is_enough([same] * 2, plan, elapsed_s=1.0)  # too wide
    assert is_enough([same] * 2, plan, elapsed_s=10.0)  # budget
    assert is_enough([same] * 4, plan, elapsed_s=1.0)  # most instances
    assert is_enough([same] * 3, Plan(instances=4, min_instances=2, target_ci_width=0.1, budget_s=10.0), 1.0)


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        estimate([])
    with pytest.raises(ValueError, match="2 and 1 timings"):
        Block((1.0, 2.0), (1.0,))
    with pytest.raises(ValueError, match="3 degrees"):
        student_t(2)
    with pytest.raises(ValueError, match="min_instances"):
        Plan(instances=2, min_instances=3)
    with pytest.raises(ValueError, match="min_pairs"):
        Plan(min_pairs=9, max_pairs=8)
    with pytest.raises(ValueError, match="negative"):
        Plan(budget_s=-1.0)


def test_plan_survives_json() -> None:
    assert Plan.from_json(FULL.to_json()) == FULL
    assert FULL.key != SCREEN.key
