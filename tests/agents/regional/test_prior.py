"""Priors of the screen: with a good one, the best chain is found with fewer timings."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Search
from agents.core.registry import make_agent
from agents.effects.step_means import ChainStep, Forecast, StepMeans
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.prior import EffectPrior, StepPrior, prior_of
from agents.regional.screen import Screen
from graph_rewrite import Rewriter
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, ExactTimer
from tests.agents.toys import RULES, chain_problem, graph_cost, problem_on


def _decoy(name: str, before: str, steps: int) -> Rule:
    """A rule that loses: it puts more identities behind an operator."""

    class Decoy(Rule):
        """f(x) = Identity(... Identity(f(x)))"""

        family = name

        def source(self, op: Any, x: Any) -> Any:
            return getattr(op, before)(x)

        def target(self, op: Any, m: Any, x: Any) -> Any:
            y = getattr(op, before)(x)
            for _ in range(steps):
                y = op.Identity(y)
            return y

    made: Rule = type(name, (Decoy,), {"__doc__": Decoy.__doc__})()
    return made


DECOYS = [_decoy(f"Decoy{number}", ("Relu", "Tanh")[number % 2], number) for number in range(1, 7)]


class Planted:
    """Knows what every chain is worth: the dearest detour counts as what its end saves."""

    def __init__(self, good: Sequence[str]) -> None:
        self.good, self.asked = good, 0

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        self.asked += len(steps)
        return [0.5 if step.rule in self.good else -0.5 for step in steps]


def _timings(folder: Path, prior: EffectPrior | StepPrior | None) -> tuple[float, int]:
    """Return what the best chain saves, and the timings until it was found."""
    chain = chain_problem(folder, 1)
    problem = problem_on(chain.model.path, folder, Rewriter([*DECOYS, *RULES], "site", deployment=False))
    timer, graph = ExactTimer(), problem.model.graph
    options = RegionalOptions(worth=0.0, margin=1)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.01, options, None, prior)
    chains = screen.run(site_classes(problem.rewriter, graph, margin=1), lambda: False)
    best = max(chain.saved for chain in chains)
    costs = [graph_cost(cut.after) for cut in timer.asked]
    return best, costs.index(min(costs)) + 1


def test_a_good_prior_finds_the_best_chain_with_fewer_timings(tmp_path: Path) -> None:
    prior = Planted(["ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip"])
    constant, timed = _timings(tmp_path, None)
    predicted, fewer = _timings(tmp_path, prior)
    assert predicted == constant == pytest.approx(4e-3)  # Relu takes 5 ms, Clip takes 1
    assert prior.asked > 3
    assert fewer == 3  # the chain itself
    assert timed >= 5


class PlantedForecasts(Planted):
    """The same, as forecasts by the chains of steps."""

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        assert [step.rule for step in steps] == [chain.rules[-1] for chain in chains]
        assert {len(chain.rules) for chain in chains} == {depth + 1} == {len(chain.families) for chain in chains}
        self.asked += len(steps)
        return [Forecast(0.5 if step.rule in self.good else -0.5, 0.01, 10.0) for step in steps]


def test_good_forecasts_of_windows_find_it_as_soon(tmp_path: Path) -> None:
    prior = PlantedForecasts(["ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip"])
    assert _timings(tmp_path, prior) == (pytest.approx(4e-3), 3)
    assert prior.asked > 3


def test_a_bad_prior_finds_it_too(tmp_path: Path) -> None:
    """Rules of which nothing is hoped are tried in the end, out of curiosity."""
    saved, _ = _timings(tmp_path, Planted([rule.name for rule in DECOYS]))
    assert saved == pytest.approx(4e-3)


def test_steps_of_which_nothing_is_predicted_go_by_constants(tmp_path: Path) -> None:
    class Silent:
        def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
            return [None] * len(steps)

    assert _timings(tmp_path, Silent()) == _timings(tmp_path, None)


def test_the_model_that_ships_predicts_steps_of_windows(tmp_path: Path) -> None:
    from benchmarks.learning.generated.catalogue import generate

    problem = problem_on(generate("encoder", 0, tmp_path / "e.onnx"), tmp_path, Rewriter(deployment=False))
    prior = prior_of("effects", Deployment())
    assert isinstance(prior, StepPrior)
    found, told = [], []
    for site_class in list(site_classes(problem.rewriter, problem.model.graph))[:12]:
        step = Candidate("site", site_class.window, site_class.sites[:1])
        chain = ChainStep((step.rule,), (site_class.sites[0].rule.family,), "", 0.1)
        (forecast,) = prior.forecasts([step], [chain], 0.0, 0)
        assert forecast is not None
        assert -2.0 <= forecast.mean <= 1.0
        assert forecast.deviation > 0.0
        found.append(forecast.mean)
        told.append(forecast.labels)
    assert len(set(found)) > 3
    assert max(told) >= 1.0
    assert prior.forecasts([], [], 0.0, 0) == []


def test_without_a_model_the_constants_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.effects.prior.SHIPPED", tmp_path)
    with pytest.warns(RuntimeWarning, match="constants are used"):
        assert prior_of("effects", Deployment()) is None
    assert prior_of("constants", Deployment()) is None


def test_the_prior_is_an_option_of_the_agent() -> None:
    assert make_agent("regional:prior=effects").name == "regional:prior=effects"
    with pytest.raises(UserError, match="prior must be one of"):
        make_agent("regional:prior=luck")


def test_large_windows_go_by_the_means(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from envs.observation import ObservationLimits

    monkeypatch.setattr("agents.effects.prior.LIMITS", ObservationLimits(256, 1, 1))
    problem = chain_problem(tmp_path, 2)
    site_class = next(iter(site_classes(problem.rewriter, problem.model.graph)))
    prior, means = prior_of("effects", Deployment()), prior_of("means", Deployment())
    assert isinstance(prior, StepPrior)
    assert isinstance(means, StepMeans)
    step = Candidate("site", site_class.window, site_class.sites[:1])
    chains = [ChainStep(("NoSuchRule",), ("algebra",), "", 0.1), ChainStep(("ExpandGelu",), ("algebra",), "", 0.1)]
    known = means.forecast(*chains[1])
    assert known is not None
    assert prior.forecasts([step, step], chains, 0.0, 0) == [None, known]
