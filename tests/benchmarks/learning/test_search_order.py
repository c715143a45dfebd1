"""Replayed searches: which timings they take, in which order, and how their effort is scored."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.effects.step_means import Forecast
from benchmarks.learning.search_order.__main__ import main
from benchmarks.learning.search_order.orders import by_effects, by_means, by_policy, least_timings
from benchmarks.learning.search_order.replaying import (
    Predictions,
    Proposal,
    ReplayedSearch,
    SearchedNetwork,
    TableFacts,
    TableSearch,
    drawn_search,
)
from benchmarks.learning.search_order.scores import comparison, early_comparison, possible, savings, score
from envs.window import WindowTable
from envs.window.table import SHIPPED
from tests.agents.tabular.planted import planted_table

FACTS = TableFacts(planted_table(("one",), windows=2))
"""A network of two windows: the first saves 0.5 of a quarter of the time through a valley, the second 0.3 of half."""


def rules(search: ReplayedSearch) -> list[tuple[int, str]]:
    """Windows and rules of the timings."""
    arrays, names = FACTS.table.arrays, FACTS.table.rules
    return [(timing.window, names[arrays["step_rule"][timing.step]]) for timing in search.timings]


def steps_of(rule: str, depth: int = 0, window: int | None = None) -> list[int]:
    """Numbers of the steps with a rule."""
    arrays = FACTS.arrays
    return [
        step for step, state in enumerate(FACTS.state_of)
        if FACTS.table.rules[arrays["step_rule"][step]] == rule and arrays["state_depth"][state] == depth
        and window in (None, arrays["state_window"][state])
    ]  # fmt: skip


def test_windows_of_a_model_under_a_deployment_are_a_network() -> None:
    facts = TableFacts(planted_table(("one", "two"), windows=4))
    assert [(one.family, len(one.windows)) for one in facts.networks()] == [("one", 1)] * 4 + [("two", 1)] * 4
    assert {one.family for one in facts.networks({"two"})} == {"two"}


def together(facts: TableFacts) -> SearchedNetwork:
    """All windows as one network."""
    return SearchedNetwork("all", "one", tuple(range(len(facts.table.windows))))


def test_a_search_times_every_step_once_and_children_after_their_parents() -> None:
    network, parents = together(FACTS), FACTS.table.parents()
    for predictions in (Predictions(), Predictions(dict.fromkeys(range(FACTS.table.steps), -1.0))):
        search = TableSearch(FACTS, network, predictions).run()
        order = [timing.step for timing in search.timings]
        assert sorted(order) == list(range(FACTS.table.steps))
        place = {FACTS.arrays["step_next"][step]: number for number, step in enumerate(order)}
        for state, number in place.items():
            assert place.get(int(parents[state]), -1) < number
        assert 0 <= search.promising <= len(order)
    drawn = drawn_search(FACTS, network, np.random.default_rng(0))
    assert sorted(timing.step for timing in drawn.timings) == list(range(FACTS.table.steps))


def test_what_is_forecast_to_save_most_is_timed_first() -> None:
    network = together(FACTS)
    told = {step: Forecast(-0.3, 0.01, 9.0) for step in range(FACTS.table.steps)}
    told |= {step: Forecast(0.3, 0.01, 9.0) for step in steps_of("MergeGroupPairs", window=1)}
    told |= {step: Forecast(-0.1, 0.01, 9.0) for step in steps_of("Reassociate", window=0)}
    told |= {step: Forecast(0.6, 0.01, 9.0) for step in steps_of("DropIdentity", depth=1, window=0)}
    search = TableSearch(FACTS, network, Predictions(forecasts=told)).run()
    assert rules(search)[0] == (1, "MergeGroupPairs")
    # The loss itself promises nothing, so that the screen ends before what lies behind it.
    assert search.promising == 1
    hopeful = {**told, **{step: Forecast(0.4, 0.01, 9.0) for step in steps_of("Reassociate", window=0)}}
    search = TableSearch(FACTS, network, Predictions(forecasts=hopeful)).run()
    assert rules(search)[:3] == [(1, "MergeGroupPairs"), (0, "Reassociate"), (0, "DropIdentity")]


def test_hopes_order_as_priors_of_the_screen_do() -> None:
    network = together(FACTS)
    hopes = dict.fromkeys(range(FACTS.table.steps), -0.5)
    hopes |= dict.fromkeys(steps_of("AddsAsSum", window=0), 0.9)
    assert rules(TableSearch(FACTS, network, Predictions(hopes)).run())[0] == (0, "AddsAsSum")


def test_proposed_chains_are_timed_as_a_whole() -> None:
    network = together(FACTS)
    (end,) = steps_of("DropIdentity", depth=1, window=0)
    search = TableSearch(FACTS, network, Predictions(proposals=[Proposal(end, 0.5, -0.1)])).run()
    assert search.timings[0].step == end
    assert sorted(timing.step for timing in search.timings) == list(range(FACTS.table.steps))
    nothing = TableSearch(FACTS, network, Predictions(proposals=[Proposal(end, -0.5, -0.1)])).run()
    assert nothing.timings == TableSearch(FACTS, network, Predictions()).run().timings


def test_steps_that_were_not_timed_give_way_to_those_behind_them() -> None:
    measured = FACTS.table.arrays["step_measured"].copy()
    (first,) = steps_of("Reassociate", window=0)
    measured[first] = False
    facts = TableFacts(replace(FACTS.table, arrays={**FACTS.table.arrays, "step_measured": measured}))
    search = TableSearch(facts, together(facts), Predictions()).run()
    assert sorted(timing.step for timing in search.timings) == [n for n in range(FACTS.table.steps) if n != first]


def test_scores_by_hand() -> None:
    """0.5 of a quarter of the time in the first window, 0.3 of half of it in the second, each less 0.01 that timing is
    wrong by."""
    network = together(FACTS)
    assert possible(FACTS, network) == pytest.approx(0.1225 + 0.145)
    told = {step: Forecast(-0.3, 0.01, 9.0) for step in range(FACTS.table.steps)}
    told |= {step: Forecast(0.3, 0.01, 9.0) for step in steps_of("MergeGroupPairs", window=1)}
    search = TableSearch(FACTS, network, Predictions(forecasts=told)).run()
    saved = savings(FACTS, search.timings)
    assert saved[0] == pytest.approx(0.145)
    assert saved[-1] == pytest.approx(0.2675)
    assert (np.diff(saved) >= 0.0).all()
    found = score(FACTS, network, search)
    needed = next(number for number, one in enumerate(saved, 1) if one >= 0.9 * saved[-1])
    assert found.timings == needed
    assert found.early[0] == pytest.approx(saved[4] / 0.2675)
    assert found.early[-1] == 1.0  # there are fewer timings than that
    assert found.at_end == pytest.approx(0.145 / 0.2675)
    likely = TableFacts(FACTS.table, sure=False)
    assert possible(likely, network) == pytest.approx(0.125 + 0.15, rel=0.01)
    assert least_timings(FACTS, network.windows, 0.9) == 3.0
    assert least_timings(FACTS, network.windows, 0.5) == 1.0


def test_orders_are_compared_by_networks_within_families() -> None:
    def row(family: str, timings: float) -> dict[str, Any]:
        scores = {"timings": timings, "seconds": timings, "at_end": 1.0, "early": [0.5, 0.5, 0.5, 1.0, 1.0]}
        usual = {**scores, "timings": 10.0, "early": [0.4, 0.4, 0.4, 0.9, 0.9]}
        return {"family": family, "orders": {"constants": usual, "means": scores}}

    rows = [row("a", 5.0), row("a", 5.0), row("b", 5.0), row("c", 5.0)]
    found = comparison(rows, "means")
    assert (found["relative"], found["ci95"], found["mean"]) == (0.5, [0.5, 0.5], 5.0)
    mixed = comparison([row("a", 5.0), row("b", 20.0)] * 3, "means")
    assert mixed["relative"] == 1.0
    assert mixed["ci95"] == [0.5, 2.0]
    assert comparison(rows, "constants")["relative"] == 1.0
    early = early_comparison(rows, "means")
    assert early["percent"] == {"5": 50.0, "10": 50.0, "20": 50.0, "40": 100.0, "80": 100.0}
    assert (early["ahead"], early["ci95"]) == (10.0, [10.0, 10.0])


@pytest.fixture(scope="module")
def few() -> WindowTable:
    """The table that ships."""
    return WindowTable.load(SHIPPED)


def test_predictions_come_from_other_architectures(few: WindowTable) -> None:
    """Measurements in the families that are left out change no prediction for them."""
    facts = TableFacts(few)
    families = ("nasrnn", "recurrent")
    told = by_means(facts, families, 0).forecasts
    inside = {
        step for step, state in enumerate(facts.state_of)
        if few.windows[facts.arrays["state_window"][state]].family in families
    }  # fmt: skip
    assert set(told) <= inside
    assert len(told) > 10
    share = few.arrays["step_share"].copy()
    share[sorted(inside)] = 0.7
    other = TableFacts(replace(few, arrays={**few.arrays, "step_share": share}))
    assert by_means(other, families, 0).forecasts == told


def test_models_and_policies_predict_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.core.config import Config, EncoderConfig, EnvConfig, PretrainingConfig, TrainingConfig
    from agents.effects.training import EffectTraining

    small = Config(
        env=EnvConfig(features="full"), encoder=EncoderConfig(hidden=16, layers=1, attention_heads=2),
        training=TrainingConfig(total_timesteps=0, n_envs=1), pretraining=PretrainingConfig(epochs=40),
    )  # fmt: skip
    monkeypatch.setattr("benchmarks.learning.search_order.orders.load_config", lambda *_, **__: small)
    monkeypatch.setattr(
        "benchmarks.learning.search_order.orders.EffectTraining",
        lambda members, seed: EffectTraining(members=1, epochs=2, seed=seed),
    )
    facts = TableFacts(planted_table(("one", "two"), windows=6))
    inside = {
        step for step, state in enumerate(facts.state_of)
        if facts.table.windows[facts.arrays["state_window"][state]].family == "two"
    }  # fmt: skip
    assert set(by_effects(facts, ("two",), 0).forecasts) == inside
    policy = by_policy(facts, ("two",), 0)
    # What the policy does not propose goes by the means.
    assert policy.forecasts == by_means(facts, ("two",), 0).forecasts
    assert set(policy.forecasts) == inside
    assert {proposal.step for proposal in policy.proposals} <= inside
    assert policy.proposals


def test_the_command_prints_what_it_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = planted_table(("one", "two", "three"), windows=4)
    kinds = table.arrays["state_window"][np.repeat(np.arange(table.states), np.diff(table.arrays["step_start"]))] % 2
    replace(table, arrays={**table.arrays, "step_class": kinds}, classes=("a", "b")).save(tmp_path / "t.npz")
    options = ["--orders", "constants", "means", "--folds", "3", "--draws", "3"]
    assert main(["--table", str(tmp_path / "t.npz"), *options, "--out", str(tmp_path / "o.json")]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "o.json").read_text())
    assert printed["networks"] == 12
    assert set(printed["orders"]) == {"constants", "means", "random"}
    means = printed["orders"]["means"]["timings"]
    assert means["ci95"][0] <= means["relative"] <= means["ci95"][1]
    assert means["relative"] < 1.0  # planted effects are the same in all families
    assert printed["least"] <= min(one["timings"]["mean"] for one in printed["orders"].values())
    assert main(["--table", str(tmp_path / "t.npz"), *options, "--out", str(tmp_path / "again.json")]) == 0
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "o.json").read_bytes()
    assert main(["--orders", "luck"]) == 2
    assert "no order luck" in capsys.readouterr().err
