"""Models with inputs that are sequences, optional values, bfloat16 or float8 are measured, and compared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import open_problem
from tests.graph_rewrite.sample_models import parsed, weights

MODELS = {
    "sequence": "(seq(float[4,4]) s, int64 p, float[4,4] x) => (float[4,4] y, seq(float[4,4]) z) "
    "{ t = SequenceAt(s, p)  u = Add(t, x)  y = MatMul(u, a)  z = SequenceInsert(s, y) }",
    "sequence of texts": "(seq(string[2]) s, float[4,4] x) => (int64 n, float[4,4] y) "
    "{ n = SequenceLength(s)  y = MatMul(x, a) }",
    "optional": "(optional(float[4,4]) o, float[4,4] x) => (float[4,4] y) "
    "{ b = OptionalHasElement(o)  c = Cast<to = 1>(b)  t = MatMul(x, a)  y = Mul(t, c) }",
    "optional that must be there": "(optional(float[4,4]) o) => (float[4,4] y) "
    "{ t = OptionalGetElement(o)  y = MatMul(t, a) }",
    "bfloat16": "(bfloat16[4,4] x) => (bfloat16[4,4] y) "
    "{ t = Cast<to = 1>(x)  u = MatMul(t, a)  y = Cast<to = 16>(u) }",
    "float8": "(float8e4m3fn[4,4] x) => (float8e4m3fn[4,4] y) "
    "{ t = Cast<to = 1>(x)  u = MatMul(t, a)  y = Cast<to = 17>(u) }",
}


def written(path: Path, text: str, seed: int = 1) -> Path:
    onnx.save(parsed(text, weights("a", 4, 4, seed=seed)), path)
    return path


@pytest.mark.parametrize("name", ["sequence", "bfloat16"])
def test_they_are_measured(tmp_path: Path, name: str) -> None:
    problem = open_problem(f"file:{written(tmp_path / 'm.onnx', MODELS[name])}", provider="cpu", cached=False)
    found = problem.measure(problem.model.graph)
    assert found.ok, found.message
    assert found.ms > 0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_equal_models_agree_and_others_do_not(tmp_path: Path, name: str) -> None:
    original = written(tmp_path / "m.onnx", MODELS[name])
    same = equivalent(original, original, Deployment())
    assert same.ok, same.message
    other = written(tmp_path / "other.onnx", MODELS[name], seed=2)
    found = equivalent(original, other, Deployment())
    assert not found.ok
    assert "'y'" in found.message


def test_a_difference_that_shows_without_the_optional_input_alone(tmp_path: Path) -> None:
    texts = [
        f"(optional(float[2]) o, float[2] x) => (float[2] y) {{ b = OptionalHasElement(o)  {rest} }}"
        for rest in ("c = Cast<to = 1>(b)  y = Add(x, c)", "n = Not(b)  m = Not(n)  d = Identity(one)  y = Add(x, d)")
    ]
    paths = [tmp_path / "original.onnx", tmp_path / "other.onnx"]
    one = onnx.numpy_helper.from_array(np.float32(1), "one")
    for path, text in zip(paths, texts, strict=True):
        onnx.save(parsed(text, one), path)
    found = equivalent(*paths, Deployment())
    assert not found.ok
    assert "on inputs without the optional ones" in found.message
    assert equivalent(*paths, Deployment(), extremes=False).ok


def test_an_input_of_maps_is_refused_in_a_sentence(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.onnx", "(seq(map(int64, float)) s, float[4,4] x) => (float[4,4] y) { y = MatMul(x, a) }"
    )
    with pytest.raises(UserError, match="its input 's' is neither a tensor nor a sequence"):
        open_problem(f"file:{path}", provider="cpu", cached=False)


def test_the_users_inputs_beside_a_sequence(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", MODELS["sequence"])
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((4, 4), np.float32), p=np.int64(2))
    problem = open_problem(f"file:{path}", provider="cpu", cached=False, input_data=[str(data)])
    (spec,) = problem.data
    assert spec.element_shapes == {"s": (4, 4)}
    assert equivalent(path, path, Deployment(), data=problem.data).ok


def test_the_users_inputs_of_bfloat16_may_be_float32(tmp_path: Path) -> None:
    path = written(tmp_path / "m.onnx", MODELS["bfloat16"])
    data = tmp_path / "data.npz"
    np.savez(data, x=np.ones((4, 4), np.float32))
    problem = open_problem(f"file:{path}", provider="cpu", cached=False, input_data=[str(data)])
    assert equivalent(path, path, Deployment(), data=problem.data).ok
    np.savez(data, x=np.ones((4, 4), np.int32))
    with pytest.raises(UserError, match=r"the model wants bfloat16: write array\.astype\(numpy\.float32\)"):
        open_problem(f"file:{path}", provider="cpu", cached=False, input_data=[str(data)])
