"""Chains that a policy proposes: which they are, in which order they are timed, and what becomes of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.core.base import Search
from agents.effects.step_means import Forecast
from agents.regional.agent import RegionalAgent
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.prior import ChainPolicy, Prior, ProposingPrior
from agents.regional.screen import Screen
from agents.universal.opinion import Opinion
from graph_rewrite import Rewriter
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes
from tests.agents.forecasting import ForecastsByChain
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.toys import RULES, chain_problem, costs_of_all, graph_cost, problem_on

CHAIN = {"ReluAsThresholded": -0.1, "ThresholdedAsLeaky": -0.1, "LeakyAsClip": 1.2}
"""The way through the valley, with the effects of its steps."""


class TanhTwice(Rule):
    """Tanh(x) = Identity(Tanh(x))"""

    family = "twice"

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Identity(op.Tanh(x))


@dataclass
class Planned:
    """Chooses the rules of `effects`, the first of them first, and predicts their effects; the others lose."""

    effects: Mapping[str, float]

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        ranks = [list(self.effects).index(step.rule) if step.rule in self.effects else 100 for step in steps]
        odds = np.exp(-0.5 * np.array([*ranks, 50.0]))
        effects = np.array([self.effects.get(step.rule, -0.5) for step in steps])
        return Opinion(odds / odds.sum(), effects, np.zeros(len(steps)))

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        return [None] * len(steps)


def screened(folder: Path, prior: Prior | None, **options: Any) -> tuple[ExactTimer, list[str]]:
    """Return the timer after a screen of one Relu and one Tanh, and the chains that gain."""
    chain = chain_problem(folder, 1)
    problem = problem_on(chain.model.path, folder, Rewriter([TanhTwice(), *RULES], "site", deployment=False))
    timer, graph = ExactTimer(), problem.model.graph
    settings = RegionalOptions(worth=0.0, margin=1, **options)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.007, settings, None, prior)
    return timer, [str(one) for one in screen.run(site_classes(problem.rewriter, graph, margin=1), lambda: False)]


def operators(timer: ExactTimer) -> list[list[str]]:
    """The operators of what was timed, in the order of the timings."""
    return [sorted(node.op for node in cut.after.nodes.values()) for cut in timer.asked]


def test_a_policy_is_told_from_other_priors() -> None:
    assert isinstance(Planned({}), ChainPolicy)

    class Plain:
        def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
            return []

    assert not isinstance(Plain(), ChainPolicy)


def test_a_proposed_chain_is_timed_as_a_whole_before_its_steps(tmp_path: Path) -> None:
    timer, chains = screened(tmp_path, Planned(CHAIN))
    assert operators(timer)[0] == ["Clip", "Tanh"]
    assert chains[0] == "ReluAsThresholded > ThresholdedAsLeaky > LeakyAsClip"


@pytest.mark.parametrize(("tanh", "first"), [(0.05, "Clip"), (2.0, "Identity")])
def test_what_promises_to_save_most_per_second_is_timed_first(tmp_path: Path, tanh: float, first: str) -> None:
    """Whatever the policy holds likelier."""
    timer, _ = screened(tmp_path, Planned({**CHAIN, "TanhTwice": tanh}), likely=0.0)
    order = operators(timer)[:2]
    assert first in order[0]
    assert {"Clip", "Identity"} == {op for ops in order for op in ops} - {"Relu", "Tanh"}


def test_so_many_chains_are_proposed_as_the_options_say(tmp_path: Path) -> None:
    """The other first step follows by itself, after what the first chain makes possible."""
    timer, _ = screened(tmp_path, Planned({**CHAIN, "TanhTwice": 0.05}), proposed=1)
    assert operators(timer)[0] == ["Clip", "Tanh"]
    assert any("Identity" in ops for ops in operators(timer)[1:])


def test_where_the_policy_stops_chains_end(tmp_path: Path) -> None:
    timer, _ = screened(tmp_path, Planned({"ReluAsThresholded": 0.3}))
    assert operators(timer)[0] == ["Tanh", "ThresholdedRelu"]


def test_a_policy_that_is_wrong_costs_timings_and_no_chains(tmp_path: Path) -> None:
    timer, chains = screened(tmp_path, Planned({"TanhTwice": 0.9}))
    assert "Identity" in operators(timer)[0]
    assert "ReluAsThresholded > ThresholdedAsLeaky > LeakyAsClip" in chains


def test_what_the_policy_cannot_look_at_goes_by_constants(tmp_path: Path) -> None:
    told, alone = screened(tmp_path, Silent({})), screened(tmp_path, None)
    assert operators(told[0]) == operators(alone[0])
    assert told[1] == alone[1]


class Means(ForecastsByChain):
    """Forecasts what rules lead to."""

    def __init__(self, means: Mapping[str, float]) -> None:
        self.means = means

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        mean = self.means.get(rules[-1])
        return None if mean is None else Forecast(mean, 0.05, 9.0)


KNOWN = Means({**dict.fromkeys(CHAIN, 0.6), "ThresholdedAsRelu": -0.4})


class Silent(Planned):
    """Can look at no window."""

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        return None


def test_a_policy_that_cannot_look_at_windows_leaves_the_search_by_means_as_it_is(tmp_path: Path) -> None:
    told, alone = screened(tmp_path, ProposingPrior(Silent({}), KNOWN)), screened(tmp_path, KNOWN)
    assert operators(told[0]) == operators(alone[0])
    assert told[1] == alone[1]


@pytest.mark.parametrize(
    "effects", [{"TanhTwice": 0.9}, {"ReluAsThresholded": -0.9}, {"ReluAsThresholded": 0.3, "TanhTwice": 0.1}]
)
def test_whatever_a_policy_proposes_the_search_by_means_follows(tmp_path: Path, effects: Mapping[str, float]) -> None:
    """All that is timed without the policy is timed with it, so that the same chains are there to choose from."""
    told, alone = screened(tmp_path, ProposingPrior(Planned(effects), KNOWN)), screened(tmp_path, KNOWN)
    assert {*map(tuple, operators(told[0]))} >= {*map(tuple, operators(alone[0]))}
    assert set(told[1]) >= set(alone[1]) != set()


def test_a_good_policy_in_front_of_means_is_followed_first(tmp_path: Path) -> None:
    timer, chains = screened(tmp_path, ProposingPrior(Planned(CHAIN), Means({})))
    assert operators(timer)[0] == ["Clip", "Tanh"]
    assert chains[0] == "ReluAsThresholded > ThresholdedAsLeaky > LeakyAsClip"


def test_what_is_proposed_and_promises_nothing_is_opened_by_its_forecast(tmp_path: Path) -> None:
    """The policy expects a loss, other models a gain."""
    policy = ProposingPrior(Planned({"TanhTwice": -0.9}), Means({"TanhTwice": 0.8, **dict.fromkeys(CHAIN, -0.4)}))
    timer, _ = screened(tmp_path, policy)
    assert operators(timer)[0] == ["Identity", "Relu", "Tanh"]


def test_without_time_nothing_is_proposed(tmp_path: Path) -> None:
    timer, _ = screened(tmp_path, Planned(CHAIN), proposing_share=0.0)
    assert operators(timer)[0] != ["Clip", "Tanh"]


def test_a_search_with_a_policy_ends_at_the_optimum(tmp_path: Path) -> None:
    problem, timer = chain_problem(tmp_path, 2), ExactTimer()
    agent: RegionalAgent = agent_with(timer)

    def made(one: Problem) -> Prior:
        assert one is problem
        return Planned(CHAIN)

    agent.prior_for = made
    result = agent.optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    assert result.verified
    # What each step saved is told, although the first two were not timed by themselves.
    assert all(action.window_s is not None for action in result.actions if action.rule in CHAIN)


@pytest.mark.parametrize("option", ["proposed=0", "likely=2.0", "proposing_share=-1.0"])
def test_options_out_of_range_are_refused(option: str) -> None:
    name, _, value = option.partition("=")
    with pytest.raises(UserError, match=name):
        RegionalOptions(**{name: float(value)})  # type: ignore[arg-type]
