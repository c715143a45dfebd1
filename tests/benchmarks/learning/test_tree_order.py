"""Replayed tree searches: what models save together, and what knowing the windows is worth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agents.effects.step_means import Forecast
from benchmarks.learning.search_order.replaying import Predictions, SearchedNetwork, TableFacts
from benchmarks.learning.search_order.scores import possible
from benchmarks.learning.search_order.trees import ForecastTableGuide, TableGame, UniformTableGuide
from benchmarks.learning.tree_order import main, network_row, replayed, report
from tests.agents.tabular.planted import planted_table

FACTS = TableFacts(planted_table(("one",), windows=2))
"""A network of two windows: the first saves 0.5 of a quarter of the time through a valley, the second 0.3 of half."""
NETWORK = SearchedNetwork("all", "one", (0, 1))
BEST = 0.25 * 0.49 + 0.5 * 0.29
"""By lower bounds, which are 0.01 below."""


def steps_of(rule: str, window: int, depth: int = 0) -> int:
    """Number of the step with a rule."""
    arrays = FACTS.arrays
    (found,) = [
        step for step, state in enumerate(FACTS.state_of)
        if FACTS.table.rules[arrays["step_rule"][step]] == rule
        and (arrays["state_window"][state], arrays["state_depth"][state]) == (window, depth)
    ]  # fmt: skip
    return found


def told(*good: int) -> Predictions:
    """Forecasts of a large gain for some steps, and of a loss for all others."""
    return Predictions(
        forecasts={step: Forecast(0.4 if step in good else -0.3, 0.01, 9.0) for step in range(FACTS.table.steps)}
    )


KNOWING = told(
    steps_of("Reassociate", 0), steps_of("DropIdentity", 0, depth=1), steps_of("MergeGroupPairs", 1)
)  # fmt: skip


def test_windows_of_a_model_save_together() -> None:
    game = TableGame(FACTS, NETWORK, budget=9)
    state = game.root
    assert game.measure(state).speedup == 1.0
    assert game.had == []
    for step in (steps_of("AddsAsSum", 0), steps_of("MergeGroupPairs", 1)):
        after = game.step(state, step)
        assert after is not None
        state = after
    assert game.measure(state).speedup == pytest.approx(1.0 / (1.0 - 0.25 * 0.3 - 0.5 * 0.3))
    assert game.had == [pytest.approx(0.25 * 0.29 + 0.5 * 0.29)]
    worse = game.step(game.root, steps_of("AddsAsSum", 1))
    assert worse is not None
    assert game.measure(worse).speedup < 1.0
    assert game.measure(state) is game.measure(state)  # known, and no timing
    assert game.had == [pytest.approx(0.25 * 0.29 + 0.5 * 0.29)] * 2


def test_a_step_that_failed_leads_nowhere() -> None:
    game = TableGame(FACTS, NETWORK, budget=9)
    before = game.step(game.root, steps_of("Reassociate", 1))
    assert before is not None
    assert game.step(before, steps_of("DropIdentity", 1, depth=1)) is None


def test_guides_know_all_steps_of_all_windows() -> None:
    game = TableGame(FACTS, NETWORK, budget=9)
    random = np.random.default_rng(0)
    uniform, knowing = UniformTableGuide(game), ForecastTableGuide(game, KNOWING)
    priors = [guide.priors(game.root, random) for guide in (uniform, knowing)]
    first = {step for step, state in enumerate(FACTS.state_of) if FACTS.arrays["state_depth"][state] == 0}
    assert priors[0].keys() == priors[1].keys() == first
    assert next(iter(priors[1])) == steps_of("MergeGroupPairs", 1)
    assert uniform.gain(game.root, 1.0) == 0.0
    assert knowing.gain(game.root, 1.0) == pytest.approx(0.4 * (0.25 + 0.5))
    assert ForecastTableGuide(game, KNOWING, critic=False).gain(game.root, 1.0) == 0.0


def test_who_knows_the_windows_needs_fewer_timings() -> None:
    had = replayed(FACTS, NETWORK, "prior", KNOWING, 40, 0)
    assert had[-1] == pytest.approx(BEST) == pytest.approx(possible(FACTS, NETWORK))
    assert len(had) == 40
    assert np.all(np.diff(had) >= 0.0)
    row = network_row(FACTS, NETWORK, KNOWING, 40, draws=5)
    assert row["orders"]["prior"]["timings"] < row["orders"]["uniform"]["timings"]
    found = report([row])
    assert found["orders"]["prior"]["timings"]["relative"] < 1.0
    assert found["orders"]["uniform"]["timings"]["relative"] == 1.0
    # Who is told the opposite never has what the others have, or late.
    wrong = network_row(FACTS, NETWORK, told(steps_of("AddsAsSum", 1)), 6, draws=5)
    assert wrong["orders"]["prior"]["timings"] >= row["orders"]["prior"]["timings"]


def test_the_command_leaves_architectures_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "planted.npz"
    planted_table(("one", "two"), windows=2).save(table)
    out = tmp_path / "report.json"
    assert main(["--table", str(table), "--folds", "2", "--timings", "10", "--draws", "1", "--out", str(out)]) == 0
    found = json.loads(out.read_text("utf-8"))
    assert json.loads(capsys.readouterr().out) == found
    assert found["families"] == ["one", "two"]
    assert found["networks"] == 4  # every window is a model of its own
    assert found["orders"].keys() == {"uniform", "prior", "means"}
