"""A known result from elsewhere is fitted: each of its changes stays where it pays on this machine, at this price."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from agents.conclusion.recordings import environment
from agents.core.base import Budget, Search
from agents.optimization.options import OptimizeOptions
from agents.optimization.remembering import KnownStart, ResultRecall
from agents.regional.beginning.fitting import fitted
from agents.searching.known_starts import Start, measure_starts
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.windows import Difference, WindowPair
from graph_rewrite.replay import record, replay
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.replay.remembered import RememberedResult
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem, open_problem
from tests.envs.fakes import OperatorCountMeter

MODEL = """
<ir_version: 10, opset_import: ["": 20]>
g (float[1,256,8,8] x) => (float[1,256,8,8] y)
{
  a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(x, w)
  b = Relu(a)
  c = Tanh(b)
  d = Sin(c)
  e = Exp(d)
  f = Sigmoid(e)
  g = Transpose<perm = [0, 2, 3, 1]>(f)
  y = Transpose<perm = [0, 3, 1, 2]>(g)
}
"""
RULES = ("Winograd2x2Relu", "ComposeTransposes", "refuse ConvActivationFusion")


@dataclass
class PlantedTimer:
    """A timer with planted savings, in milliseconds."""

    saves: Callable[[WindowPair], float]
    asked: list[WindowPair] = field(default_factory=list)

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        saved = self.saves(cut) / 1e3
        return Difference(saved, (saved, saved), cut.count, 1, 1, 1e-3)

    def close(self) -> None: ...


def is_winograd(cut: WindowPair) -> bool:
    return any(node.op == "Conv" for node in cut.before.nodes.values())


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """A convolution and two transpositions that cancel, far apart; latencies are 1 ms or less."""
    model = onnx.parser.parse_model(MODEL)
    kernel = np.random.default_rng(0).standard_normal((256, 256, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    onnx.save(model, tmp_path / "conv.onnx")
    return open_problem(
        f"file:{tmp_path / 'conv.onnx'}", provider="cpu", threads=1, limits=ResultLimits(size_price=0.1),
        meter=lambda opened, *_: OperatorCountMeter(opened.original),
    )  # fmt: skip


def known_result(problem: Problem, device: str = "another machine") -> RememberedResult:
    graph, taken = problem.model.graph, []
    for rule in RULES:
        taken.append(next(c for c in problem.rewriter.candidates(graph) if c.rule == rule))
        graph = taken[-1].apply()
    deployment = {"provider": "cpu", "threads": 1}
    recording = record(problem.model.graph, problem.rewriter, taken, deployment=deployment)
    context = {"model": "conv", "found_by": "regional", "device": device, **deployment}
    return RememberedResult(recording, 1.2, 0.0, context)


def known_start(problem: Problem, tmp_path: Path, device: str = "another machine") -> KnownStart:
    shipped = ResultMemory(tmp_path / "shipped")
    shipped.remember(known_result(problem, device))
    recall = ResultRecall(problem, OptimizeOptions(threads="1"), ResultMemory(tmp_path / "memory"), shipped)
    start, lighter = recall.shipped_starts([])
    assert lighter.lighter
    assert [action.rule for action in lighter.actions] == [RULES[1], RULES[2]]
    assert weight_bytes(lighter.graph) == weight_bytes(problem.model.original)
    assert (lighter.complete, lighter.is_enough(0.0), start.complete) == (False, False, True)
    return start


def fit(problem: Problem, start: Start, timer: PlantedTimer, seconds: float = math.inf) -> Start | None:
    search = Search(problem, Budget(seconds=seconds))
    with search.running():
        search.measure(problem.model.graph, ())
        return fitted(search, timer, start)


def price_of(problem: Problem, start: Start) -> float:
    return problem.limits.price(problem.model.original, start.graph)


@pytest.mark.parametrize(
    ("beyond", "transpositions", "kept"),
    [
        (-0.01, 0.1, [RULES[1], RULES[2]]),  # less than its weights cost
        (0.01, -0.1, [RULES[0], RULES[2]]),
        (-0.01, -0.1, [RULES[2]]),
    ],
)
def test_what_does_not_pay_is_left_out(
    problem: Problem, tmp_path: Path, beyond: float, transpositions: float, kept: list[str]
) -> None:
    start = known_start(problem, tmp_path)
    ms = OperatorCountMeter(problem.model.original).measure(problem.model.graph).ms
    winograd = (price_of(problem, start) + beyond) * ms
    timer = PlantedTimer(lambda cut: winograd if is_winograd(cut) else transpositions)
    found = fit(problem, start, timer)
    assert found is not None
    assert [action.rule for action in found.actions] == kept
    assert (weight_bytes(found.graph) > 1.5 * weight_bytes(problem.model.original)) == (RULES[0] in kept)
    assert [is_winograd(cut) for cut in timer.asked] == [True, False], "what adds most weights is timed first"


def test_what_pays_stays_as_it_is(problem: Problem, tmp_path: Path) -> None:
    assert fit(problem, known_start(problem, tmp_path), PlantedTimer(lambda _: 1e3)) is None


def test_without_time_it_stays_as_it_is(problem: Problem, tmp_path: Path) -> None:
    timer = PlantedTimer(lambda _: -1.0)
    assert fit(problem, known_start(problem, tmp_path), timer, seconds=0.0) is None
    assert timer.asked == []


def test_results_of_this_machine_are_not_fitted(problem: Problem, tmp_path: Path) -> None:
    start = known_start(problem, tmp_path, environment("cpu")["device"])
    assert fit(problem, start, PlantedTimer(lambda _: -1.0)) is None


def forms_of(problem: Problem) -> list[Graph]:
    graph = problem.model.graph
    return [next(c for c in problem.rewriter.candidates(graph) if c.rule == rule).apply() for rule in RULES[:2]]


def test_a_known_graph_is_measured_before_anything_else(problem: Problem) -> None:
    graph, forms, visited = problem.model.graph, forms_of(problem), list[list[str]]()
    search = Search(problem, Budget())

    def fit(start: Start) -> Start:
        visited.append(list(search.visits))
        return Start(forms[1], ())

    with search.running():
        measure_starts(search, [Start(forms[0], ())], fit)
    assert visited == [[forms[0].hash, graph.hash]]
    assert list(search.visits) == [forms[0].hash, graph.hash, forms[1].hash]
    own, known = search.visits[graph.hash].latency, search.visits[forms[0].hash].latency
    assert (own.ms, own.speedup, own.runs) == (known.baseline_ms, 1.0, 0), "the original beside it is its time"


@pytest.mark.parametrize("known", [0, 1])
def test_the_own_graph_is_measured_where_no_known_one_could_be(problem: Problem, known: int) -> None:
    forms = forms_of(problem)[:known]
    ops = {node.op for node in problem.model.graph.nodes.values()}
    added = {node.op for form in forms for node in form.nodes.values()} - ops
    failing = OperatorCountMeter(problem.model.original, dict.fromkeys(added, "error"))
    search = Search(replace(problem, meter=failing), Budget())
    with search.running():
        measure_starts(search, [Start(form, ()) for form in forms])
    assert len(search.visits) == 1 + known
    assert search.visits[problem.model.graph.hash].latency.runs > 0


@pytest.mark.parametrize(("factor", "left_out"), [(1.5, [RULES[0]]), (3.0, [])])
def test_replay_keeps_a_limit_on_weights(problem: Problem, factor: float, left_out: list[str]) -> None:
    most = factor * weight_bytes(problem.model.graph)
    recording = known_result(problem).recording
    found = replay(recording, problem.model.graph, problem.rewriter, partial=True, most_bytes=most)
    assert [difference.rule for difference in found.differences if difference.left_out] == left_out
    assert weight_bytes(found.graph) <= most


@pytest.mark.parametrize("rule", RULES[:2])
def test_replay_leaves_nodes_untouched(problem: Problem, rule: str) -> None:
    graph, rewriter = problem.model.graph, problem.rewriter
    recording = known_result(problem).recording
    gone = next(c for c in rewriter.candidates(graph) if c.rule == rule).sites[0].removed
    untouched = frozenset(node.id for node in gone)
    found = replay(recording, graph, rewriter, partial=True, untouched=untouched)
    assert untouched <= found.graph.nodes.keys()
    assert [step.rule for step in found.applied] == [other for other in RULES if other != rule]
    assert [difference.rule for difference in found.differences if difference.left_out] == [rule]
