"""The agent `regional` and how its graphs are run: session settings, chosen after the graph, and optimisers that are
refused before it is drafted."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from agents.core.base import Search
from agents.core.records import supposed
from agents.regional.options import RegionalOptions
from agents.regional.proved_drafts import ProvedDrafts
from agents.regional.refusals import refusing, sure_refusals
from agents.searching.session_search import FLUSHING, start_under_settings
from graph_rewrite import Graph, Rewriter, save
from graph_rewrite.experience import ExperienceLog
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting import session_choices
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.planted_settings import FACTORS, planted
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.regional.test_drafting import Told
from tests.agents.toys import RULES, graph_cost, problem_on


def test_settings_are_chosen_after_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_choices, "physical_cores", lambda: 1)
    result = agent_with(ExactTimer()).optimize(planted(tmp_path, FACTORS), BUDGET)
    assert dict(result.graph.session_settings) == {"enable_mem_pattern": False}
    rules = [action.rule for action in result.actions]
    assert rules[-1] == "set enable_mem_pattern=false"
    assert "ReluAsThresholded" in rules
    assert result.checked.deployment.to_json()["enable_mem_pattern"] is False


def test_none_are_chosen_without_seconds_for_them(tmp_path: Path) -> None:
    result = agent_with(ExactTimer(), session_share=0.0).optimize(planted(tmp_path, FACTORS), BUDGET)
    assert result.actions
    assert result.graph.session_settings == ()


def test_on_a_device_they_are_chosen_before_the_windows_too(tmp_path: Path) -> None:
    problem, timer = planted(tmp_path, {"enable_cuda_graph": 0.5}), ExactTimer()
    problem.deployment = Deployment("cuda")
    search = Search(problem, BUDGET)
    with search.running():
        agent_with(timer).explore(search)
    assert {cut.before.session_settings for cut in timer.asked} == {(("enable_cuda_graph", True),)}
    assert search.best is not None
    rules = [action.rule for action in search.best.actions]
    assert rules[0] == "set enable_cuda_graph=true"
    assert "ReluAsThresholded" in rules


class TestDenormals:
    """A graph that is known to compute with denormal numbers."""

    @pytest.fixture(autouse=True)
    def computes_denormals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("agents.searching.session_search.computes_denormals", lambda graph: True)

    def test_the_search_begins_without_them(self, tmp_path: Path) -> None:
        problem, timer = planted(tmp_path, {"set_denormal_as_zero": 0.7}), ExactTimer()
        search = Search(problem, BUDGET)
        with search.running():
            agent_with(timer, session_share=0.0).explore(search)
        assert {cut.before.session_settings for cut in timer.asked} == {(("set_denormal_as_zero", True),)}
        assert search.best is not None
        rules = [action.rule for action in search.best.actions]
        assert rules[0] == FLUSHING
        assert "ReluAsThresholded" in rules
        assert replay(problem, [action.key for action in search.best.actions]).hash == search.best.graph.hash

    def test_where_that_gains_nothing_the_result_keeps_them(self, tmp_path: Path) -> None:
        result = agent_with(ExactTimer()).optimize(planted(tmp_path, {"set_denormal_as_zero": 1.1}), BUDGET)
        assert "ReluAsThresholded" in [action.rule for action in result.actions]
        assert result.graph.session_settings == ()

    def test_one_measurement_is_enough_for_a_search(self, tmp_path: Path) -> None:
        search = Search(planted(tmp_path, {"set_denormal_as_zero": 0.7}), replace(BUDGET, measurements=1))
        with search.running():
            agent_with(ExactTimer()).explore(search)
        assert search.measurements == 1

    @pytest.mark.parametrize("kept", ["strict", "fixed deployment"])
    def test_where_they_are_to_be_kept_they_are(self, tmp_path: Path, kept: str) -> None:
        problem = planted(tmp_path, {"set_denormal_as_zero": 0.7})
        assert start_under_settings(Search(problem, BUDGET)).actions
        problem.strict = kept == "strict"
        problem.rewriter.deployment = kept == "strict"
        start = start_under_settings(Search(problem, BUDGET))
        assert (start.graph, start.actions) == (problem.model.graph, ())


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


class TestRefusals:
    def test_they_are_sure_by_windows_of_what_is_fused(self, tmp_path: Path) -> None:
        problem, timer = normalised(tmp_path), FusingTimer()
        graph, seconds = problem.model.graph, graph_cost(problem.model.graph) / 1e3
        found = sure_refusals(Search(problem, BUDGET), timer, graph, seconds)
        assert {label: {graph.nodes[node].op for node in nodes} for label, nodes in found.items()} == {
            REFUSE: {"Add", "LayerNormalization"}
        }
        assert [len(cut.before.nodes) for cut in timer.asked] == [2]
        assert timer.asked[0].count == 2

    @pytest.mark.parametrize("timer", [FusingTimer(fused=0.0), FusingTimer(fused=-1.0), FusingTimer(half=4.1e-3)])
    def test_what_may_cost_time_is_not_refused(self, tmp_path: Path, timer: FusingTimer) -> None:
        problem = normalised(tmp_path)
        assert sure_refusals(Search(problem, BUDGET), timer, problem.model.graph, 0.02) == {}

    def test_what_saves_next_to_nothing_of_the_model_is_not_refused(self, tmp_path: Path) -> None:
        problem, seconds_saved = normalised(tmp_path), 4e-3
        for model_s, sure in ((seconds_saved / 0.0051, [REFUSE]), (seconds_saved / 0.0049, [])):
            offered = sure_refusals(Search(problem, BUDGET), FusingTimer(half=4e-6), problem.model.graph, model_s)
            assert list(offered) == sure

    def test_a_fixed_deployment_is_kept(self, tmp_path: Path) -> None:
        problem, timer = normalised(tmp_path, deployment=False), FusingTimer()
        assert sure_refusals(Search(problem, BUDGET), timer, problem.model.graph, 0.02) == {}
        assert not timer.asked

    def test_a_graph_with_refusals_is_reached_by_actions(self, tmp_path: Path) -> None:
        problem = normalised(tmp_path)
        start = supposed(problem.model.graph, 20.0)
        refused = refusing(Search(problem, BUDGET), start, [REFUSE, "refuse what is not offered"])
        assert refused.graph.disabled_optimizers == {NAME}
        assert refused.latency is start.latency
        assert replay(problem, [action.key for action in refused.actions]).hash == refused.graph.hash

    def test_drafts_and_the_first_round_begin_with_them(self, tmp_path: Path) -> None:
        problem, timer = normalised(tmp_path), FusingTimer()
        agent = agent_with(timer)
        agent.prior_for = lambda _: Told(
            {("ReluAsThresholded",): 0.2, ("ReluAsThresholded", "ThresholdedAsLeaky"): 0.2}
        )
        search = Search(problem, BUDGET)
        agent.explore(search)
        reached = [visit for visit in search.visits.values() if len(visit.actions) > 1]
        assert reached
        assert all(visit.actions[0].rule == REFUSE for visit in reached)
        of_rules = [cut for cut in timer.asked if cut.before.disabled_optimizers == cut.after.disabled_optimizers]
        assert of_rules
        assert {cut.before.disabled_optimizers for cut in of_rules} == {frozenset({NAME})}

    @pytest.mark.parametrize("is_wary", [False, True])
    def test_what_is_forecast_of_fused_nodes_is_timed(self, tmp_path: Path, is_wary: bool) -> None:
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
