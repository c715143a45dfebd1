"""The reference semantics: in double where asked, and equal to onnx's reference evaluator and to ONNX Runtime."""

import math

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from graph_rewrite.operators.evaluation import run_graph, run_operator, run_values
from graph_rewrite.operators.standard_semantics import EvaluationError
from tests.graph_rewrite.rules.checking import model, random_feeds, run_onnxruntime, weights

B, H, T, S, D = 2, 4, 3, 5, 6


def doubles(*shape, seed=0):
    return weights(*shape, seed=seed, dtype=np.float64)


def reference(op, attrs, inputs, opset=23):
    """onnx's own evaluator, in the types of the inputs."""
    names = [f"i{k}" for k in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, inputs, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    graph = helper.make_graph([helper.make_node(op, names, ["y"], **attrs)], "one", infos, [output])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(proto).run(None, dict(zip(names, inputs, strict=True)))[0]


Q4, K4, V4 = doubles(B, H, T, D), doubles(B, H, S, D, seed=1), doubles(B, H, S, D + 1, seed=2)
Q3, K3, V3 = doubles(B, T, H * D), doubles(B, S, H * D, seed=1), doubles(B, S, H * D, seed=2)
HEADS = {"q_num_heads": H, "kv_num_heads": H}
BLIND = np.zeros((T, S))
BLIND[1] = -np.inf
ATTENTION = [
    ({}, [Q4, K4, V4]),
    ({"scale": 0.25}, [Q4, K4, V4, doubles(T, S)]),
    ({"is_causal": 1}, [Q4, K4, V4, doubles(B, 1, T, S)]),
    ({"is_causal": 1}, [Q4, K4, V4]),
    ({"softcap": 2.0}, [Q4, K4, V4, doubles(1, H, T, S)]),
    ({}, [Q4, K4, V4, np.tri(T, S, dtype=bool)]),
    ({}, [Q4, K4, V4, BLIND]),
    ({}, [Q4, K4, V4, doubles(T, S - 2)]),
    ({}, [Q4, K4[:, :2], V4[:, :2]]),
    (HEADS, [Q3, K3, V3]),
    ({**HEADS, "scale": 2.25}, [Q3, K3, V3, doubles(H, T, S)]),
    ({"q_num_heads": H, "kv_num_heads": 1}, [Q3, K3[:, :, :D], V3[:, :, :D]]),
]
OTHERS = [
    ("LayerNormalization", {}, [doubles(2, 5, 8), doubles(8), doubles(8, seed=1)]),
    ("LayerNormalization", {"axis": 1, "epsilon": 0.5}, [doubles(2, 5, 8), doubles(5, 8)]),
    ("RMSNormalization", {"axis": -2, "epsilon": 0.5}, [doubles(2, 5, 8), doubles(5, 8)]),
    ("Softmax", {"axis": 1}, [doubles(2, 5, 8)]),
    ("Erf", {}, [doubles(2, 5, 8)]),
    ("Sigmoid", {}, [doubles(2, 5, 8)]),
]


@pytest.mark.parametrize(("attrs", "inputs"), ATTENTION)
def test_attention_agrees_with_the_reference_evaluator(attrs, inputs):
    (found,) = run_operator("Attention", "", attrs, inputs, 23)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, reference("Attention", attrs, inputs), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("op", "attrs", "inputs"), OTHERS)
def test_operators_agree_with_the_reference_evaluator(op, attrs, inputs):
    (found,) = run_operator(op, "", attrs, inputs, 23)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, reference(op, attrs, inputs), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((6, 3), (4, 5, 3, 3)), ((4, 5, 6, 3), (3, 6)), ((2, 3), (7, 3, 1)), ((6, 12), (4, 12, 12)),
        ((0, 3), (2, 3, 3)), ((2, 3), (0, 3, 3)), ((3, 0), (2, 0, 4)), ((3,), (2, 3, 4)), ((2, 4, 3), (3,)),
        ((5, 2, 3), (5, 3, 2)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_products_of_stacks_are_those_of_numpy(left, right, kind):
    rng = np.random.default_rng(0)
    a, b = ((10 * rng.standard_normal(shape)).astype(kind) for shape in (left, right))
    (product,) = run_operator("MatMul", "", {}, [a, b], 23)
    expected = np.matmul(a, b)
    assert (product.shape, product.dtype) == (expected.shape, expected.dtype)
    assert np.allclose(product, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_products_of_stacks_keep_infinities_apart(value):
    kernels = np.ones((4, 3, 3), np.float32)
    kernels[1, 0, 0] = value
    (product,) = run_operator("MatMul", "", {}, [np.ones((2, 3), np.float32), kernels], 23)
    assert np.array_equal(product, np.matmul(np.ones((2, 3), np.float32), kernels), equal_nan=True)
    assert np.isfinite(product).sum() == product.size - 2


def test_layer_normalization_is_not_rounded_to_float32():
    x = doubles(3, 64)
    centred = x - x.mean(axis=1, keepdims=True)
    exact = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + float(np.float32(1e-5)))
    (found,) = run_operator("LayerNormalization", "", {"stash_type": 1}, [x, np.ones(64)], 23)
    np.testing.assert_allclose(found, exact, rtol=1e-13)


def test_gelu_has_its_constants_in_double():
    x = doubles(50)
    exact = np.array([0.5 * value * math.erfc(-value / math.sqrt(2)) for value in x])
    np.testing.assert_allclose(run_operator("Gelu", "", {}, [x], 23)[0], exact, rtol=1e-13)
    exact = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    np.testing.assert_allclose(run_operator("Gelu", "", {"approximate": "tanh"}, [x], 23)[0], exact, rtol=1e-13)


def test_further_outputs_are_computed():
    y, keys, values, scores = run_operator("Attention", "", {}, [Q4, K4, V4], 23, outputs=4)
    np.testing.assert_allclose(y, run_operator("Attention", "", {}, [Q4, K4, V4], 23)[0], rtol=1e-10)
    np.testing.assert_array_equal(keys, K4)
    np.testing.assert_array_equal(values, V4)
    assert scores.shape == (B, H, T, S)
    attrs = {"axis": -1, "epsilon": 1e-5, "stash_type": 1}
    results = run_operator("LayerNormalization", "", attrs, [Q3, np.ones(H * D)], 23, 3)
    np.testing.assert_allclose(results[1], Q3.mean(axis=-1, keepdims=True), atol=1e-12)


def test_softmax_before_opset_13_ran_over_all_later_axes():
    x = doubles(2, 3, 4)
    (found,) = run_operator("Softmax", "", {"axis": 1}, [x], 11)
    np.testing.assert_allclose(found.sum(axis=(1, 2)), 1.0)
    (found,) = run_operator("Softmax", "", {"axis": 1}, [x], 13)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


def test_extreme_numbers_neither_overflow_nor_warn():
    x = np.array([[-1e4, 0.0, 1e4]])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(run_operator("Sigmoid", "", {}, [x], 23)[0], [[0.0, 0.5, 1.0]])
        np.testing.assert_allclose(run_operator("Softmax", "", {}, [x], 23)[0], [[0.0, 0.0, 1.0]])


def test_graph_runs_in_double_or_in_its_own_types():
    text = """(float[1,4,8] x) => (y) { q = MatMul(x, w) a = Attention<q_num_heads=2, kv_num_heads=2>(q, x, x)
        n = LayerNormalization(a, g, b) y = Gelu<approximate="tanh">(n) }"""
    graph = model(text, w=weights(8, 8), g=weights(8), b=weights(8, seed=1))
    feeds = random_feeds(graph)
    (wide,), (narrow,) = run_graph(graph, feeds), run_graph(graph, feeds, float64=False)
    (runtime,) = run_onnxruntime(graph, feeds)
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    np.testing.assert_allclose(wide, runtime, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(narrow, runtime, rtol=1e-4, atol=1e-5)


def test_unknown_operator():
    with pytest.raises(NotImplementedError, match="Fancy"):
        run_operator("Fancy", "com.microsoft", {}, [np.zeros(1)], 23)


def test_scalars_stay_scalars():
    assert run_operator("Transpose", "", {}, [np.float64(2.0)], 23)[0].shape == ()
    np.testing.assert_allclose(run_operator("Softsign", "", {}, [np.float64(-3.0)], 23)[0], -0.75)


POOLS = [
    ("(float[2,3,7] x)", 'kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER"'),
    ("(float[2,3,7] x)", 'kernel_shape=[2], auto_pad="SAME_LOWER"'),
    ("(float[1,2,6,5] x)", "kernel_shape=[3,2], strides=[2,1], pads=[1,0,2,1], ceil_mode=1"),
    ("(float[1,2,6,1] x)", "kernel_shape=[2,2], pads=[0,0,1,1]"),
    ("(float[1,2,9,8] x)", 'kernel_shape=[3,2], dilations=[2,3], auto_pad="VALID"'),
    ("(float[1,1,4,5,3] x)", "kernel_shape=[2,3,2], strides=[1,2,1], dilations=[2,1,1], pads=[1,1,0,0,1,1]"),
]


@pytest.mark.parametrize(("inputs", "attrs"), POOLS)
def test_max_pool_agrees_with_onnxruntime(inputs, attrs):
    graph = model(f"{inputs} => (y) {{ y = MaxPool<{attrs}>(x) }}")
    feeds = random_feeds(graph)
    (found,), (expected,) = run_graph(graph, feeds), run_onnxruntime(graph, feeds)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_global_max_pool_keeps_all_axes():
    x = doubles(2, 3, 5)
    (found,) = run_operator("GlobalMaxPool", "", {}, [x], 23)
    np.testing.assert_array_equal(found, x.max(axis=2, keepdims=True))


def test_max_pool_of_integers():
    x = np.array([[[3, -5, 2]]], dtype=np.int8)
    (found,) = run_operator("MaxPool", "", {"kernel_shape": (2,), "pads": (0, 1)}, [x], 23)
    np.testing.assert_array_equal(found, [[[3, 2, 2]]])
    assert found.dtype == np.int8


@pytest.mark.parametrize(
    ("op", "weights"), [("LayerNormalization", 1), ("RMSNormalization", 1), ("BatchNormalization", 4)]
)
def test_defaults_are_rounded_to_float32_as_in_onnxruntime(op, weights):
    x = 1e-3 * np.random.default_rng(0).standard_normal((3, 4))
    inputs = [x, *([np.full(4, 1e-6)] * weights)]
    names = [f"i{number}" for number in range(len(inputs))]
    infos = [helper.make_tensor_value_info(n, TensorProto.DOUBLE, a.shape) for n, a in zip(names, inputs, strict=True)]
    result = helper.make_tensor_value_info("y", TensorProto.DOUBLE, x.shape)
    graph = helper.make_graph([helper.make_node(op, names, ["y"])], "g", infos, [result])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, dict(zip(names, inputs, strict=True)))
    (found,) = run_operator(op, "", {}, inputs, 23)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_reshape_that_copies_a_size_beyond_the_last_one_cannot_be_computed():
    with pytest.raises(EvaluationError, match="stands for a size"):
        run_operator("Reshape", "", {}, [np.zeros(0), np.array([1, 0])], 23)


def test_sizes_are_not_disturbed():
    graph = model("(float[1,1,4] x) => (y) <float[3] s = {1.0, 1.0, 2.0}> { y = Resize(x, , s) }")
    values = run_values(graph, random_feeds(graph), disturb=lambda array: array * (1 - 1e-3))
    assert values[graph.outputs[0]].shape == (1, 1, 8)
