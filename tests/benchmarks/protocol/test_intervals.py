"""Intervals: their coverage by simulation, and the means over models."""

import math

import numpy as np
import pytest

from benchmarks.protocol.judging.intervals import interquartile_mean, over_models, over_sessions, session_ratio

ROUNDS, SESSIONS = 8, 6


def simulated(rng: np.random.Generator, speedup: float = 1.0, spikes: float = 0.05) -> list[float]:
    """Log ratios of a judgement: processes differ by 1%, runs by 1.5%, the machine drifts by up to 30% in a session,
    and some turns take 10 to 60% longer because others use the core."""
    ratios = []
    for _ in range(SESSIONS):
        drift = np.exp(np.linspace(0.0, rng.uniform(-0.3, 0.3), ROUNDS))
        times = []
        for factor in (1.0, 1.0 / speedup):
            noise = np.exp(rng.normal(0.0, 0.01) + rng.normal(0.0, 0.015, ROUNDS))
            spike = np.where(rng.random(ROUNDS) < spikes, rng.uniform(1.1, 1.6, ROUNDS), 1.0)
            times.append(factor * drift * noise * spike)
        ratios.append(session_ratio(times[0], times[1]))
    return ratios


@pytest.mark.parametrize("spikes", [0.0, 0.05, 0.2])
def test_an_original_against_itself_holds_one_in_at_least_93_percent_of_judgements(spikes: float) -> None:
    rng = np.random.default_rng(7)
    held = sum(over_sessions(simulated(rng, spikes=spikes)).holds(1.0) for _ in range(1000))
    assert held >= 930


def test_the_true_speedup_is_held_as_often_and_a_gain_of_five_percent_is_seen() -> None:
    rng = np.random.default_rng(8)
    found = [over_sessions(simulated(rng, 1.05)) for _ in range(500)]
    assert sum(interval.holds(1.05) for interval in found) >= 465
    assert sum(interval.low > 1.0 for interval in found) >= 480


def test_an_interval_of_sessions_is_students() -> None:
    # Mean 0.2, standard deviation 0.1, four sessions: t(3) = 3.182.
    ratios = [0.1, 0.15, 0.25, 0.3]
    half = 3.182 * float(np.std(ratios, ddof=1)) / 2
    found = over_sessions(ratios)
    assert found.speedup == pytest.approx(math.exp(0.2))
    assert math.log(found.high) == pytest.approx(0.2 + half, rel=0.01)
    assert math.log(found.low) == pytest.approx(0.2 - half, abs=0.002)
    # Of two sessions t(1) = 12.706.
    assert math.log(over_sessions([0.0, 0.02]).high) == pytest.approx(0.01 + 12.706 * 0.01, rel=0.01)


def test_one_session_has_no_interval() -> None:
    with pytest.raises(ValueError, match="at least two"):
        over_sessions([0.1])


def test_drift_cancels_within_a_round() -> None:
    drift = np.array([1.0, 2.0, 4.0, 8.0])
    assert session_ratio(3.0 * drift, 1.5 * drift) == pytest.approx(math.log(2.0))


def test_a_mean_over_models_is_geometric_and_every_model_counts_the_same() -> None:
    models = {"a": [[math.log(2.0)] * 6] * 3, "b": [[math.log(0.5)] * 6]}
    found = over_models(models, resamples=50)
    assert (found.speedup, found.low, found.high) == pytest.approx((1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="at least one"):
        over_models({})


@pytest.mark.parametrize(("models", "seeds"), [(6, 3), (16, 1)])
def test_the_bootstrap_covers_the_spread_of_seeds_and_sessions(models: int, seeds: int) -> None:
    """80 tables of models whose searches find 1.2 times the speed, 5% more or less where there are several seeds."""
    rng, spread, held = np.random.default_rng(3), 0.05 * (seeds > 1), 0
    for table in range(80):
        found = {
            str(model): (
                np.log(1.2) + rng.normal(0, spread, (seeds, 1)) + rng.normal(0, 0.01, (seeds, SESSIONS))
            ).tolist()
            for model in range(models)
        }
        held += over_models(found, resamples=120, seed=table).holds(1.2)
    assert held >= 72


def test_the_interquartile_mean_leaves_out_the_ends() -> None:
    seeds = [[math.log(x)] * 4 for x in (0.1, 1.1, 1.1, 1.1, 1.1, 1.1, 1.1, 50.0)]
    assert interquartile_mean({"a": seeds}, resamples=10).speedup == pytest.approx(1.1)
