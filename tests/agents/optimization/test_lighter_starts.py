"""A known result that adds weights is begun with twice where weights have a price: as it is, and without adding any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from agents.optimization.options import OptimizeOptions
from agents.optimization.remembering import KnownStart, ResultRecall
from graph_rewrite.ir.memory import weight_bytes
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
  y = Relu(a)
}
"""


def open_convolution(tmp_path: Path, price: float) -> Problem:
    model = onnx.parser.parse_model(MODEL)
    kernel = np.random.default_rng(0).standard_normal((256, 256, 3, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(kernel, "w"))
    onnx.save(model, tmp_path / "conv.onnx")
    return open_problem(
        f"file:{tmp_path / 'conv.onnx'}", provider="cpu", threads=1, limits=ResultLimits(size_price=price),
        meter=lambda opened, *_: OperatorCountMeter(opened.original),
    )  # fmt: skip


def known_result(problem: Problem) -> RememberedResult:
    """Winograd's algorithm, which adds weights, and a refused optimiser, which adds none."""
    graph, taken = problem.model.graph, []
    for rule in ("Winograd2x2Relu", "refuse ConvActivationFusion"):
        taken.append(next(c for c in problem.rewriter.candidates(graph) if c.rule == rule))
        graph = taken[-1].apply()
    recording = record(problem.model.graph, problem.rewriter, taken)
    return RememberedResult(recording, 1.2, 60.0, {})


def starts(problem: Problem, tmp_path: Path) -> list[KnownStart]:
    memory = ResultMemory(tmp_path / "memory")
    recall = ResultRecall(problem, OptimizeOptions(threads="1"), memory, memory)
    return recall._replayed([known_result(problem)], ())


def test_the_lighter_one_follows(tmp_path: Path) -> None:
    problem = open_convolution(tmp_path, price=0.1)
    heavy, light = starts(problem, tmp_path)
    before = weight_bytes(problem.model.original)
    assert weight_bytes(heavy.graph) > 1.5 * before
    assert weight_bytes(light.graph) == before
    assert [action.rule for action in light.actions] == ["refuse ConvActivationFusion"]
    assert (heavy.lighter, heavy.complete, light.lighter, light.complete) == (False, True, True, False)
    assert not light.is_enough(1.0)


def test_without_a_price_there_is_none(tmp_path: Path) -> None:
    [start] = starts(open_convolution(tmp_path, price=0.0), tmp_path)
    assert not start.lighter


@pytest.mark.parametrize(("factor", "left_out"), [(1.5, ["Winograd2x2Relu"]), (3.0, [])])
def test_replay_keeps_a_limit_on_weights(tmp_path: Path, factor: float, left_out: list[str]) -> None:
    problem = open_convolution(tmp_path, price=0.0)
    most = factor * weight_bytes(problem.model.graph)
    recording = known_result(problem).recording
    found = replay(recording, problem.model.graph, problem.rewriter, partial=True, most_bytes=most)
    assert [difference.rule for difference in found.differences if difference.left_out] == left_out
    assert weight_bytes(found.graph) <= most
