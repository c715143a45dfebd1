"""Fusions of ONNX Runtime that are refused before a draft is made, by windows of what they fuse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from agents.core.base import Search
from agents.core.records import supposed
from agents.regional.beginning.proved_drafts import ProvedDrafts
from agents.regional.beginning.refusals import refusing, sure_refusals
from agents.regional.options import RegionalOptions
from graph_rewrite import Graph, Rewriter, save
from graph_rewrite.experience import ExperienceLog
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.regional.test_drafting import Told
from tests.agents.toys import RULES, graph_cost, problem_on

REFUSE, NAME = "refuse SkipLayerNormFusion", "SkipLayerNormFusion"


@dataclass
class FusingTimer(ExactTimer):
    """Windows of an Add and what normalises its sum are `fused` milliseconds slower unless the fusion is refused."""

    fused: float = 2.0

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        found = super().time(cut, budget_s, anew=anew)
        before, after = (self.fused / 1e3 * is_fused(graph) for graph in (cut.before, cut.after))
        saved = found.seconds + cut.count * (before - after)
        return replace(found, seconds=saved, ci95=(saved - self.half, saved + self.half))


def is_fused(graph: Graph) -> bool:
    return {"Add", "LayerNormalization"} <= {node.op for node in graph.nodes.values()} and (
        NAME not in graph.disabled_optimizers
    )


def normalised(folder: Path, *, deployment: bool = True) -> Problem:
    """Relu, Add and LayerNormalization, twice; each fusion that is not refused costs 2 ms."""
    body = """{ p = Relu(x) s = Add(p, x) n = LayerNormalization(s, g, b)
        q = Relu(n) t = Add(q, n) y = LayerNormalization(t, g, b) }"""
    save(model("(float[1,4,8] x) => (y) " + body, g=np.ones(8), b=np.zeros(8)), folder / "normalised.onnx")

    def cost(graph: Graph) -> float:
        return graph_cost(graph) + 4.0 * is_fused(graph)

    return problem_on(folder / "normalised.onnx", folder, Rewriter(RULES, "site", deployment), cost=cost)


def test_they_are_sure_by_windows_of_what_is_fused(tmp_path: Path) -> None:
    problem, timer = normalised(tmp_path), FusingTimer()
    graph, seconds = problem.model.graph, graph_cost(problem.model.graph) / 1e3
    found = sure_refusals(Search(problem, BUDGET), timer, graph, seconds)
    assert {label: {graph.nodes[node].op for node in nodes} for label, nodes in found.items()} == {
        REFUSE: {"Add", "LayerNormalization"}
    }
    assert [len(cut.before.nodes) for cut in timer.asked] == [2]
    assert timer.asked[0].count == 2


@pytest.mark.parametrize("timer", [FusingTimer(fused=0.0), FusingTimer(fused=-1.0), FusingTimer(half=4.1e-3)])
def test_what_may_cost_time_is_not_refused(tmp_path: Path, timer: FusingTimer) -> None:
    problem = normalised(tmp_path)
    assert sure_refusals(Search(problem, BUDGET), timer, problem.model.graph, 0.02) == {}


def test_what_saves_next_to_nothing_of_the_model_is_not_refused(tmp_path: Path) -> None:
    problem, seconds_saved = normalised(tmp_path), 4e-3
    for model_s, sure in ((seconds_saved / 0.0051, [REFUSE]), (seconds_saved / 0.0049, [])):
        offered = sure_refusals(Search(problem, BUDGET), FusingTimer(half=4e-6), problem.model.graph, model_s)
        assert list(offered) == sure


def test_a_fixed_deployment_is_kept(tmp_path: Path) -> None:
    problem, timer = normalised(tmp_path, deployment=False), FusingTimer()
    assert sure_refusals(Search(problem, BUDGET), timer, problem.model.graph, 0.02) == {}
    assert not timer.asked


def test_a_graph_with_refusals_is_reached_by_actions(tmp_path: Path) -> None:
    problem = normalised(tmp_path)
    start = supposed(problem.model.graph, 20.0)
    refused = refusing(Search(problem, BUDGET), start, [REFUSE, "refuse what is not offered"])
    assert refused.graph.disabled_optimizers == {NAME}
    assert refused.latency is start.latency
    assert replay(problem, [action.key for action in refused.actions]).hash == refused.graph.hash


def test_drafts_and_the_first_round_begin_with_them(tmp_path: Path) -> None:
    problem, timer = normalised(tmp_path), FusingTimer()
    agent = agent_with(timer)
    agent.prior_for = lambda _: Told({("ReluAsThresholded",): 0.2, ("ReluAsThresholded", "ThresholdedAsLeaky"): 0.2})
    search = Search(problem, BUDGET)
    agent.explore(search)
    reached = [visit for visit in search.visits.values() if len(visit.actions) > 1]
    assert reached
    assert all(visit.actions[0].rule == REFUSE for visit in reached)
    of_rules = [cut for cut in timer.asked if cut.before.disabled_optimizers == cut.after.disabled_optimizers]
    assert of_rules
    assert {cut.before.disabled_optimizers for cut in of_rules} == {frozenset({NAME})}


@pytest.mark.parametrize("is_wary", [False, True])
def test_what_is_forecast_of_fused_nodes_is_timed(tmp_path: Path, is_wary: bool) -> None:
    """The first step costs time, whatever is forecast."""
    problem, timer = normalised(tmp_path), FusingTimer()
    graph = problem.model.graph
    relus = frozenset(node.id for node in graph.nodes.values() if node.op == "Relu")
    drafts = ProvedDrafts(
        Search(problem, BUDGET), timer, Told({("ReluAsThresholded",): 0.2}), RegionalOptions(margin=1),
        ExperienceLog(None), relus if is_wary else frozenset(graph.nodes.keys() - relus),
    )  # fmt: skip
    assert (drafts.draft(supposed(graph, 20.0)) is None) is is_wary
    assert bool(timer.asked) is is_wary
