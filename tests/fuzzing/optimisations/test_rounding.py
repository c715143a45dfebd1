"""The judge: what rounding explains passes, and what it does not is found."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.fuzzing.optimisations.rounding import Judge, Reference, difference, told
from tests.fuzzing.optimisations.running import Array, opened, run
from tests.graph_rewrite.sample_models import parsed, weights

X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def model(body: str, kind: str = "float", result: str = "float[8,n]", *tensors: onnx.TensorProto) -> onnx.ModelProto:
    return parsed(f"({kind}[8,16] x) => ({result} y) {{ {body} }}", *tensors)


def reference_of(proto: onnx.ModelProto, x: Array) -> Reference | None:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    others = {o.name for o in proto.graph.output if o.type.tensor_type.elem_type != dtype}
    names = {name for node in proto.graph.node for name in node.output} - others
    known = {tensor.name: tensor.data_type for tensor in proto.graph.initializer if tensor.data_type == dtype}
    return Judge(proto, {**dict.fromkeys(names | {"x"}, dtype), **known}).reference({"x": x})


def judged(before: onnx.ModelProto, after: onnx.ModelProto, x: Array = X) -> str:
    reference = reference_of(before, x)
    assert reference is not None
    return difference(reference, run(opened(after), {"x": x}))


W, V = weights("w", 16, 16), weights("v", 16, 16, seed=1)


def test_another_order_of_operations_passes() -> None:
    product = parsed("(float[16,16] w, float[16,16] v) => (float[16,16] p) { p = MatMul(w, v) }")
    folded = run(opened(product), {t.name: onnx.numpy_helper.to_array(t) for t in (W, V)})["p"]
    before = model("t = MatMul(x, w)  y = MatMul(t, v)", "float", "float[8,n]", W, V)
    after = model("y = MatMul(x, p)", "float", "float[8,n]", onnx.numpy_helper.from_array(folded, "p"))
    assert judged(before, after) == ""


def test_cancellation_passes_as_far_as_rounding_goes() -> None:
    large = onnx.numpy_helper.from_array(np.float32(1e4), "c")
    before = model("s = Add(x, c)  y = Sub(s, c)", "float", "float[8,n]", large)
    assert judged(before, model("y = Identity(x)")) == ""
    beyond = model("y = Mul(x, b)", "float", "float[8,n]", onnx.numpy_helper.from_array(np.float32(1.1), "b"))
    assert "elements differ" in judged(before, beyond)


@pytest.mark.parametrize(
    ("kind", "error"), [("float", 1e-4), ("double", 1e-10), ("float", float("nan")), ("float", float("inf"))]
)
def test_an_error_in_one_element_is_found(kind: str, error: float) -> None:
    x = X.astype(np.float64 if kind == "double" else np.float32)
    reference = reference_of(model("y = Tanh(x)", kind, f"{kind}[8,n]"), x)
    assert reference is not None
    given = {name: np.array(value) for name, value in reference.outputs.items()}
    assert difference(reference, given) == ""
    given["y"][3, 5] += error
    assert difference(reference, given).startswith("output y: 1 of 128 elements differ")


def test_a_small_constant_rounded_to_float32_is_found() -> None:
    tensors = [onnx.numpy_helper.from_array(np.array(value), "e") for value in (1e-5, float(np.float32(1e-5)))]
    body, x = "q = Mul(x, x)  s = Add(q, e)  y = Sqrt(s)", 1e-3 * X.astype(np.float64)
    before, after = (model(body, "double", "double[8,n]", tensor) for tensor in tensors)
    assert "elements differ" in judged(before, after, x)


def test_whole_numbers_differ_only_where_rounding_decides() -> None:
    body, result = "y = ArgMax<axis = 1, keepdims = 1>(x)", "int64[8,1]"
    assert "elements differ" in judged(
        model(body, result=result), model(body.replace("ArgMax", "ArgMin"), result=result)
    )
    ties = np.repeat(X[:, :1], 16, axis=1)
    reference: Any = reference_of(model(body, result=result), ties)
    assert told(reference) == 0.0
    assert difference(reference, {"y": np.full((8, 1), 7)}) == ""


def test_what_is_missing_or_of_another_kind_is_found() -> None:
    reference = reference_of(model("y = Tanh(x)"), X)
    assert reference is not None
    assert difference(reference, {}) == "output y is missing"
    assert "float64" in difference(reference, {"y": np.tanh(X.astype(np.float64))})


def test_values_that_are_no_numbers_are_not_judged() -> None:
    assert reference_of(model("y = Log(x)"), X) is None
