"""The order in which chains are tried, and where a screen stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Search
from agents.effects.step_means import Forecast
from agents.regional.gains import FURTHER, Effects, NextMove
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Rewriter
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, OPTIONS, ExactTimer, packed_layers
from tests.agents.toys import RULES, chain_problem


def test_hope_fades_and_what_is_known_takes_its_place() -> None:
    effects = Effects()
    keys = [("A", "B"), ("family", "other")]
    assert effects.expected(keys, 0.0, 0.3, 0.5) == pytest.approx(0.3)
    assert effects.expected(keys, -0.4, 0.3, 0.5) == pytest.approx(0.3)
    effects.record(keys[1:], -0.2)
    assert effects.expected(keys, 0.0, 0.3, 0.5) == pytest.approx(-0.05)
    assert effects.expected(keys, -0.4, 0.3, 0.5) == pytest.approx(-0.25)
    for _ in range(20):
        effects.record(keys[:1], 0.4)
    assert effects.expected(keys, 0.1, 0.3, 0.5) == pytest.approx(0.5, abs=1e-5)
    assert effects.expected(keys, -0.1, 0.3, 0.5) == pytest.approx(0.3, abs=1e-5)


def test_a_screen_stops_where_nothing_promises_more(tmp_path: Path) -> None:
    problem, timer = chain_problem(tmp_path, 2), ExactTimer()
    search = Search(problem, BUDGET)
    screen = Screen(search, timer, Effects(), problem.model.graph, 0.0, OPTIONS)
    nodes = frozenset(problem.model.graph.nodes)
    screen._known.add("everything", [(min(nodes), nodes)], 1.0)  # more than anything can still save
    assert screen.run(site_classes(problem.rewriter, problem.model.graph, margin=1), lambda: False) == []
    assert timer.asked == []


@pytest.mark.parametrize(
    ("share", "found"), [(0.0, []), (0.1, ["ReluAsThresholded > ThresholdedAsLeaky > LeakyAsClip"])]
)
def test_what_a_family_gained_elsewhere_is_not_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: float, found: list[str]
) -> None:
    """Try a step whose family never gained, since nothing else promises anything; a step behind it pays."""
    for rule in RULES:
        monkeypatch.setattr(type(rule), "family", "toy")
    problem, effects = chain_problem(tmp_path, 1), Effects()
    for _ in range(20):
        effects.record([("toy", "toy")], 0.0)
    screen = Screen(
        Search(problem, BUDGET),
        ExactTimer(),
        effects,
        problem.model.graph,
        0.007,
        RegionalOptions(curiosity_share=share),
    )
    chains = screen.run(site_classes(problem.rewriter, problem.model.graph, margin=1), lambda: False)
    assert [str(chain) for chain in chains] == found


class Longer(Rule):
    """Tanh(Relu(x)) = Tanh(Relu(Relu(x)))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(op.Relu(x)))


class Shorter(Rule):
    """Tanh(Relu(x)) = Tanh(x), which nobody proves here"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(x)


@pytest.mark.parametrize("rules", [(Longer(), Shorter()), (Shorter(), Longer())])
def test_a_screen_begins_with_what_saves_operations(tmp_path: Path, rules: tuple[Rule, Rule]) -> None:
    problem, timer = chain_problem(tmp_path, 3), ExactTimer()
    problem.rewriter = Rewriter(rules, deployment=False)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), problem.model.graph, 1.0, RegionalOptions(depth=1))
    found = [
        site_class
        for site_class in site_classes(problem.rewriter, problem.model.graph, margin=1)
        if len(site_class.sites) == 3
    ]
    assert {site_class.sites[0].rule for site_class in found} == set(rules)
    screen.run(found, lambda: False)
    grown = [len(cut.after.nodes) - len(cut.before.nodes) for cut in timer.asked]
    assert grown[0] == -1


def test_what_follows_a_step_is_taken_at_once_whatever_the_depth(tmp_path: Path) -> None:
    problem, timer = packed_layers(tmp_path), ExactTimer()
    screen = Screen(Search(problem, BUDGET), timer, Effects(), problem.model.graph, 0.01, RegionalOptions(depth=1))
    found = [one for one in site_classes(problem.rewriter, problem.model.graph) if "Heads" in one.sites[0].rule.name]
    chains = screen.run(found, lambda: False)
    whole = ["HeadsOfGathers", "SeparateThreeMatMuls", "FuseUnscaledAttention", "PackAttention"]
    assert whole in [[step.rule for step in chain.steps] for chain in chains]
    assert len(timer.asked) == len(whole)  # each part of the chain is timed
    assert {"Attention", "Softmax"} & {node.op for node in timer.asked[-1].after.nodes.values()} == {"Attention"}


@pytest.mark.parametrize("forecast", [None, Forecast(0.05, 0.2, 9.0), Forecast(0.05, 0.2, 1.0)])
@pytest.mark.parametrize("curious", [False, True])
def test_a_move_promises_by_what_is_known_of_its_rule(forecast: Forecast | None, curious: bool) -> None:
    options, effects = RegionalOptions(), Effects()
    move = NextMove([("A",)], 0, 0.0, guess=0.02, predicted=0.01, forecast=forecast)
    of_any = options.optimism[0] + 0.02
    untried = curious and (forecast is None or forecast.labels < options.few)
    expected = of_any if untried else 0.01 if forecast is None else 0.05 + 2.0 * 0.2
    assert move.promise(effects, options, 2.0, curious) == pytest.approx(expected)
    # Once the rule was tried, anywhere, there is nothing to be curious about.
    effects.record([("B", "A")], 0.1)
    assert move.promise(effects, options, 2.0, curious) == move.promise(effects, options, 2.0, False)
    assert NextMove([("A",)], 0, 0.0, guess=9.0).promise(effects, options, 2.0, curious) == options.most_saved


def test_what_a_step_made_possible_is_looked_at_whatever_it_lost() -> None:
    options, effects = RegionalOptions(), Effects()
    hopes = {NextMove([("A", FURTHER)], 1, before).promise(effects, options, 1.0, True) for before in (0.0, -0.5)}
    assert hopes == {options.optimism[1]}
    effects.record([("A", FURTHER)], 0.0)
    known = [NextMove([("A", FURTHER)], 1, before).promise(effects, options, 1.0, True) for before in (0.1, 0.0, -0.5)]
    assert known == pytest.approx(
        [0.1 + options.optimism[1] * options.fading[1], *[options.optimism[1] * options.fading[1]] * 2]
    )
