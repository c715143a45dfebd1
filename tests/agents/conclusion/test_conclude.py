"""The file that a search hands over is the file that was compared with the original."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import rewritegym
from agents.core.base import Budget, OptimizationResult
from agents.core.registry import make_agent
from agents.reporting.runs import result_entry, write_optimized
from graph_rewrite.delivery import ship
from graph_rewrite.delivery.ship import UnverifiedModelError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.saving import save
from graph_rewrite.task.problem import Problem, open_problem
from tests.envs.fakes import count_operators, write_tower

OpenTower = Callable[..., Problem]


def flip_one_weight(path: Path) -> None:
    """Change one number of the first matrix in a model file."""
    model = onnx.load(path)
    tensor = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2)
    weights = numpy_helper.to_array(tensor).copy()
    weights[0, 0] = -weights[0, 0] - 1.0
    tensor.CopyFrom(numpy_helper.from_array(weights, tensor.name))
    onnx.save(model, path)


def search(problem: Problem, measurements: int = 30) -> OptimizationResult:
    return make_agent("greedy").optimize(problem, Budget(measurements=measurements, seconds=60.0))


def test_a_weight_flipped_between_check_and_hand_over_is_caught(open_tower: OpenTower, tmp_path: Path) -> None:
    result = search(open_tower())
    assert result.actions
    assert result.verified
    flip_one_weight(result.checked.path)
    with pytest.raises(UnverifiedModelError, match="changed after it was verified"):
        write_optimized(result, tmp_path / "run" / "optimized.onnx")
    assert list((tmp_path / "run").iterdir()) == []


def test_a_save_that_flips_a_weight_is_caught(
    open_tower: OpenTower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = open_tower()

    def tampered(graph: Graph, path: Path, metadata: Mapping[str, str], **options: bool) -> Path:
        save(graph, path, metadata, **options)
        if graph is not problem.model.original:
            flip_one_weight(path)
        return path

    monkeypatch.setattr(ship, "save", tampered)
    result = search(problem)
    assert result.is_original
    assert result.verified
    assert "differs by" in result.message
    written = write_optimized(result, tmp_path / "optimized.onnx")
    assert written is not None
    assert same_outputs(problem, written)


@pytest.mark.parametrize("measurements", [30, 0])
def test_what_is_written_is_the_checked_file_bit_by_bit(
    open_tower: OpenTower, tmp_path: Path, measurements: int
) -> None:
    """With a rewritten graph, and with the original kept."""
    problem = open_tower()
    result = search(problem, measurements)
    assert result.is_original is (measurements == 0)
    written = write_optimized(result, tmp_path / "optimized.onnx")
    assert written is not None
    assert written.read_bytes() == result.checked.path.read_bytes()
    assert same_outputs(problem, written)
    entry: Any = result_entry(result, problem, written)
    assert (entry["verified"], entry["onnx_path"]) == (True, str(written))
    assert entry["max_rel_error"] == result.checked.outcome.max_rel_error


def same_outputs(problem: Problem, path: Path) -> bool:
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)}
    expected = onnx.reference.ReferenceEvaluator(str(problem.model.path)).run(None, feeds)
    found: Any = rewritegym.session(path).run(None, feeds)
    return np.allclose(expected[0], found[0], rtol=1e-4, atol=1e-5)


def test_a_model_with_a_head_of_zeros_ends_with_a_result_that_the_values_before_it_prove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))
    path = write_tower(tmp_path / "tower.onnx", 2)
    model = onnx.load(path)
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((4, 4), np.float32), "head"))
    model.graph.node.append(helper.make_node("MatMul", ["y1", "head"], ["out"], "head"))
    model.graph.output[0].name = "out"
    onnx.save(model, path)
    result = search(open_problem(f"file:{path}", provider="cpu", meter=count_operators))
    assert result.actions
    assert result.verified
    assert "out is the same on all inputs; the values before it agree: " in result.message
