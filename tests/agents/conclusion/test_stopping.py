"""When a search leaves its time to the conclusion."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agents.conclusion.confirmation import STEADY, chance_of_confirming, surely_faster
from agents.conclusion.stopping import lead_needs_time
from agents.core.base import Action, Budget, Search
from graph_rewrite.latency import Latency
from graph_rewrite.latency.estimates import latency_of
from tests.agents.toys import chain_problem

MINUTE = Budget(100, 45.0, conclusion_s=15.0, overtime_s=15.0)


SLOW_MS = 140.0


def within(speedup: float, half: float, ms: float = SLOW_MS) -> Latency:
    return Latency(ms, speedup, (speedup - half, speedup + half), 6, ms * speedup)


DOUBTFUL = within(1.05, 0.08)


def found(
    folder: Path, latency: Latency, took_s: float, budget: Budget = MINUTE, again: Latency | None = None
) -> Search:
    """Return a search that measured one graph in so many seconds, and finds the same again, or something else."""
    problem = chain_problem(folder, 2)
    problem.cost = lambda graph, effort="screen": took_s  # type: ignore[method-assign]
    search = Search(problem, budget)
    candidate = problem.rewriter.candidates(problem.model.graph)[0]
    problem.confirm = lambda graph, plan=None, look=0: again or latency  # type: ignore[method-assign]
    search.measure(candidate.apply(), (Action(candidate.key, candidate.rule, "", 1),), latency)
    return search


@pytest.mark.parametrize(
    ("speedup", "half", "took_s", "ms", "stops"),
    [
        (1.05, 0.08, 2.7, SLOW_MS, True),
        (1.05, 0.08, 1.3, 20.0, False),  # told in the conclusion's own time
        (1.05, 0.03, 2.7, SLOW_MS, False),  # likewise, as the machine is quiet
        (1.10, 0.08, 2.7, SLOW_MS, False),
        (1.05, 0.08, 6.7, 1000.0, False),  # not told in any time that is left: only a larger gain would help
        (1.008, 0.05, 2.7, SLOW_MS, False),
        (1.004, 0.08, 2.7, SLOW_MS, False),
        (0.96, 0.08, 2.7, SLOW_MS, False),
    ],
)
def test_a_doubtful_lead_of_a_slow_model_ends_the_search(
    tmp_path: Path, speedup: float, half: float, took_s: float, ms: float, stops: bool
) -> None:
    assert lead_needs_time(found(tmp_path, within(speedup, half, ms), took_s)) == stops


def test_a_lead_that_a_second_measurement_does_not_find_does_not_end_the_search(tmp_path: Path) -> None:
    search = found(tmp_path, DOUBTFUL, 2.7, again=within(0.97, 0.02))
    assert not lead_needs_time(search)
    (visit,) = (visit for visit in search.visits.values() if visit.actions)
    assert visit.again_s > 0.0
    assert 0.97 < visit.latency.speedup < 1.0
    # It is measured once more, and not a third time.
    search.problem.confirm = lambda graph, plan=None, look=0: pytest.fail("measured again")  # type: ignore[method-assign]
    assert not lead_needs_time(search)


@pytest.mark.parametrize(
    "budget", [Budget(100, 45.0), Budget(100, 45.0, conclusion_s=15.0, overtime_s=15.0, provisional=True)]
)
def test_where_the_time_of_the_conclusion_is_not_limited_it_goes_on(tmp_path: Path, budget: Budget) -> None:
    assert not lead_needs_time(found(tmp_path, DOUBTFUL, 2.7, budget))


def test_without_a_measurement_it_goes_on(tmp_path: Path) -> None:
    assert not lead_needs_time(Search(chain_problem(tmp_path, 2), MINUTE))


def test_the_chance_to_confirm_a_lead_is_how_often_it_is() -> None:
    """Models of 140 ms that gain up to 15%, as on two busy cores: pairs of runs differ by 4.5%, sessions by 1%, and to
    open them takes 1 s."""
    rng, opening_s, seconds = np.random.default_rng(0), 1.0, 20.0
    said, confirmed = list[float](), list[bool]()
    for _ in range(1500):
        speedup = float(np.exp(rng.uniform(-0.1, 0.15)))
        screened = simulated(rng, speedup, blocks=1, pairs=6)
        block_s = opening_s + (STEADY.min_pairs + 2) * (screened.ms + screened.baseline_ms) / 1e3
        said.append(chance_of_confirming(screened, seconds, opening_s))
        confirmed.append(surely_faster(simulated(rng, speedup, int(seconds / block_s), STEADY.min_pairs)))
    for low, high in ((0.0, 0.1), (0.1, 0.35), (0.35, 0.65), (0.65, 0.9), (0.9, 1.0)):
        inside = [(chance, found) for chance, found in zip(said, confirmed, strict=True) if low <= chance < high]
        assert len(inside) > 50
        chance, found = np.mean(inside, axis=0)
        assert found == pytest.approx(chance, abs=0.1)


def simulated(rng: np.random.Generator, speedup: float, blocks: int, pairs: int) -> Latency:
    candidate_s = [SLOW_MS / 1e3 * np.exp(rng.normal(0.0, 0.01) + rng.normal(0.0, 0.045, pairs)) for _ in range(blocks)]
    baseline_s = [speedup * SLOW_MS / 1e3] * pairs
    return latency_of([(baseline_s, block.tolist(), 1) for block in candidate_s], identical=False)


def test_a_lead_is_the_likelier_to_be_confirmed_the_larger_it_is_and_the_more_time_there_is() -> None:
    by_lead = [chance_of_confirming(within(speedup, 0.06), 20.0, 1.0) for speedup in (0.98, 1.01, 1.03, 1.1)]
    assert by_lead == sorted(by_lead)
    assert by_lead[0] < 0.1 < by_lead[2] < 0.9 < by_lead[3]
    by_time = [chance_of_confirming(within(1.05, 0.06), seconds, 1.0) for seconds in (1.0, 3.0, 5.0, 10.0, 20.0)]
    assert by_time[0] == 0.0
    assert by_time == sorted(by_time)
    assert chance_of_confirming(Latency.failed("crashed", ""), 20.0, 1.0) == 0.0


def test_a_forecast_counts_beside_a_measurement_as_far_as_that_is_unsure() -> None:
    def chances(speedup: float, half: float) -> list[float]:
        return [chance_of_confirming(within(speedup, half), 20.0, 1.0, forecast) for forecast in (0.0, 0.06)]

    alone, believed = chances(1.0, 0.08)
    assert believed > 2.0 * alone
    alone, believed = chances(1.12, 0.08)
    assert believed < alone
    alone, believed = chances(1.02, 0.01)
    assert believed == pytest.approx(alone, abs=0.05)
