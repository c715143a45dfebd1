"""Rewrites found at one shape give a model for all shapes, or are left out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rewriting.session_choices import session_candidates
from graph_rewrite.symbolic.bindings import bind
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from graph_rewrite.system.deadline import ending_at
from tests.graph_rewrite.symbolic.dynamic_models import VOCABULARY, pyramid, transformer
from tests.graph_rewrite.symbolic.walks import Step, open_dynamic, take, walk


class AddAsSub(Rule):
    """Add(x, c) = Sub(x, Neg(c))"""

    def source(self, op: Any, x: Any, c: Any) -> Any:
        return op.Add(x, c)

    def check(self, m: Any, x: Any, c: Any) -> Any:
        return None if c.is_const else Refusal("not a constant")

    def target(self, op: Any, m: Any, x: Any, c: Any) -> Any:
        return op.Sub(x, op.Neg(c))


class CappedRelu(Rule):
    """Relu(x) = Clip(x, 0, 0.5), which is wrong"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Clip(x, op.constant(np.float32(0.0)), op.constant(np.float32(0.5)))


class FlatRelu(Rule):
    """Relu(x) = Reshape(Relu(Reshape(x, [elements])), shape of x)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        flat = op.Reshape(x, op.ints(x.type.size))
        return op.Reshape(op.Relu(flat), op.ints(*x.shape))


class SqueezedRelu(Rule):
    """Relu(x) = Unsqueeze(Relu(Squeeze(x, 0)), 0) for a batch of 1"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def check(self, m: Any, x: Any) -> Any:
        return None if x.shape[0] == 1 and x.rank == 3 else Refusal("the batch is not 1")

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Unsqueeze(op.Relu(op.Squeeze(x, op.ints(0))), op.ints(0))


class ScaledRelu(Rule):
    """Relu(x) = Relu(x * n) * (1 / n) with the batch n"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        scale = np.float32(x.shape[1])
        return op.Mul(op.Relu(op.Mul(x, op.constant(scale))), op.constant(np.float32(1.0) / scale))


def run(path: Path, ids: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"ids": ids})[0])


def dims(path: Path) -> list[list[int | str]]:
    graph = onnx.load(path).graph
    return [
        [d.dim_param or d.dim_value for d in info.type.tensor_type.shape.dim] for info in (*graph.input, *graph.output)
    ]


def assert_right_everywhere(result: SymbolicResult, original: Path) -> None:
    assert result.checked is not None
    assert result.checked.outcome.ok, result.message
    assert len(result.verified_at) >= 5
    assert dims(result.checked.path) == dims(original)
    rng = np.random.default_rng(7)
    for batch, length in ((1, 1), (2, 48), (3, 17), (11, 20), (16, 3)):
        ids = rng.integers(0, VOCABULARY, (batch, length))
        expected = run(original, ids)
        assert np.allclose(run(result.checked.path, ids), expected, atol=1e-4 * np.abs(expected).max())


def test_one_rewrite_of_a_transformer_holds_for_all_shapes(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx")
    problem, bindings = open_dynamic(path, "ids:1,24")
    _, step = take(problem, problem.model.graph, "FuseDividedMatMul")
    result = generalise(problem, [step], bindings)
    assert result.sites == (2,)
    assert result.left_out == ()
    assert_right_everywhere(result, path)
    assert result.graph is not None
    assert "FusedMatMul" in {node.op for node in result.graph.nodes.values()}
    found = result.to_json()
    assert found["bound"] == {"batch": 1, "sequence": 24}
    assert found["symbols"]["sequence"] == {"input": "ids", "axis": 1}
    assert {values["batch"] for values in found["verified_at"]} > {4}
    assert {"batch": 1, "sequence": 24} not in found["verified_at"]


def test_session_settings_are_kept_for_all_shapes(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    problem, bindings = open_dynamic(path, "ids:1,24")
    graph, step = take(problem, problem.model.graph, "FuseDividedMatMul")
    setting = next(c for c in session_candidates(graph, problem.deployment) if "arena" in c.label)
    result = generalise(problem, [step, Step(setting.key, setting.rule)], bindings)
    assert result.sites == (1, 1)
    assert_right_everywhere(result, path)
    assert result.checked is not None
    assert not result.checked.deployment.settings.enable_cpu_mem_arena


def test_targets_tables_and_products_of_symbols_follow_the_shape(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    problem, bindings = open_dynamic(path, "ids:1,24", rules=(AddAsSub(), FlatRelu()))
    graph, first = take(problem, problem.model.graph, "AddAsSub")
    rest = [c for c in problem.rewriter.candidates(graph) if c.rule == "FlatRelu"]
    second = Step(rest[0].key, rest[0].rule)
    result = generalise(problem, [first, second], bindings)
    assert result.left_out == (), result.left_out
    assert_right_everywhere(result, path)
    assert result.graph is not None
    assert "Neg" not in {node.op for node in result.graph.nodes.values()}, "the whole table is negated once"
    assert result.checked is not None
    with pytest.raises(Fail, match="48 by 49"):  # as the original does
        run(result.checked.path, np.zeros((1, 49), np.int64))


def test_random_rewrites_are_carried_over_or_left_out_with_a_reason(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx")
    problem, bindings = open_dynamic(path, "ids:1,24")
    steps = walk(problem, 0, 14)
    result = generalise(problem, steps, bindings)
    assert_right_everywhere(result, path)
    assert sum(map(bool, result.sites)) >= 0.8 * len(steps)
    for one in result.left_out:
        assert one.reason
        assert result.sites[one.action] == 0 or one.sites > 0


def test_a_rewrite_for_one_batch_is_named_with_its_reason(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    problem, bindings = open_dynamic(path, "ids:1,24", rules=(AddAsSub(), SqueezedRelu()))
    graph, first = take(problem, problem.model.graph, "AddAsSub")
    _, second = take(problem, graph, "SqueezedRelu")
    result = generalise(problem, [first, second], bindings)
    assert_right_everywhere(result, path)
    (left,) = result.to_json()["left_out"]
    assert (left["rule"], left["sites"]) == ("SqueezedRelu", 1)
    assert "SqueezedRelu at g0: Relu" in left["where"]
    assert left["reason"] == "at batch=2, sequence=24: the batch is not 1"


def test_a_rewrite_whose_constants_no_shape_gives_is_left_out(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    problem, bindings = open_dynamic(path, "ids:1,24", rules=(AddAsSub(), ScaledRelu()))
    graph, first = take(problem, problem.model.graph, "AddAsSub")
    _, second = take(problem, graph, "ScaledRelu")
    result = generalise(problem, [first, second], bindings)
    assert_right_everywhere(result, path)
    assert result.sites[1] == 0
    assert "is not known for all shapes" in result.left_out[0].reason


def test_a_wrong_rewrite_is_found_and_left_out(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=1)
    problem, bindings = open_dynamic(path, "ids:1,24", rules=(AddAsSub(), CappedRelu(), FlatRelu()))
    graph, first = take(problem, problem.model.graph, "AddAsSub")
    _, second = take(problem, graph, "CappedRelu")
    result = generalise(problem, [first, second], bindings)
    assert_right_everywhere(result, path)
    assert result.sites[0] > 0
    assert result.sites[1] == 0
    assert "differ" in result.left_out[0].reason


def test_images_of_any_size(tmp_path: Path) -> None:
    path = pyramid(tmp_path / "p.onnx")
    problem, bindings = open_dynamic(path, "image:1,3,32,32")
    result = generalise(problem, walk(problem, 0, 6), bindings)
    assert result.ok, result.message
    assert any(len({v["height"], v["width"]}) == 2 for v in result.verified_at)
    assert result.checked is not None
    assert dims(result.checked.path) == dims(path)


TYPES = """
<ir_version: 10, opset_import: ["" : 18]>
types (float[n, 128, 768] x) => (float[n, 128, 768] y) {
    shape = Shape(x)
    types = Expand(bias, shape)
    a = Add(x, types)
    y = Relu(a)
}
"""


def test_a_constant_that_only_a_few_images_leave_small_is_one_for_all(tmp_path: Path) -> None:
    """The constant has 393 KB for one example, and is folded; for three it has 1.2 MB, too much to be folded."""
    model = onnx.parser.parse_model(TYPES)
    bias = np.linspace(-1.0, 1.0, 768, dtype=np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(bias, "bias"))
    onnx.save(model, tmp_path / "types.onnx")
    problem, bindings = open_dynamic(tmp_path / "types.onnx", "x:1,128,768", rules=(FlatRelu(),))
    _, step = take(problem, problem.model.graph, "FlatRelu")
    result = generalise(problem, [step], bindings)
    assert result.ok, result.message
    assert result.left_out == ()
    assert result.checked is not None
    x = np.random.default_rng(0).standard_normal((5, 128, 768)).astype(np.float32)
    (y,) = onnxruntime.InferenceSession(result.checked.path).run(None, {"x": x})
    assert np.allclose(y, np.maximum(x + bias, 0.0), atol=1e-6)


def test_what_cannot_be_carried_over_says_so_and_gives_no_model(tmp_path: Path) -> None:
    problem, bindings = open_dynamic(transformer(tmp_path / "t.onnx", layers=1), "ids:1,24")
    result = generalise(problem, [Step("extract 12", "Extraction")], bindings)
    assert not result.ok
    assert result.checked is None
    assert "Extraction was not found by single rewrites" in result.message
    with ending_at(time.monotonic() - 1.0):
        late = generalise(problem, [], bindings)
    assert not late.ok
    assert late.message


def test_a_model_that_runs_at_one_shape_only_is_not_generalised(tmp_path: Path) -> None:
    text = """(float[n, 4] x, float[6, 4] w) => (float[6, 4] y) { t = Add(x, w)  y = Relu(t) }"""
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> g {text}')
    onnx.save(model, tmp_path / "one.onnx")
    bindings = bind(tmp_path / "one.onnx", ["x:6,4"])
    problem, _ = open_dynamic(tmp_path / "one.onnx", "x:6,4")
    result = generalise(problem, [], bindings)
    assert not result.ok
    assert "too few other shapes" in result.message
