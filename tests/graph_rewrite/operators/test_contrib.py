"""Types and reference semantics of ONNX Runtime's own operators, each against ONNX Runtime itself."""

import numpy as np
import pytest
from onnx import TensorProto

from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators import contrib
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.standard_types import TypeInferenceError
from tests.graph_rewrite.rules.checking import model, random_feeds, run_onnxruntime

X = "float[2,5,8]"
QKV = ["float[2,4,12]", "float[2,6,12]", "float[2,6,15]"]
SQUARE = ["float[2,6,12]", "float[2,6,12]", "float[2,6,15]"]
IMAGE, KERNEL = "float[1,4,7,7]", "float[6,4,3,3]"
CASES = [
    ("Gelu", "", [X]),
    ("BiasGelu", "", [X, "float[8]"]),
    ("FastGelu", "", [X]),
    ("FastGelu", "", [X, "float[8]"]),
    ("QuickGelu", "", [X]),
    ("QuickGelu", "alpha=1.0", [X]),
    ("SkipLayerNormalization", "", [X, X, "float[8]"]),
    ("SkipLayerNormalization", "epsilon=1e-3", [X, X, "float[8]", "float[8]"]),
    ("SkipLayerNormalization", "", [X, X, "float[8]", "float[8]", "float[8]"]),
    ("SkipLayerNormalization", "", [X, "float[1,5,8]", "float[8]", "float[8]"]),
    ("SkipLayerNormalization", "", [X, "float[5,8]", "float[8]", None, "float[8]"]),
    ("SkipLayerNormalization", "", ["float[5,8]", "float[5,8]", "float[8]", "float[8]"]),
    ("FusedMatMul", "", ["float[3,4,5]", "float[5,6]"]),
    ("FusedMatMul", "transA=1, alpha=0.5", ["float[2,3,5,4]", "float[2,3,5,6]"]),
    ("FusedMatMul", "transB=1", ["float[2,3,4,5]", "float[6,5]"]),
    ("FusedMatMul", "transA=1, transB=1, alpha=-2.0", ["float[5,4]", "float[6,5]"]),
    ("FusedConv", "", [IMAGE, KERNEL]),
    ("FusedConv", 'activation="Relu", pads=[1,1,1,1], strides=[2,2]', [IMAGE, KERNEL, "float[6]"]),
    ("FusedConv", 'activation="Sigmoid", dilations=[2,2]', [IMAGE, KERNEL, "float[6]"]),
    ("FusedConv", 'activation="Tanh"', ["float[1,4,7]", "float[6,4,3]"]),
    ("FusedConv", 'activation="LeakyRelu", activation_params=[0.1]', [IMAGE, KERNEL]),
    ("FusedConv", 'activation="Clip", activation_params=[-0.5, 1.0]', [IMAGE, KERNEL]),
    ("FusedConv", 'activation="Relu"', [IMAGE, KERNEL, "float[6]", "float[1,6,5,5]"]),
    ("FusedConv", 'activation="Relu"', [IMAGE, KERNEL, None, "float[1,6,5,5]"]),
    ("MultiHeadAttention", "num_heads=3", QKV),
    ("MultiHeadAttention", "num_heads=3, scale=0.4", [*QKV, None, None, "float[2,3,4,6]"]),
    ("MultiHeadAttention", "num_heads=3", [*QKV, None, None, "float[1,1,4,6]"]),
    ("MultiHeadAttention", "num_heads=3", [*QKV, "float[39]"]),
    ("MultiHeadAttention", "num_heads=3, unidirectional=1", SQUARE),
]


def one_operator(op, attrs, inputs):
    names = [f"i{k}" if declared else "" for k, declared in enumerate(inputs)]
    declared = ", ".join(f"{type} {name}" for type, name in zip(inputs, names, strict=True) if type)
    attributes = f"<{attrs}>" if attrs else ""
    return model(f"({declared}) => (y) {{ y = com.microsoft.{op}{attributes}({', '.join(names)}) }}")


@pytest.mark.parametrize(("op", "attrs", "inputs"), CASES)
def test_operator_agrees_with_onnxruntime(op, attrs, inputs):
    graph = one_operator(op, attrs, inputs)
    feeds = random_feeds(graph)
    (expected,), (found,) = run_onnxruntime(graph, feeds), run_graph(graph, feeds)
    assert found.dtype == np.float64
    assert expected.shape == graph.types[graph.outputs[0]].shape
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5 * float(np.abs(expected).max()))


def test_sum_beside_skip_layer_normalization():
    graph = model("""(float[2,5,8] x, float[2,5,8] skip, float[8] g, float[8] b, float[8] bias) => (y, total)
        { y, mean, deviation, total = com.microsoft.SkipLayerNormalization(x, skip, g, b, bias) }""")
    feeds = random_feeds(graph)
    for expected, found in zip(run_onnxruntime(graph, feeds), run_graph(graph, feeds), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    _, mean, inverse, total = contrib.run("SkipLayerNormalization", {}, [feeds[name] for name in ("x", "skip", "g")])
    np.testing.assert_allclose(((total - mean) * inverse).std(axis=-1), 1.0, rtol=1e-5)


@pytest.mark.parametrize(("op", "attrs", "shapes", "reason"), [
    ("FusedMatMul", {}, [(4, 5), (6, 5)], "inner dimensions"),
    ("FusedMatMul", {"transBatchA": 1}, [(4, 5), (5, 5)], "transposed batches"),
    ("FusedMatMul", {"transB": 1}, [(4, 5), (5,)], "no transpose"),
    ("FusedConv", {}, [(1, 4, 7, 7), (6, 4, 3)], "Conv"),
    ("MultiHeadAttention", {"num_heads": 5}, [(2, 4, 12), (2, 6, 12), (2, 6, 12)], "not a multiple of 5 heads"),
    ("MultiHeadAttention", {"num_heads": 3}, [(2, 4, 3, 3, 4)], "rank 3"),
])  # fmt: skip
def test_inputs_that_do_not_fit(op, attrs, shapes, reason):
    inputs = [TensorType(TensorProto.FLOAT, shape) for shape in shapes]
    with pytest.raises(TypeInferenceError, match=reason):
        contrib.infer(op, attrs, inputs, 1)


def test_operators_that_are_not_modelled():
    assert contrib.infer("NoSuchOperator", {}, [TensorType(TensorProto.FLOAT, (2,))], 2) == (None, None)
    with pytest.raises(NotImplementedError, match="NoSuchOperator"):
        contrib.run("NoSuchOperator", {}, [np.zeros(2)])
    query, padding = np.zeros((1, 2, 4)), np.zeros((1, 2), dtype=np.int32)
    with pytest.raises(NotImplementedError, match="padding mask"):
        contrib.run("MultiHeadAttention", {"num_heads": 2}, [query, query, query, None, padding])
