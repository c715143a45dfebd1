"""When a search leaves its time to the conclusion."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.conclusion.confirmation import telling_seconds
from agents.conclusion.stopping import lead_needs_time
from agents.core.base import Action, Budget, Search
from graph_rewrite.latency import Latency
from tests.agents.toys import chain_problem

MINUTE = Budget(100, 45.0, conclusion_s=15.0, overtime_s=15.0)


def within(speedup: float, half: float) -> Latency:
    return Latency(1.0, speedup, (speedup - half, speedup + half), 9, speedup)


def found(
    folder: Path, speedup: float, half: float, took_s: float, budget: Budget = MINUTE, again: Latency | None = None
) -> Search:
    """Return a search that measured one graph in so many seconds, and finds the same again, or something else."""
    problem = chain_problem(folder, 2)
    problem.cost = lambda graph, effort="screen": took_s  # type: ignore[method-assign]
    search = Search(problem, budget)
    candidate = problem.rewriter.candidates(problem.model.graph)[0]
    latency = within(speedup, half)
    problem.confirm = lambda graph, plan=None, look=0: again or latency  # type: ignore[method-assign]
    search.measure(candidate.apply(), (Action(candidate.key, candidate.rule, "", 1),), latency)
    return search


@pytest.mark.parametrize(
    ("speedup", "half", "took_s", "stops"),
    [
        (1.04, 0.06, 9.0, True),
        (1.04, 0.06, 5.0, False),  # told in the conclusion's own time, once it was measured again
        (1.04, 0.06, 1.0, False),  # told in the conclusion's own time
        (1.10, 0.06, 5.0, False),
        (1.02, 0.06, 5.0, False),  # not told in any time that is left: only a larger gain would help
        (1.004, 0.06, 5.0, False),
        (0.96, 0.06, 5.0, False),
    ],
)
def test_a_doubtful_lead_of_a_slow_model_ends_the_search(
    tmp_path: Path, speedup: float, half: float, took_s: float, stops: bool
) -> None:
    assert lead_needs_time(found(tmp_path, speedup, half, took_s)) == stops


def test_a_lead_that_a_second_measurement_does_not_find_does_not_end_the_search(tmp_path: Path) -> None:
    search = found(tmp_path, 1.04, 0.06, 5.0, again=within(0.97, 0.02))
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
    assert not lead_needs_time(found(tmp_path, 1.04, 0.06, 5.0, budget))


def test_without_a_measurement_it_goes_on(tmp_path: Path) -> None:
    assert not lead_needs_time(Search(chain_problem(tmp_path, 2), MINUTE))


def test_four_times_the_measuring_halves_the_error() -> None:
    told = [telling_seconds(Latency(1.0, 1.1, (1.1 - half, 1.1 + half), 9, 1.1), 1.0) for half in (0.02, 0.04)]
    assert told[1] == pytest.approx(4.0 * told[0], rel=0.01)
    assert telling_seconds(Latency(1.0, 1.0, (0.9, 1.1), 9, 1.0), 1.0) == float("inf")
