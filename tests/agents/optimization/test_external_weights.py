"""`--save-as-external-data`: the weights of a result lie beside it, however few they are, and it computes the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import rewritegym
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains
from tests.graph_rewrite.sample_models import parsed, weights

BODY = "t = MatMul(x, w)  u = Relu(t)  y = MatMul(u, v)"


def model(rows: str) -> onnx.ModelProto:
    text = f"(float[{rows},32] x) => (float[{rows},32] y) {{ {BODY} }}"
    return parsed(text, weights("w", 32, 32), weights("v", 32, 32, seed=1))


@pytest.mark.parametrize("rows", ["4", "N"], ids=["fixed shape", "symbolic batch"])
def test_weights_lie_beside_the_result(rows: str, tmp_path: Path) -> None:
    source, target = tmp_path / "model.onnx", tmp_path / "fast.onnx"
    onnx.save(model(rows), source)
    with planted_gains(in_process=True):
        found = rewritegym.optimize(source, threads=1, time_limit=60, save_as_external_data=True, **OPTIONS)
    assert not found.result.is_original
    assert found.save(target) == target
    tensors = onnx.load(target, load_external_data=False).graph.initializer
    places = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    assert places == {"fast.onnx.data"}
    assert (tmp_path / "fast.onnx.data").stat().st_size >= 2 * 32 * 32 * 4
    assert target.stat().st_size < 32 * 32 * 4
    x = {"x": np.random.default_rng(0).standard_normal((4, 32)).astype(np.float32)}
    expected = onnx.reference.ReferenceEvaluator(str(source)).run(None, x)[0]
    np.testing.assert_allclose(rewritegym.session(target).run(None, x)[0], expected, rtol=1e-4, atol=1e-4)


def test_an_original_that_is_kept_stays_as_it_is(tmp_path: Path) -> None:
    source, target = tmp_path / "model.onnx", tmp_path / "kept.onnx"
    onnx.save(parsed("(float[4,4] x) => (float[4,4] y) { y = Neg(x) }"), source)
    with planted_gains(in_process=True):
        found = rewritegym.optimize(
            source, threads=1, time_limit=60, save_as_external_data=True, **{**OPTIONS, "fixed_deployment": True}
        )
    assert found.result.is_original
    found.save(target)
    assert target.read_bytes() == source.read_bytes()
    assert not list(tmp_path.glob("*.data"))


def test_a_result_without_weights_has_no_file_of_them(tmp_path: Path) -> None:
    body = "t = Transpose<perm = [1, 0]>(x)  u = Transpose<perm = [1, 0]>(t)  y = Exp(u)"
    with planted_gains(in_process=True):
        found = rewritegym.optimize(
            parsed(f"(float[4,4] x) => (float[4,4] y) {{ {body} }}"), threads=1, time_limit=60,
            save_as_external_data=True, **OPTIONS,
        )  # fmt: skip
    assert not found.result.is_original
    found.save(tmp_path / "fast.onnx")
    assert not list(tmp_path.glob("*.data"))
