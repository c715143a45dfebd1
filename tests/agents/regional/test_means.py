"""The prior `means`: what it knows of rules orders the screen, and what a search finds out corrects it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Search
from agents.core.registry import make_agent
from agents.effects.step_means import Forecast, StepMeans
from agents.regional.attempts import AttemptLists
from agents.regional.gains import TRUSTED, Effects
from agents.regional.options import RegionalOptions
from agents.regional.prior import StepPrior, prior_of
from agents.regional.screen import Screen
from graph_rewrite import Rewriter
from graph_rewrite.errors import UserError
from graph_rewrite.experience.describing import shape_class_at
from graph_rewrite.experience.means import shape_class
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.site_windows import site_classes
from tests.agents.forecasting import ForecastsByChain
from tests.agents.regional.exact_timer import BUDGET, ExactTimer
from tests.agents.regional.test_prior import DECOYS
from tests.agents.toys import RULES, chain_problem, graph_cost, problem_on
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


@dataclass
class Told(ForecastsByChain):
    """Knows some rules; of the others it says nothing."""

    means: dict[str, float]
    asked: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        self.asked.append((tuple(rules), shapes))
        assert len(rules) == len(families)
        mean = self.means.get(rules[-1])
        return None if mean is None else Forecast(mean, 0.05, 9.0)


def timings(folder: Path, prior: StepPrior | None, **options: Any) -> tuple[float, list[float]]:
    """Return what the best chain saves, and the costs of the graphs that were timed, in their order."""
    chain = chain_problem(folder, 1)
    problem = problem_on(chain.model.path, folder, Rewriter([*DECOYS, *RULES], "site", deployment=False))
    timer, graph = ExactTimer(), problem.model.graph
    settings = RegionalOptions(worth=0.0, margin=1, **options)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.01, settings, None, prior)
    chains = screen.run(site_classes(problem.rewriter, graph, margin=1), lambda: False)
    return max((one.saved for one in chains), default=0.0), [graph_cost(cut.after) for cut in timer.asked]


GOOD = {"ReluAsThresholded": 0.5, "ThresholdedAsLeaky": 0.7, "LeakyAsClip": 0.9}
"""What the chains through these rules save in the end: the first two lose."""


def test_known_rules_are_tried_in_the_order_of_what_they_saved_elsewhere(tmp_path: Path) -> None:
    told = Told({**dict.fromkeys((rule.name for rule in (*DECOYS, *RULES)), -0.4), **GOOD})
    saved, costs = timings(tmp_path, told)
    constant, usual = timings(tmp_path, None)
    assert saved == constant == pytest.approx(4e-3)
    assert costs.index(min(costs)) == 2  # the chain itself, and nothing before it
    assert usual.index(min(usual)) > 2
    chains = dict(told.asked)
    assert chains["ReluAsThresholded", "ThresholdedAsLeaky"].startswith("Relu")


def test_rules_that_lose_elsewhere_are_not_tried_out_of_curiosity(tmp_path: Path) -> None:
    told = Told({**dict.fromkeys((rule.name for rule in (*DECOYS, *RULES)), -0.4), **GOOD})
    assert len(timings(tmp_path, told)[1]) == 3
    # Of a few timings little is known.
    assert len(timings(tmp_path, told, few=10.0)[1]) > 3


def test_of_rules_that_nobody_timed_constants_tell(tmp_path: Path) -> None:
    assert timings(tmp_path, Told({})) == timings(tmp_path, None)


def test_a_search_corrects_what_others_found() -> None:
    effects, told = Effects(), Forecast(0.4, 0.1, 9.0)
    assert effects.revised(("A",), 0.0, told, 0.03, 0.6) == pytest.approx(0.43)
    assert effects.revised(("A",), -0.2, told, 0.03, 0.6) == pytest.approx(0.23)
    effects.record([("A",)], -0.2)
    once = effects.revised(("A",), 0.0, told, 0.03, 0.6)
    assert once == pytest.approx((TRUSTED * 0.4 - 0.2) / (TRUSTED + 1.0) + 0.018)
    for _ in range(50):
        effects.record([("A",)], -0.2)
    assert effects.revised(("A",), 0.0, told, 0.03, 0.6) == pytest.approx(-0.2, abs=0.03)
    assert effects.revised(("B",), 0.0, told, 0.03, 0.6) == pytest.approx(0.43)


def test_a_site_has_the_class_of_shapes_of_its_label(tmp_path: Path) -> None:
    """Else what is learnt from labels would be looked up in vain."""
    problem = convolutions(tmp_path)
    labels = drawn_labels(problem, tmp_path, DrawnTimer())
    logged = {(label.window["fingerprint"], label.rules[0]): shape_class(label) for label in labels}
    found = list(site_classes(problem.rewriter, problem.model.graph))
    classes = {shape_class_at(one.window, one.sites[0]) for one in found}
    assert classes == set(logged.values())
    assert len(classes) == 3
    assert any("Conv strides=[2, 2]" in text for text in classes)


def test_the_means_that_ship_are_an_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_agent("regional:prior=means").name == "regional:prior=means"
    prior = prior_of("means", Deployment())
    assert isinstance(prior, StepMeans)
    assert isinstance(prior, StepPrior)
    monkeypatch.setattr("agents.effects.own_means.SHIPPED", tmp_path / "none.json")
    with pytest.warns(RuntimeWarning, match="constants are used"):
        assert prior_of("means", Deployment()) is None


def test_steps_of_the_library_are_forecast(tmp_path: Path) -> None:
    problem, prior = convolutions(tmp_path), prior_of("means", Deployment())
    lists = AttemptLists(Search(problem, BUDGET), None, prior)
    found = [
        attempt.forecast
        for one in site_classes(problem.rewriter, problem.model.graph)
        for attempt in lists.predicted(lists.first(one, lambda: False))
    ]
    assert len(found) > 3
    known = [one for one in found if one is not None]
    assert len(known) > len(found) / 2
    assert all(-1.0 <= one.mean <= 1.0 and one.deviation > 0.0 for one in known)


def test_the_model_of_effects_is_the_default_and_can_be_turned_off() -> None:
    assert RegionalOptions().prior == "effects"
    assert RegionalOptions(prior="constants").prior == "constants"
    for wrong in ((), (-1.0,)):
        with pytest.raises(UserError, match="hopeful"):
            RegionalOptions(hopeful=wrong)


def test_what_may_be_good_is_tried_once_nothing_is_surely_good(tmp_path: Path) -> None:
    """A rule that is believed to lose by less than two standard deviations is tried after the others."""
    losing = dict.fromkeys((rule.name for rule in (*DECOYS, *RULES)), -0.4)
    doubted = Told({**losing, "ReluAsThresholded": -0.08, "ThresholdedAsLeaky": 0.7, "LeakyAsClip": 0.9})
    assert timings(tmp_path, doubted, hopeful=(1.0,))[1] == []
    assert timings(tmp_path, doubted, hopeful=(1.0, 2.0))[0] == pytest.approx(4e-3)
