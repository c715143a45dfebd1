"""Tree search by what rewrites save in windows of other models: its priors, and what it finds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from agents.core.base import Budget, Search
from agents.core.config import EnvConfig
from agents.core.registry import make_agent
from agents.effects.step_means import Forecast
from agents.mcts.agent import BY_MEANS, MCTSAgent
from agents.mcts.promises import joint_saving, priors_of
from agents.mcts.savings import SavingsGuide
from agents.mcts.states import EnvState
from agents.ppo.acting import acting_env
from graph_rewrite import Rewriter
from graph_rewrite.task.problem import Problem
from tests.agents.forecasting import ForecastsByChain
from tests.agents.regional.test_prior import DECOYS
from tests.agents.toys import RULES, chain_problem, costs_of_all, graph_cost, problem_on

UNLIMITED = Budget(measurements=10_000, seconds=math.inf)
GOOD = {"ReluAsThresholded": 0.5, "ThresholdedAsLeaky": 0.7, "LeakyAsClip": 0.9}
"""What the chains through these rules save in the end: the first two lose."""


class Told(ForecastsByChain):
    """Knows some rules; of the others it says nothing."""

    def __init__(self, means: dict[str, float]) -> None:
        self.means, self.asked = means, list[tuple[str, ...]]()

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        self.asked.append(tuple(rules))
        mean = self.means.get(rules[-1])
        return None if mean is None else Forecast(mean, 0.05, 9.0)


KNOWING = {**dict.fromkeys((rule.name for rule in (*DECOYS, *RULES)), -0.4), **GOOD}


def crowded(folder: Path, sites: int = 1) -> Problem:
    """A chain with rules that lose beside those that lead to the best graph."""
    chain = chain_problem(folder, sites)
    return problem_on(chain.model.path, folder, Rewriter([*DECOYS, *RULES], "site", deployment=False))


def measurements_until_best(folder: Path, monkeypatch: pytest.MonkeyPatch, told: Told | None, seed: int = 0) -> int:
    """Return the measurements that a search takes until it has the best graph."""
    monkeypatch.setattr("agents.mcts.agent.prior_of", lambda name, deployment: told)
    problem, best = crowded(folder), costs_of_all(1)[0]
    agent = MCTSAgent(prior="means")
    result = agent.optimize(problem, Budget(measurements=50, seconds=math.inf), seed=seed)
    baseline = graph_cost(problem.model.original)
    reached = [number for _, number, speedup in result.trajectory if speedup >= baseline / best - 1e-9]
    return min(reached, default=1000)


def test_what_saved_elsewhere_leads_through_a_valley(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knowing = measurements_until_best(tmp_path, monkeypatch, Told(KNOWING))
    uniform = [measurements_until_best(tmp_path, monkeypatch, None, seed) for seed in (1, 2)]
    assert knowing <= 15
    assert min(uniform) > 2 * knowing


def test_misleading_knowledge_only_costs_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best graph is found all the same, though its rules are said to lose."""
    wrong = Told({name: -mean for name, mean in KNOWING.items()})
    monkeypatch.setattr("agents.mcts.agent.prior_of", lambda name, deployment: wrong)
    problem = chain_problem(tmp_path, 2)
    result = MCTSAgent(prior="means", critic=True).optimize(problem, UNLIMITED)
    assert graph_cost(result.graph) == costs_of_all(2)[0]


def test_a_rewrite_is_looked_up_with_those_that_led_to_it(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    env, told = acting_env(problem, EnvConfig()), Told(GOOD)
    search = Search(problem, UNLIMITED)
    guide, state = SavingsGuide(told, search), EnvState(env, env.reset()[0])
    rng = np.random.default_rng(0)
    assert sum(guide.priors(state, rng).values()) == pytest.approx(1.0)
    assert set(told.asked) == {("ReluAsThresholded",)}
    for rule in ("ReluAsThresholded", "ThresholdedAsLeaky"):
        action = next(n for n, candidate in enumerate(state.env.candidates) if candidate.rule == rule)
        after = state.step(search, action)
        assert after is not None
        state = after
    told.asked.clear()
    priors = guide.priors(state, rng)
    assert ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip") in told.asked
    # The other site begins anew, and is known by now.
    assert ("ReluAsThresholded",) not in told.asked
    likeliest = state.env.candidates[next(iter(priors))]
    assert likeliest.rule == "LeakyAsClip"


def test_what_is_still_to_be_gained_counts_each_site_once(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    env = acting_env(problem, EnvConfig())
    state = EnvState(env, env.reset()[0])
    gains = [SavingsGuide(Told({"ReluAsThresholded": mean}), Search(problem, UNLIMITED), True).gain(state, 1.0)
             for mean in (0.2, 0.4, -0.3)]  # fmt: skip
    assert 0.0 < gains[0] <= 0.4
    assert gains[1] == pytest.approx(2.0 * gains[0])
    assert gains[2] == 0.0
    guide = SavingsGuide(Told({"ReluAsThresholded": 0.2}), Search(problem, UNLIMITED), critic=True)
    assert guide.gain(state, 2.0) == pytest.approx(gains[0] / 2.0)
    assert SavingsGuide(Told({"ReluAsThresholded": 0.2}), Search(problem, UNLIMITED)).gain(state, 1.0) == 0.0


def test_rewrites_in_windows_are_charged(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    result = MCTSAgent(prior="means").optimize(problem, Budget(100, 60.0, applications=11))
    assert result.applications <= 11


def test_it_says_what_its_prior_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, budget = chain_problem(tmp_path, 1), Budget(5, 60.0)
    assert BY_MEANS in make_agent("mcts:prior=means").optimize(problem, budget).message
    monkeypatch.setattr("agents.effects.own_means.SHIPPED", tmp_path / "none.json")
    with pytest.warns(RuntimeWarning, match="nothing is predicted"):
        result = make_agent("mcts:prior=means").optimize(problem, budget)
    assert "uniform prior" in result.message
    assert BY_MEANS not in result.message


def test_priors_follow_promises() -> None:
    priors = priors_of({3: 0.1, 5: None, 7: 0.3, 9: -0.2}, least=0.002)
    assert sum(priors.values()) == pytest.approx(1.0)
    assert list(priors) == [7, 5, 3, 9]
    assert priors[7] == pytest.approx(3.0 * priors[3])
    assert priors[5] == pytest.approx((priors[7] + priors[3] + priors[9]) / 3.0)
    assert priors[9] == pytest.approx(priors[3] / 50.0)
    assert priors_of({1: None, 2: None}, 0.1) == {1: 0.5, 2: 0.5}
    assert priors_of({}, 0.1) == {}


def test_savings_that_overlap_count_once() -> None:
    assert joint_saving([(0.1, {1, 2}), (0.3, {2, 3}), (0.2, {4}), (-0.5, {5})]) == pytest.approx(0.5)
    assert joint_saving([]) == 0.0
