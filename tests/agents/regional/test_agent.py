"""The agent `regional`: graphs that it finds, also inside loops and branches, its budgets and options, and the timing
of windows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.regional.chains import time_cut
from agents.regional.options import RegionalOptions
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import Difference, NotTimed
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.rules import rule_set
from graph_rewrite.task.replay import replay
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.toys import chain_problem, costs_of_all, graph_cost, problem_on
from tests.graph_rewrite.body_models import body_model


@pytest.mark.parametrize("granularity", ["site", "class", "both"])
@pytest.mark.parametrize("sites", [1, 3])
def test_finds_the_best_graph_behind_a_valley_of_two_steps(tmp_path: Path, sites: int, granularity: str) -> None:
    problem, timer = chain_problem(tmp_path, sites, granularity), ExactTimer()
    result = agent_with(timer).optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(sites)[0]
    assert timer.closed == 2
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


def test_chains_that_are_too_short_do_not_cross_it(tmp_path: Path) -> None:
    result = agent_with(ExactTimer(), depth=2).optimize(chain_problem(tmp_path, 2), BUDGET)
    assert result.is_original
    assert "nothing was surely faster" in result.message


def test_whole_models_are_measured_for_choices_only(tmp_path: Path) -> None:
    problem, timer = chain_problem(tmp_path, 3), ExactTimer()
    result = agent_with(timer).optimize(problem, BUDGET)
    assert result.measurements == 2
    # Windows end where the margin does: those of the timer are smaller than the model, but for refinements.
    assert min(len(cut.before.nodes) for cut in timer.asked) < len(problem.model.graph.nodes)


@pytest.mark.parametrize("budget", [Budget(1, 60.0), Budget(200, 60.0, applications=2), Budget(200, 0.0)])
def test_budgets_hold(tmp_path: Path, budget: Budget) -> None:
    result = agent_with(ExactTimer()).optimize(chain_problem(tmp_path, 3), budget)
    assert result.measurements <= max(1, budget.measurements)
    assert budget.applications is None or result.applications <= budget.applications


def test_a_timer_that_is_wrong_is_found_out_end_to_end(tmp_path: Path) -> None:
    class Wrong(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            right = ExactTimer.time(self, cut)
            return Difference(-right.seconds, (-right.seconds, -right.seconds), cut.count, 1, 1, right.window_seconds)

    result = agent_with(Wrong(), depth=1).optimize(chain_problem(tmp_path, 2), BUDGET)
    assert result.is_original


def test_climbing_finds_what_windows_do_not_show(tmp_path: Path) -> None:
    class Blind(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            return replace(ExactTimer.time(self, cut), seconds=0.0, ci95=(0.0, 0.0))

    assert agent_with(Blind()).optimize(chain_problem(tmp_path, 2), BUDGET).is_original
    problem = chain_problem(tmp_path, 2)
    result = agent_with(Blind(), climb=True).optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


@pytest.mark.parametrize(
    ("options", "message"),
    [({"depth": 0}, "1 or more"), ({"share": 1.0}, "between 0 and 1"), ({"gain": -0.1}, "0 or more")],
)
def test_options_out_of_range(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RegionalOptions(**options)


def test_is_made_by_name() -> None:
    agent: Any = make_agent("regional:depth=2,cache=false")
    assert (agent.name, agent.options.depth, agent.options.cache) == ("regional:depth=2,cache=false", 2, False)


def test_what_cannot_be_timed_is_none(tmp_path: Path) -> None:
    class Failing(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            raise NotTimed("a region cannot be timed by itself: no reason")

    problem = chain_problem(tmp_path, 1)
    search = Search(problem, BUDGET)
    assert time_cut(search, Failing(), WindowPair(problem.model.graph, problem.model.graph, 1, "")) is None
    assert agent_with(Failing()).optimize(problem, BUDGET).is_original


def test_known_timings_are_charged_once(tmp_path: Path) -> None:
    class Remembering(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            return Difference(1.0, (1.0, 1.0), 1, 1, 1, 2.0, cost_s=7.0)

    problem = chain_problem(tmp_path, 1)
    search = Search(problem, BUDGET)
    cuts = [WindowPair(problem.model.graph, problem.model.graph, 1, key) for key in ("one", "one", "other", "one")]
    timer, spent = Remembering(), []
    for cut in cuts:
        time_cut(search, timer, cut)
        spent.append(round(search.seconds))
    assert spent == [7, 7, 14, 14]
    careful = Remembering()  # what another timer measures of the same window is something else
    for _ in range(2):
        time_cut(search, careful, cuts[0])
        assert round(search.seconds) == 21


def cost_with_bodies(graph: Graph) -> float:
    """A millisecond for each operator, those in bodies included."""
    protos = [node.proto for node in graph.nodes.values() if node.opaque and node.proto is not None]
    inner = sum(1 for proto in protos for body in attribute_graphs(proto) for _ in inner_nodes(body))
    return float(1 + len(graph.nodes) + inner)


@dataclass
class InnerTimer(ExactTimer):
    """A window takes a millisecond for each operator, those in bodies included."""

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        before, after = cost_with_bodies(cut.before) / 1e3, cost_with_bodies(cut.after) / 1e3
        saved = cut.count * (before - after)
        return Difference(saved, (saved, saved), cut.count, 1, 1, before)


@pytest.mark.parametrize("name", ["chains within If", "a chain within Scan", "a chain within If within Scan"])
def test_finds_gains_inside(name: str, tmp_path: Path) -> None:
    model = body_model(name)
    known = model.graph.output[0]
    model.graph.node.append(onnx.helper.make_node("Exp", [known.name], ["behind"]))
    model.graph.output.append(onnx.ValueInfoProto(name="behind", type=known.type))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    rules = rule_set("DropRepeated,ComposeTransposes,FoldScaleAfterMatMul")
    problem = problem_on(path, tmp_path, Rewriter(rules, "site", deployment=False), cost=cost_with_bodies)
    timer = InnerTimer()
    result = agent_with(timer).optimize(problem, Budget(measurements=200, seconds=60.0))
    assert timer.asked
    assert not result.is_original, result.message
    assert cost_with_bodies(result.graph) < cost_with_bodies(problem.model.graph)
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash
