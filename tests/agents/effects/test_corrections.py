"""Corrections of a model's predictions by what was timed: most in the very window, less on alike shapes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.effects.own_means import remember
from agents.effects.prior import LearntPrior, savings
from agents.effects.samples import share_after
from agents.effects.step_means import (
    CLASS_PRIOR,
    MEANS_COUNT,
    WINDOW_PRIOR,
    ChainStep,
    Expectation,
    Forecast,
    MeansOnLine,
    StepMeans,
)
from agents.effects.timed_steps import TimedStep
from graph_rewrite import Rewriter
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.site_windows import site_classes
from tests.agents.toys import problem_on

HERE = ChainStep(("A",), ("algebra",), "Conv 3", 0.1, "this window")
ALIKE = HERE._replace(window="another window")
ELSEWHERE = HERE._replace(shapes="Conv 9", window="")
PREDICTED = Forecast(0.2, 0.1, 5.0, Expectation(0.1, 0.05))
GENERAL = StepMeans(MeansOnLine(line=(0.05, 0.3)), MeansOnLine(line=(0.0, 0.2)))
"""What steps save on all processors; a model that was trained on these needs no correction by it."""


def beyond(timings: int, best: float, own: float) -> StepMeans:
    """Return means of a machine, on which a step was timed so often in one window."""
    more = StepMeans(MeansOnLine(), MeansOnLine())
    told_best, told_own = GENERAL.expect(HERE.names, HERE.guess)
    for _ in range(timings):
        more.best.means.add(HERE.names, best - told_best.mean)
        more.own.means.add(HERE.names, own - told_own.mean)
    return more


def corrected(means: StepMeans, step: ChainStep) -> Forecast:
    return means.corrected(step.names, step.guess, PREDICTED)


def test_where_means_know_nothing_the_model_is_believed() -> None:
    for means in (GENERAL, GENERAL.extended(beyond(0, 0.0, 0.0))):
        found = corrected(means, HERE)
        assert (found.mean, found.deviation, found.labels) == pytest.approx((0.2, 0.1, 5.0), rel=0.05)
        assert found.own == pytest.approx(PREDICTED.own, rel=0.05)


def test_means_that_are_as_sure_as_the_model_have_a_third_of_the_say() -> None:
    sure = Expectation(PREDICTED.mean, PREDICTED.deviation)
    found = sure.pooled(Expectation(-0.4, PREDICTED.deviation), MEANS_COUNT)
    assert found.mean == pytest.approx((2 * PREDICTED.mean - 0.4) / 3)
    assert found.deviation == pytest.approx(PREDICTED.deviation)
    # Means that many timings agree on decide, and they leave little doubt.
    told = MeansOnLine()
    for _ in range(1000):
        told.means.add(HERE.names, -0.4)
    found = corrected(StepMeans(told, MeansOnLine()), HERE)
    assert found.mean == pytest.approx(-0.4, abs=0.05)
    assert found.deviation < 0.5 * PREDICTED.deviation


@given(st.integers(1, 50), st.floats(-0.5, 0.5), st.floats(-0.5, 0.5))
def test_timings_count_by_how_near_they_are(timings: int, best: float, own: float) -> None:
    means = GENERAL.extended(beyond(timings, best, own))
    untold = corrected(GENERAL, HERE).mean
    alike = (CLASS_PRIOR * untold + timings * best) / (CLASS_PRIOR + timings)
    assert corrected(means, ALIKE).mean == pytest.approx(alike)
    here = (WINDOW_PRIOR * alike + timings * best) / (WINDOW_PRIOR + timings)
    found = corrected(means, HERE)
    assert found.mean == pytest.approx(here)
    assert corrected(means, ELSEWHERE).mean == pytest.approx(untold)
    # By itself it is known as well as at best.
    assert found.own is not None
    assert abs(found.own.mean - own) <= abs(corrected(means, ALIKE).own.mean - own) + 1e-9  # type: ignore[union-attr]


def test_much_that_agrees_leaves_little_doubt() -> None:
    doubts = [corrected(GENERAL.extended(beyond(timings, 0.2, 0.1)), HERE).deviation for timings in (0, 1, 10, 100)]
    assert doubts == sorted(doubts, reverse=True)
    assert doubts[-1] < 0.2 * doubts[0]


def test_a_machine_has_the_last_word_over_its_kind() -> None:
    kind = GENERAL.extended(beyond(100, 0.4, 0.4))
    own = StepMeans(MeansOnLine(), MeansOnLine())
    told = kind.expect(HERE.names, HERE.guess)[0].mean
    for _ in range(100):
        own.best.means.add(HERE.names, -0.3 - told)
    assert corrected(kind, HERE).mean == pytest.approx(0.4, abs=0.01)
    assert corrected(kind.extended(own), HERE).mean == pytest.approx(-0.3, abs=0.02)


@given(st.floats(-1.0, 0.8), st.lists(st.tuples(st.floats(-1.0, 1.5), st.floats(-1.0, 1.5)), min_size=1, max_size=4))
def test_effects_become_shares_beyond_the_chain_before(share: float, effects: list[tuple[float, float]]) -> None:
    means = np.array(effects)
    found = savings(share, means, np.full(means.shape, 0.1), [1.0] * len(effects))
    for forecast, (own, best) in zip(found, effects, strict=True):
        assert forecast.mean == pytest.approx(float(share_after(share, best)) - share)
        assert forecast.own is not None
        assert forecast.own.mean == pytest.approx(float(share_after(share, own)) - share)
        assert forecast.deviation > 0.0


def test_what_this_machine_timed_corrects_the_model_that_ships(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.learning.generated.catalogue import generate

    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    problem = problem_on(generate("encoder", 0, tmp_path / "e.onnx"), tmp_path, Rewriter(deployment=False))

    def forecast(site_class: object, chain: ChainStep) -> float | None:
        step = Candidate("site", site_class.window, site_class.sites[:1])  # type: ignore[attr-defined]
        (found,) = LearntPrior.shipped(Deployment()).forecasts([step], [chain], 0.0, 0)
        return None if found is None else found.mean

    for site_class in site_classes(problem.rewriter, problem.model.graph):
        rule = site_class.sites[0].rule
        chain = ChainStep((rule.name,), (rule.family,), "shapes of the test", 0.0, "window of the test")
        before = forecast(site_class, chain)
        if before is not None:
            break
    else:
        pytest.fail("no step is known")
    remember({"a": TimedStep(chain.names, 0.0, 0.8, 0.8, 1.0)}, Deployment())
    after = forecast(site_class, chain)
    assert after is not None
    assert abs(after - 0.8) < 0.6 * abs(before - 0.8)
    assert forecast(site_class, chain._replace(window="")) == pytest.approx(
        (CLASS_PRIOR * before + 0.8) / (CLASS_PRIOR + 1.0)
    )
