"""The draft: what is forecast to save is put together and measured before any window is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from agents.core.base import Budget, Search
from agents.effects.step_means import Expectation, Forecast
from agents.regional.assembly import best_of
from agents.regional.attempts import Attempt
from agents.regional.chains import RewriteChain
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.prior import Prior
from agents.regional.screen import Screen
from graph_rewrite import Rewriter, Rule
from graph_rewrite.latency import Deployment
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes
from tests.agents.forecasting import ForecastsByChain
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.toys import RULES, ExactMeter, LeakyAsClip, chain_problem, costs_of_all, graph_cost, problem_on


@dataclass
class Told(ForecastsByChain):
    """Forecasts steps by their chains of rules: what each saves, and leads to."""

    means: dict[tuple[str, ...], float]
    leads: dict[tuple[str, ...], float] = field(default_factory=dict)
    """What steps lead to that lead to more than they save."""
    deviation: float = 0.05
    labels: float = 9.0
    asked: list[tuple[str, ...]] = field(default_factory=list)

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        self.asked.append(tuple(rules))
        mean = self.means.get(tuple(rules))
        if mean is None:
            return None
        leads = self.leads.get(tuple(rules), mean)
        return Forecast(leads, self.deviation, self.labels, Expectation(mean, self.deviation))


CHAIN = ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip")
GAINING = {CHAIN[:1]: 0.2, CHAIN[:2]: 0.2, CHAIN: 0.2}


def drafted(
    problem: Problem, prior: Prior | None, until: Callable[[], bool] = lambda: False, **options: float
) -> tuple[list[str], int]:
    """Return the chains of a draft, and the windows that were timed for it."""
    timer, graph = ExactTimer(), problem.model.graph
    settings = RegionalOptions(margin=1, **options)  # type: ignore[arg-type]
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.007, settings, None, prior)
    chains = best_of(screen.forecast(site_classes(problem.rewriter, graph, margin=1), until))
    return [str(chain) for chain in chains], len(timer.asked)


def two_kinds(folder: Path) -> Problem:
    """Relu of 2 rows, and behind it of 4."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "small"), helper.make_node("Concat", ["a", "a"], ["b"], "two", axis=0),
        helper.make_node("Relu", ["b"], ["y"], "large"),
    ]  # fmt: skip
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (rows, 3)) for name, rows in (("x", 2), ("y", 4))]
    graph, path = helper.make_graph(nodes, "two", values[:1], values[1:]), folder / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), str(path))
    return problem_on(path, folder, Rewriter(RULES, "site", deployment=False))


def test_chains_are_carried_on_as_long_as_the_next_step_is_hoped_to_save(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    assert drafted(problem, Told(GAINING)) == ([" > ".join(CHAIN)], 0)
    for length in (1, 2):
        some = {chain: mean for chain, mean in GAINING.items() if len(chain) <= length}
        assert drafted(problem, Told(some))[0] == [" > ".join(CHAIN[:length])]
        losing = {**GAINING, CHAIN[: length + 1]: -0.1}
        assert drafted(problem, Told(losing))[0] == [" > ".join(CHAIN[:length])]
    assert drafted(problem, Told(GAINING), depth=2)[0] == [" > ".join(CHAIN[:2])]


def test_a_step_that_loses_is_taken_for_what_it_leads_to(tmp_path: Path) -> None:
    """The first two steps lose, and the third gains more: what the chain saves as a whole decides."""
    means = {CHAIN[:1]: -0.1, CHAIN[:2]: -0.1, CHAIN: 0.8}
    leads = {CHAIN[:1]: 0.6, CHAIN[:2]: 0.7}
    problem = chain_problem(tmp_path, 1)
    assert drafted(problem, Told(means, leads))[0] == [" > ".join(CHAIN)]
    assert drafted(problem, Told(means, leads), depth=2) == ([], 0)
    assert drafted(problem, Told({**means, CHAIN: 0.1}, leads)) == ([], 0)
    assert drafted(problem, Told(means, {})) == ([], 0)


class ReluAsClip(Rule):
    """Relu(x) = Clip(x, 0)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Clip(x, op.constant(np.zeros((), np.float32)))


def test_a_step_that_leads_to_less_than_hoped_gives_way(tmp_path: Path) -> None:
    """The first step that is hoped to lead to most at a node is carried on before another one. Its chain saves less
    than what the other one does."""
    problem = chain_problem(tmp_path, 1)
    problem.rewriter = Rewriter((*RULES, ReluAsClip()), "site", deployment=False)
    leads, other = {CHAIN[:1]: 0.6}, ("ReluAsClip",)
    for led_to, expected in ((0.2, " > ".join(CHAIN[:2])), (0.0, "ReluAsClip"), (-0.5, "ReluAsClip")):
        told = Told({CHAIN[:1]: 0.1, CHAIN[:2]: led_to, other: 0.2}, leads)
        assert drafted(problem, told)[0] == [expected]


def test_what_is_not_hoped_to_save_is_not_drafted(tmp_path: Path) -> None:
    problem, losing = chain_problem(tmp_path, 1), dict.fromkeys(GAINING, -0.1)
    assert drafted(problem, Told(losing)) == ([], 0)
    assert drafted(problem, Told(losing, deviation=0.5), drafting_hope=0.3)[0] == [CHAIN[0]]  # -0.1 + 0.3 * 0.5
    assert drafted(problem, Told(losing, deviation=0.5)) == ([], 0)  # -0.1 + 0.1 * 0.5
    assert drafted(problem, Told(GAINING), drafting_hope=-9.0) == ([], 0)
    assert drafted(problem, Told(GAINING, labels=1.0)) == ([], 0)
    assert drafted(problem, Told(GAINING), worth=0.9) == ([], 0)
    assert drafted(problem, Told({})) == ([], 0)
    assert drafted(problem, None) == ([], 0)


def test_a_further_step_is_not_taken_for_being_uncertain(tmp_path: Path) -> None:
    """The first step is hoped to save more than its mean. A second one that is as uncertain must save by its own."""
    problem = chain_problem(tmp_path, 1)
    for second, expected in ((0.02, CHAIN[:2]), (-0.02, CHAIN[:1])):
        told = Told({CHAIN[:1]: 0.1, CHAIN[:2]: second}, deviation=0.3)
        assert drafted(problem, told)[0] == [" > ".join(expected)]


def test_steps_like_those_that_finish_are_left_to_finishing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_problem(tmp_path, 1)
    finishing = type("Finishing", (LeakyAsClip,), {"covers_parts": True, "family": "layout of parts"})
    problem.rewriter = Rewriter((*RULES[:-1], finishing()), "site", deployment=False)
    chain = (*CHAIN[:2], "Finishing")
    told = Told({**dict.fromkeys((CHAIN[:1], CHAIN[:2]), 0.2), chain: 0.4})
    assert drafted(problem, told)[0] == [" > ".join(CHAIN[:2])]
    monkeypatch.setattr(finishing, "covers_parts", False)
    assert drafted(problem, told)[0] == [" > ".join(chain)]


def test_without_time_steps_stay_alone(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    assert drafted(problem, Told(GAINING), drafting_share=0.0)[0] == [CHAIN[0]]


def test_a_drafted_graph_is_the_first_one_measured(tmp_path: Path) -> None:
    """With two measurements, of which the start takes one though it is not measured, it is the result."""
    problem = chain_problem(tmp_path, 3, "both")
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told(GAINING)
    result = agent.optimize(problem, Budget(2, 60.0))
    assert graph_cost(result.graph) == costs_of_all(3)[0]
    assert result.measurements == 2
    assert isinstance(problem.meter, ExactMeter)
    assert problem.model.graph.hash not in problem.meter.measured
    # What its steps save in windows was forecast, and not timed.
    assert all(action.window_s is None for action in result.actions)


def test_without_time_to_measure_it_a_draft_is_left_to_the_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.regional.finishing.lacks_time", lambda *_: True)
    problem = chain_problem(tmp_path, 3, "both")
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told(GAINING)
    search = Search(problem, BUDGET)
    agent.explore(search)
    assert search.proposed is not None
    assert graph_cost(search.proposed.graph) == costs_of_all(3)[0]
    assert search.proposed.gain > 0.0
    assert isinstance(problem.meter, ExactMeter)
    assert problem.meter.measured == []


def test_a_draft_that_is_wrong_costs_one_measurement(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told({CHAIN[:1]: 0.5})
    result = agent.optimize(problem, BUDGET)
    assert isinstance(problem.meter, ExactMeter)
    measured = list(dict.fromkeys(problem.meter.measured))
    plain = agent_with(ExactTimer(), draft=False)
    plain.prior_for = agent.prior_for
    other = chain_problem(tmp_path, 2)
    assert plain.optimize(other, BUDGET).graph.hash == result.graph.hash
    assert isinstance(other.meter, ExactMeter)
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    start = problem.model.graph.hash
    assert other.meter.measured[0] == start
    assert set(measured) - set(other.meter.measured) == {measured[0]}
    assert set(other.meter.measured) - set(measured) == {start}


@pytest.mark.parametrize("proved", [False, True])
def test_where_a_draft_proved_good_what_promises_more_is_timed_first(tmp_path: Path, proved: bool) -> None:
    """The window of the larger one promises more; where its chain is drafted already, it follows."""
    problem = two_kinds(tmp_path)
    graph, timer = problem.model.graph, ExactTimer()
    screen = Screen(
        Search(problem, BUDGET), timer, Effects(), graph, 0.011, RegionalOptions(margin=1), None, Told(GAINING)
    )

    classes = list(site_classes(problem.rewriter, graph, margin=1))
    chains = best_of(screen.forecast(classes, lambda: False))
    assert len(chains) == 2
    screen.run(classes, lambda: False, [chain for chain in chains if proved and 2 in chain.anchors])
    rewritten = [min(cut.before.nodes.keys() - cut.after.nodes.keys()) for cut in timer.asked]
    assert set(rewritten) == {0, 2}
    assert rewritten[0] == (0 if proved else 2)


@pytest.mark.parametrize(("deployment", "expected"), [(Deployment(), True), (Deployment("cuda"), False)])
def test_models_are_drafted_where_the_means_were_learnt(tmp_path: Path, deployment: Deployment, expected: bool) -> None:
    """On CPUs."""
    problem = chain_problem(tmp_path, 2)
    problem.deployment, graph = deployment, problem.model.graph
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told({CHAIN[:1]: 0.5})
    agent.explore(Search(problem, BUDGET))
    assert isinstance(problem.meter, ExactMeter)
    assert (problem.meter.measured[0] != graph.hash) == expected


@pytest.mark.parametrize("forecast", [0.2, -0.1])
def test_where_no_other_measurement_fits_the_search_ends_with_its_draft(tmp_path: Path, forecast: float) -> None:
    """A measurement that took 40 s of 60 leaves no time for another. What is left goes to the conclusion."""
    problem = chain_problem(tmp_path, 3, "both")
    problem.cost = lambda graph, effort="screen": 40.0  # type: ignore[method-assign]
    timer, searches = ExactTimer(), list[Search]()
    agent = agent_with(timer)
    agent.prior_for = lambda _: Told({**GAINING, CHAIN[:1]: forecast}, {CHAIN[:1]: 0.4})
    result = agent.optimize(problem, BUDGET, progress=searches.append)
    assert len(searches[-1].visits) == 2
    assert not searches[-1].ended
    assert not timer.asked
    assert graph_cost(result.graph) == costs_of_all(3)[0]
    first, second = result.improvements
    assert (first.seconds, first.measurements, first.speedup) == (0.0, 0, 1.0)
    assert second.speedup > 1.0


def test_a_draft_that_cannot_be_run_leaves_the_search_as_it_is(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    assert isinstance(problem.meter, ExactMeter)
    problem.meter.failing = {"ThresholdedRelu": "crash"}
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told({CHAIN[:1]: 0.5})
    result = agent.optimize(problem, BUDGET)
    assert problem.meter.measured[1] == problem.model.graph.hash
    assert graph_cost(result.graph) <= graph_cost(problem.model.graph)


class OfLarge(Told):
    """Right about one of two kinds of sites, wrong about the other."""

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        if shapes.startswith("Relu 2"):
            return Told.forecast(self, rules, families, shapes, guess)
        return Forecast(0.5, 0.05, 9.0, Expectation(0.5, 0.05)) if len(rules) == 1 else None


def test_what_was_drafted_stands_where_no_window_was_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the best of both: of two kinds of sites the draft is wrong about one, which is timed, and right about the
    other, for which no time is left."""
    problem = two_kinds(tmp_path)

    explore = Screen._explore

    def of_small(screen: Screen, attempts: list[Attempt], *others: Any, **options: Any) -> list[RewriteChain]:
        return explore(
            screen, [one for one in attempts if one.state.site_class.sites[0].anchor == 0], *others, **options
        )

    monkeypatch.setattr(Screen, "_explore", of_small)
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: OfLarge(GAINING)
    result = agent.optimize(problem, BUDGET)
    assert [node.op for node in result.graph.order()] == ["Clip", "Concat", "Clip"]
