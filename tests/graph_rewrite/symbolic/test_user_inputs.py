"""The user's inputs and limits decide about rewrites that are carried over to all shapes, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from graph_rewrite import load
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.runtime import Deployment, FeedSpec, Recipes, Runner
from graph_rewrite.symbolic import attempts
from graph_rewrite.symbolic.feeds import measured_feeds, write_data
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from graph_rewrite.task.input_data import read_input_data
from graph_rewrite.task.limits import ResultLimits
from tests.graph_rewrite.symbolic.walks import open_dynamic, take

MODEL = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[batch, 4] x, float[batch, 4] y) => (float[batch, 4] z) {
    a = Relu(x)
    z = Add(a, y)
}
"""


class CappedRelu(Rule):
    """Relu(x) = Clip(x, 0, 100), which is wrong for large inputs"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Clip(x, op.constant(np.float32(0.0)), op.constant(np.float32(100.0)))


def generalised(folder: Path, x: np.ndarray[Any, Any] | None) -> SymbolicResult:
    """Carry the wrong rewrite over; `x` holds the user's inputs, of which all share `y`."""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    problem, bindings = open_dynamic(path, "x:1,4", "y:1,4", rules=(CappedRelu(),))
    if x is not None:
        np.savez(folder / "mine.npz", x=x, y=np.ones((1, 4), np.float32))
        problem.data = read_input_data([str(folder / "mine.npz")], problem.model.original)
        assert len(problem.data) == len(x)
    _, step = take(problem, problem.model.graph, "CappedRelu")
    return generalise(problem, [step], bindings)


def test_a_rewrite_that_differs_on_the_users_inputs_alone_is_left_out(tmp_path: Path) -> None:
    random = generalised(tmp_path, None)
    assert random.ok, random.message
    usual = np.ones((3, 4), np.float32)
    fine = generalised(tmp_path, usual)
    assert fine.ok, fine.message
    last_large = usual * np.float32([[1], [1], [1000]])
    wrong = generalised(tmp_path, last_large)
    assert not wrong.ok
    assert "no rewrite holds at other shapes" in wrong.message


def test_limits_of_elements_hold_at_all_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "ATTEMPTS", 1)
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    problem, bindings = open_dynamic(path, "x:1,4", "y:1,4", rules=(Rounded(),))
    _, step = take(problem, problem.model.graph, "Rounded")
    assert generalise(problem, [step], bindings).ok
    problem.limits = ResultLimits(rtol=0.0, atol=0.0)
    assert not generalise(problem, [step], bindings).ok


class Rounded(Rule):
    """Relu(x) = Relu(x * 3) * (1 / 3)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        third = np.float32(1.0) / np.float32(3.0)
        return op.Mul(op.Relu(op.Mul(x, op.constant(np.float32(3.0)))), op.constant(third))


def test_each_of_several_inputs_is_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    problem, _ = open_dynamic(path, "x:1,4", "y:1,4")
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.savez(tmp_path / "mine.npz", x=x, y=np.ones((1, 4), np.float32))
    data = read_input_data([str(tmp_path / "mine.npz")], problem.model.original)
    for number, spec in enumerate(write_data(problem.model.original, data, tmp_path / "data")):
        assert spec == FeedSpec(npz=str(tmp_path / "data" / f"mine-{number}.npz"))
        with np.load(spec.npz or "") as arrays:
            np.testing.assert_array_equal(arrays["x"], x[number : number + 1])
            np.testing.assert_array_equal(arrays["y"], np.ones((1, 4), np.float32))


def test_an_input_may_have_any_name(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL.replace("4] x,", "4] file,").replace("Relu(x)", "Relu(file)")), path)
    (spec,) = write_data(load(path, {"file": (1, 4), "y": (1, 4)}), [FeedSpec()], tmp_path / "data")
    with np.load(spec.npz or "") as arrays:
        assert {name: array.shape for name, array in arrays.items()} == {"file": (1, 4), "y": (1, 4)}


class TestMeasuring:
    """Inputs to measure a model with symbolic dimensions with: many, of the shape that is asked for."""

    def recipes(self, folder: Path, *, given: bool) -> Recipes:
        path = folder / "model.onnx"
        onnx.save(onnx.parser.parse_model(MODEL), path)
        problem, bindings = open_dynamic(path, "x:3,4", "y:3,4")
        if given:
            np.savez(folder / "mine.npz", x=np.ones((2, 3, 4), np.float32), y=np.ones((3, 4), np.float32))
            problem.data = read_input_data([str(folder / "mine.npz")], problem.model.original)
        graph, shapes = problem.model.graph, bindings.inputs.shapes({"batch": 3})
        return measured_feeds(graph, bindings.inputs, shapes, problem.model.original, problem.data, folder)

    @pytest.mark.parametrize(("given", "count"), [(False, 8), (True, 2)])
    def test_in_turn(self, tmp_path: Path, given: bool, count: int) -> None:
        recipes = self.recipes(tmp_path, given=given)
        runner = Runner(str(tmp_path / "model.onnx"), Deployment(), recipes)
        assert runner.rotation.count == count
        assert {value.shape for values in runner.rotation.values.values() for value in values} == {(3, 4)}
        if not given:
            assert len({value.tobytes() for value in runner.rotation.values["x"]}) == count
        runner.run()
