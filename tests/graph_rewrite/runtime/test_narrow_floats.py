"""bfloat16 and float8: their types, inputs of them, and what ONNX Runtime makes of them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

from graph_rewrite.runtime.ort_worker.feeds import FeedSpec, ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.narrow_floats import (
    NARROW,
    epsilon,
    is_narrow,
    narrow_type,
    narrowed,
    run,
    storable,
)
from graph_rewrite.runtime.ort_worker.patterns import disturbed
from graph_rewrite.runtime.ort_worker.values import compare_values, is_constant
from tests.graph_rewrite.sample_models import parsed

FORMATS = sorted(NARROW)
SAMPLE = np.array([0.0, 1.0, -1.0, 0.3, -2.5, 1e-3, 1e9, -1e9])


def opened(model: onnx.ModelProto) -> ort.InferenceSession:
    return ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def casting(element: str) -> onnx.ModelProto:
    """A model that gives its input as it is, as float32, and back."""
    number = onnx.TensorProto.DataType.Value(element.upper())
    return parsed(
        f"({element}[2,4] x) => (float[2,4] y, {element}[2,4] z) {{ y = Cast<to = 1>(x)  z = Cast<to = {number}>(y) }}"
    )


@pytest.mark.parametrize("element", FORMATS)
class TestFormats:
    def test_limits_are_those_of_the_type(self, element: str) -> None:
        dtype = narrow_type(element)
        known = ml_dtypes.finfo(dtype)
        assert epsilon(np.zeros(1, dtype)) == float(known.eps)
        largest = narrowed(np.array([1e39, -1e39]), dtype)
        assert largest.tolist() == [float(known.max), float(known.min)]

    def test_onnx_runtime_reads_and_gives_the_same_numbers(self, element: str) -> None:
        x = narrowed(SAMPLE, narrow_type(element)).reshape(2, 4)
        assert is_narrow(x)
        as_float, back = run(opened(casting(element)), ["y", "z"], {"x": x})
        assert as_float.tolist() == x.astype(np.float32).tolist()
        assert (back.dtype, back.tolist()) == (x.dtype, x.tolist())

    def test_feeds_and_patterns_stay_finite(self, element: str) -> None:
        item = ModelInput("x", f"tensor({element})", (3, 5))
        for pattern in ("", "small", "large", "zeros", "ones", "one-hot"):
            made = make_feeds([item], FeedSpec(1, pattern=pattern))["x"]
            assert (made.dtype, made.shape) == (np.dtype(narrow_type(element)), (3, 5))
            assert np.isfinite(made.astype(np.float32)).all()
        assert make_feeds([item], FeedSpec(1))["x"].astype(np.float32).std() > 0.3

    def test_files_hold_them_as_they_are_or_wider(self, element: str, tmp_path: Path) -> None:
        item, dtype = ModelInput("x", f"tensor({element})", (8,)), narrow_type(element)
        wanted = narrowed(np.linspace(-1, 1, 8), dtype)
        for given in (storable(wanted), wanted.astype(np.float32), wanted.astype(np.float64)):
            np.savez(tmp_path / "x.npz", x=given)
            found = make_feeds([item], FeedSpec(npz=str(tmp_path / "x.npz")))["x"]
            assert (found.dtype, found.tolist()) == (wanted.dtype, wanted.tolist())
        np.savez(tmp_path / "x.npz", x=np.arange(8))
        with pytest.raises(ValueError, match="gives 'x' as int64"):
            make_feeds([item], FeedSpec(npz=str(tmp_path / "x.npz")))

    def test_values_are_compared_as_floats(self, element: str) -> None:
        x = narrowed(SAMPLE[:6], narrow_type(element))
        assert compare_values(x, x.copy()) == (0.0, "")
        other = x.copy()
        other[1] = 2.0
        assert compare_values(x, other) == (0.4, "")
        assert "instead of" in compare_values(x, x.astype(np.float32))[1]
        assert is_constant(np.ones_like(x))
        assert not is_constant(x)

    def test_disturbed_values_lie_near(self, element: str) -> None:
        x = narrowed(np.linspace(-1, 1, 50), narrow_type(element))
        changed = disturbed(x)
        assert changed.dtype == x.dtype
        error, problem = compare_values(x, changed)
        assert 0 < error <= 6 * epsilon(x)
        assert not problem


def test_other_outputs_come_with_them() -> None:
    model = parsed("""(bfloat16[2] x, float[3] f, int64[2] i, bool b) => (bfloat16[2] y, float[3] g, int64[2] j, bool c)
        { y = Identity(x)  g = Neg(f)  j = Identity(i)  c = Not(b) }""")
    session = opened(model)
    feeds = make_feeds([ModelInput(i.name, i.type, tuple(i.shape)) for i in session.get_inputs()], FeedSpec())
    y, g, j, c = run(session, ["y", "g", "j", "c"], feeds)
    assert y.tolist() == feeds["x"].tolist()
    assert g.tolist() == (-feeds["f"]).tolist()
    assert j.tolist() == feeds["i"].tolist()
    assert c == ~feeds["b"]
    assert run(session, ["g"], feeds)[0].tolist() == g.tolist()


def test_empty_and_scalar_values() -> None:
    model = parsed(
        "(bfloat16[0,3] x, bfloat16 s) => (bfloat16[0,3] y, bfloat16 t) { y = Identity(x)  t = Identity(s) }"
    )
    dtype = narrow_type("bfloat16")
    y, t = run(opened(model), ["y", "t"], {"x": np.zeros((0, 3), dtype), "s": np.array(1.5, dtype)})
    assert (y.shape, t.shape, float(t)) == ((0, 3), (), 1.5)


def test_texts_and_sequences_cannot_come_with_such_outputs() -> None:
    model = parsed(
        "(bfloat16[2] x, seq(float[2]) s) => (bfloat16[2] y, int64 n) { y = Identity(x) n = SequenceLength(s) }"
    )
    feeds = {"x": np.ones(2, narrow_type("bfloat16")), "s": [np.ones(2, np.float32)]}
    assert run(opened(model), ["n"], feeds)[0] == 1
    with pytest.raises(ValueError, match="together with the input 's'"):
        run(opened(model), ["y"], feeds)


def test_numbers_are_those_of_onnx() -> None:
    for element in FORMATS:
        number = onnx.TensorProto.DataType.Value(element.upper())
        assert np.dtype(helper.tensor_dtype_to_np_dtype(number)) == np.dtype(narrow_type(element))
