"""The models of the matrix, by the feature that each stands for. Most are texts; the rest are made by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.fuzzing import corpus
from tests.graph_rewrite import custom_ops, sample_models
from tests.graph_rewrite.body_models import TEXTS as BODY_MODELS
from tests.graph_rewrite.body_models import body_model
from tests.graph_rewrite.sample_models import parsed, weights

Made = Callable[[], onnx.ModelProto]

_CHAIN = "t = MatMul(x, a)  y = MatMul(t, b)"
# Opset and body, between x and y of float[4,4], with constants a and b.
_BODIES: Mapping[str, tuple[int, str]] = {
    "opset 7": (7, f"{_CHAIN}".replace("y =", "u =") + "  d = Dropout(u)  y = Softmax<axis = 1>(d)"),
    "opset 9": (9, "t = Unsqueeze<axes = [0]>(x)  u = Squeeze<axes = [0]>(t)  y = MatMul(u, a)"),
    "opset 10": (10, "t = Clip<min = -1.0, max = 1.0>(x)  y = Gemm(t, a, b)"),
    "opset 11": (11, "s, t = Split<axis = 0>(x)  y = Concat<axis = 0>(t, s)"),
    "opset 12": (12, "t = ReduceSum<axes = [1], keepdims = 1>(x)  y = Sub(x, t)"),
    "opset 13": (13, "t = Softmax<axis = 0>(x)  y = MatMul(t, a)"),
    "opset 14": (14, "t = Relu(x)  u = Add(t, a)  y = Mul(u, u)"),
    "opset 15": (15, "t = Pow(x, x2)  y = Sqrt(t)".replace("x2", "a").replace("Pow(x, a)", "Mul(x, x)")),
    "opset 16": (16, "t = PRelu(x, a)  y = Identity(t)"),
    "opset 17": (17, "t = ReduceMax<axes = [1], keepdims = 1>(x)  y = Sub(x, t)"),
    "opset 18": (18, f"{_CHAIN}"),
    "opset 20": (20, "t = Gelu(x)  y = Add(t, a)"),
    "opset 21": (21, "t = Transpose<perm = [1, 0]>(x)  u = MatMul(t, a)  y = Transpose<perm = [1, 0]>(u)"),
    "opset 22": (22, "t = Elu(x)  y = MatMul(t, a)"),
    "opset 23": (23, "t = MatMul(x, a)  u = MatMul(x, b)  y = Add(t, u)"),
    "opset 24": (24, _CHAIN),
    "opset 25": (25, _CHAIN),
    "identity only": (23, "y = Identity(x)"),
    "identities in a row": (23, "s = Identity(x)  t = Identity(s)  y = Identity(t)"),
    "an unused node": (23, "t = Exp(x)  y = Neg(x)"),
    "the same node twice": (23, "s = Exp(x)  t = Exp(x)  y = Add(s, t)"),
    "constants alone": (23, "t = MatMul(a, b)  y = Add(x, t)"),
    "a value read by many": (23, "t = MatMul(x, a)  u = Add(t, t)  v = Mul(u, t)  y = Sub(v, t)"),
    "Dropout in inference": (22, "t = Dropout(x)  y = MatMul(t, a)"),
    "a random number with a seed": (20, "r = RandomNormalLike<seed = 1.0>(x)  t = MatMul(x, a)  y = Add(t, r)"),
    "shapes computed at run time": (23, "s = Shape(x)  t = Relu(x)  y = Reshape(t, s)"),
    "com.microsoft": (23, "t = com.microsoft.QuickGelu(x)  y = MatMul(t, a)"),
    "Einsum": (23, 't = Einsum<equation = "ij,jk->ik">(x, a)  y = Relu(t)'),
    "Where over constants": (23, "c = Greater(a, b)  t = Where(c, x, a)  y = MatMul(t, b)"),
}
# Whole models in opset 23, with their own inputs; a and b are constants of the input's type.
_TEXTS: Mapping[str, str] = {
    "double": f"(double[4,4] x) => (double[4,4] y) {{ {_CHAIN} }}",
    "float16": f"(float16[4,4] x) => (float16[4,4] y) {{ {_CHAIN} }}",
    "bfloat16": "(float[4,4] x) => (float[4,4] y) { t = Cast<to = 16>(x)  u = Cast<to = 1>(t)  y = MatMul(u, a) }",
    "int8": "(int8[4,4] x) => (int32[4,4] y) { y = MatMulInteger(x, x) }",
    "int64": "(int64[4,4] x) => (int64[4,4] y) { t = Add(x, x)  y = Mul(t, x) }",
    "booleans": "(bool[4] p, bool[4] q) => (bool[4] y) { t = Not(p)  u = And(t, q)  y = Or(u, p) }",
    "scalars": "(float x) => (float y) { t = Exp(x)  y = Mul(t, x) }",
    "a dimension of 0": "(float[0,4] x) => (float[0,4] y) { t = MatMul(x, a)  y = Relu(t) }",
    "an empty result": "(float[4,4] x) => (float[0,4] y) <int64[0] i = {}> { y = Gather<axis = 0>(x, i) }",
    "an unused input": "(float[4,4] x, float[7] unused) => (float[4,4] y) { y = MatMul(x, a) }",
    "no node, an input is the output": "(float[4,4] x) => (float[4,4] x) { }",
    "an output is an input": "(float[4,4] x) => (float[4,4] y, float[4,4] x) { y = MatMul(x, a) }",
    "an output is an initializer": "(float[4,4] x) => (float[4,4] y, float[4,4] a) { y = MatMul(x, a) }",
    "an output twice under two names": "(float[4] x) => (float[4] y, float[4] z) { y = Exp(x)  z = Identity(y) }",
    "several inputs and outputs": """(float[4,4] x, float[4,4] z) => (float[4,4] y, float[4,4] w, float[4] m) <
        int64[1] one = {1}> { y = MatMul(x, z)  w = Add(y, x)  m = ReduceMean<keepdims = 0>(w, one) }""",
    "no inputs": "() => (float[4,4] y) { y = MatMul(a, a) }",
    "TopK": "(float[4,4] x) => (float[4,2] y, int64[4,2] i) <int64[1] k = {2}> { y, i = TopK(x, k) }",
    "NonZero": "(float[4,4] x) => (int64[2,n] y) { t = Relu(x)  y = NonZero(t) }",
    "a captured value": """(bool c, float[4,4] x) => (float[4,4] y) { t = MatMul(x, a)  y = If(c) <
        then_branch = p () => (float[4,4] u) { u = MatMul(t, a) },
        else_branch = q () => (float[4,4] v) { v = Neg(t) }> }""",
    "Dropout in training": """(float[4,4] x) => (float[4,4] y) <float r = {0.5}, bool on = {1}> {
        t = MatMul(x, a)  y = Dropout<seed = 7>(t, r, on) }""",
    "QDQ around a product": """(float[4,4] x) => (float[4,4] y) <float s = {0.1}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  t = MatMul(d, a)
        p = QuantizeLinear(t, s, z)  y = DequantizeLinear(p, s, z) }""",
    "QLinearMatMul": """(float[4,4] x) => (float[4,4] y) <float s = {0.1}, uint8 z = {128}> {
        q = QuantizeLinear(x, s, z)  p = QLinearMatMul(q, s, z, q, s, z, s, z)  y = DequantizeLinear(p, s, z) }""",
    "a sequence as input": "(seq(float[2]) s) => (int64 y) { y = SequenceLength(s) }",
    "a sequence in, a sequence out": """(seq(float[4,4]) s, int64 p, float[4,4] x) => (seq(float[4,4]) y) {
        t = SequenceAt(s, p)  u = Add(t, x)  v = MatMul(u, a)  y = SequenceInsert(s, v) }""",
    "a sequence of texts": "(seq(string[2]) s, float[4,4] x) => (int64 n, float[4,4] y) "
    "{ n = SequenceLength(s)  y = MatMul(x, a) }",
    "an optional input": """(optional(float[4,4]) o, float[4,4] x) => (float[4,4] y) {
        h = OptionalHasElement(o)  c = Cast<to = 1>(h)  t = MatMul(x, a)  y = Mul(t, c) }""",
    "an optional sequence": """(optional(seq(float[4,4])) o, float[4,4] x) => (bool h, float[4,4] y) {
        h = OptionalHasElement(o)  y = MatMul(x, a) }""",
    "bfloat16 in and out": """(bfloat16[4,4] x) => (bfloat16[4,4] y) {
        t = Cast<to = 1>(x)  s = MatMul(t, a)  u = Transpose<perm = [1, 0]>(s)  v = Transpose<perm = [1, 0]>(u)
        y = Cast<to = 16>(v) }""",
    "float8 in and out": """(float8e5m2[4,4] x) => (float8e5m2[4,4] y) {
        t = Cast<to = 1>(x)  s = MatMul(t, a)  u = Relu(s)  y = Cast<to = 19>(u) }""",
    "a symbolic batch": "(float[N,4] x) => (float[N,4] y) { t = MatMul(x, a)  u = Relu(t)  y = MatMul(u, b) }",
    "two inputs of one symbolic batch": """(float[N,4] x, float[N,4] z) => (float[N,4] y) {
        t = MatMul(x, a)  u = MatMul(z, a)  y = Add(t, u) }""",
    "a symbolic sequence": """(float[1,S,4] x) => (float[S,4] y) <int64[2] flat = {-1, 4}> {
        t = MatMul(x, a)  u = Reshape(t, flat)  v = Transpose<perm = [1, 0]>(u)  w = Transpose<perm = [1, 0]>(v)
        y = Relu(w) }""",
    "two symbolic dimensions and a shape computed from them": """(float[B,S,4] x) => (float[B,S,2,2] y) <
        int64[2] heads = {2, 2}> { t = MatMul(x, a)  s = Shape<end = 2>(x)  c = Concat<axis = 0>(s, heads)
        u = Relu(t)  y = Reshape(u, c) }""",
    "a symbolic image": """(float[1,4,H,W] x) => (float[1,4,H,W] y) {
        t = Relu(x)  u = Transpose<perm = [0, 2, 3, 1]>(t)  v = MatMul(u, a)
        y = Transpose<perm = [0, 3, 1, 2]>(v) }""",
    "QDQ around a convolution, per channel": """(float[1,4,6,6] x) => (float[1,4,6,6] y) <
        float s = {0.1}, uint8 z = {128}, float[4] ws = {0.01, 0.02, 0.03, 0.04}, int8[4] wz = {0, 0, 0, 0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  wq = QuantizeLinear<axis = 0>(filters, ws, wz)
        w = DequantizeLinear<axis = 0>(wq, ws, wz)  c = Conv<pads = [1, 1, 1, 1]>(d, w)  r = Relu(c)
        p = QuantizeLinear(r, s, z)  y = DequantizeLinear(p, s, z) }""",
    "dynamic quantisation": """(float[4,4] x) => (float[4,4] y) <uint8[4,4] w =
        {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}> {
        q, s, z = DynamicQuantizeLinear(x)  p = MatMulInteger(q, w, z)  f = Cast<to = 1>(p)  y = Mul(f, s) }""",
    "If within If": """(bool c, float[4,4] x) => (float[4,4] y) { t = MatMul(x, a)  y = If(c) <
        then_branch = p () => (float[4,4] u) { u = If(c) <
            then_branch = r () => (float[4,4] v) { v = Neg(t) },
            else_branch = s () => (float[4,4] w) { w = Exp(t) }> },
        else_branch = q () => (float[4,4] e) { e = Abs(t) }> }""",
    "If on a constant": """(float[4,4] x) => (float[4,4] y) <bool c = {1}> { t = MatMul(x, a)  y = If(c) <
        then_branch = p () => (float[4,4] u) { u = MatMul(t, b) },
        else_branch = q () => (float[4,4] v) { v = Neg(t) }> }""",
    "numbers of half precision within float": """(float[4,4] x) => (float[4,4] y) {
        t = MatMul(x, a)  h = Cast<to = 10>(t)  u = Relu(h)  v = Add(u, u)  w = Cast<to = 1>(v)  y = MatMul(w, b) }""",
    "scikit-learn's operators": """(float[4,4] x) => (float[4,4] y) {
        t = MatMul(x, a)  y = ai.onnx.ml.Normalizer<norm = "L2">(t) }""",
    "LSTM": "(float[3,1,4] x) => (float[3,1,1,2] y) { y = LSTM<hidden_size = 2>(x, lw, lr) }",
    "Resize": """(float[1,1,4,4] x) => (float[1,1,8,8] y) <float[4] s = {1.0, 1.0, 2.0, 2.0}> {
        y = Resize<mode = "nearest">(x, "", s) }""",
}  # fmt: skip


def _constants(text: str, dtype: Any) -> list[onnx.TensorProto]:
    shapes = {"a": (4, 4), "b": (4, 4), "filters": (4, 4, 3, 3), "lw": (1, 8, 4), "lr": (1, 8, 2)}
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").replace("]", "] ").split())
    return [weights(name, *shape, dtype=dtype, seed=len(name)) for name, shape in shapes.items() if name in words]


def _of_body(opset: int, body: str) -> Made:
    text = f"(float[4,4] x) => (float[4,4] y) {{ {body} }}"
    return lambda: parsed(text, *_constants(text, np.float32), opset=opset, ir_version=8 if opset < 15 else 10)


def _of_text(text: str, opset: int = 23) -> Made:
    dtype = np.float64 if "double" in text else np.float16 if "(float16" in text else np.float32
    return lambda: parsed(text, *_constants(text, dtype), opset=opset)


def _names(change: Callable[[onnx.NodeProto, int], None]) -> Made:
    def make() -> onnx.ModelProto:
        model = _of_text(f"(float[4,4] x) => (float[4,4] y) {{ {_CHAIN} }}")()
        for number, node in enumerate(model.graph.node):
            change(node, number)
        return model

    return make


def _same_name(node: onnx.NodeProto, _: int) -> None:
    node.name = "same"


def _no_name(node: onnx.NodeProto, _: int) -> None:
    node.name = ""


def _empty_graph() -> onnx.ModelProto:
    graph = helper.make_graph([], "empty", [], [helper.make_tensor_value_info("w", TensorProto.FLOAT, [2])])
    graph.initializer.append(weights("w", 2))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def _names_of_other_scripts() -> onnx.ModelProto:
    model = _of_text("(float[4,4] x) => (float[4,4] y) { t = MatMul(x, a)  u = Relu(t)  y = MatMul(u, b) }")()
    for number, node in enumerate(model.graph.node):
        node.name, node.input[:] = f"слой/{number} 層", ["t é" if name == "t" else name for name in node.input]
        node.output[:] = ["t é" if name == "t" else name for name in node.output]
    return model


def _weights_as_inputs() -> onnx.ModelProto:
    """As exporters did before IR version 4: every initializer is an input, too."""
    model = _of_body(7, "t = MatMul(x, a)  u = Relu(t)  y = MatMul(u, b)")()
    model.ir_version = 3
    model.graph.input.extend(
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims) for tensor in model.graph.initializer
    )
    return model


def _function_of_any_batch() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        main (float[N,4] x) => (float[N,4] y) { t = own.turned(x)  y = own.turned(t) }
        <domain: "own", opset_import: ["" : 20]> turned (p) => (r) {
            q = Transpose<perm = [1, 0]>(p)  e = Exp(q)  r = Transpose<perm = [1, 0]>(e) }"""
    )


def _big_constant() -> onnx.ModelProto:
    text = "(float[2,300] x) => (float[2,300] y) { t = MatMul(x, w)  y = Relu(t) }"
    return parsed(text, weights("w", 300, 300), opset=20)


def _scan() -> onnx.ModelProto:
    body = parsed("(float[4] s, float[4] e) => (float[4] n, float[4] o) { n = Add(s, e)  o = Identity(n) }").graph
    model = parsed("(float[4] i, float[3,4] x) => (float[4] last, float[3,4] y) { last = Relu(i)  y = Relu(x) }")
    del model.graph.node[:]
    model.graph.node.append(helper.make_node("Scan", ["i", "x"], ["last", "y"], body=body, num_scan_inputs=1))
    return model


def _constant_node() -> onnx.ModelProto:
    model = parsed("(float[4,4] x) => (float[4,4] y) { y = MatMul(x, c) }")
    value = numpy_helper.from_array(np.eye(4, dtype=np.float32))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=value))
    return model


MATRIX: Mapping[str, Made] = {
    **{feature: _of_body(*body) for feature, body in _BODIES.items()},
    **{feature: _of_text(text) for feature, text in _TEXTS.items()},
    **{make.__name__.replace("_", " "): make for make in sample_models.RUNNABLE},
    **{f"network: {make.__name__}": make for make in (corpus.image, corpus.tokens, corpus.quantised)},
    "a type without a kernel in the newest opset": _of_text(
        "(double[4,4] x) => (double[4,4] y) { t = MatMul(x, a)  y = Selu(t) }", 18
    ),
    "duplicate node names": _names(_same_name), "empty node names": _names(_no_name), "no nodes": _empty_graph,
    "names of other scripts": _names_of_other_scripts, "weights as inputs": _weights_as_inputs,
    "a function, and a symbolic batch": _function_of_any_batch,
    **{feature: partial(body_model, feature) for feature in BODY_MODELS},
    "a large constant": _big_constant, "Scan": _scan, "a Constant node": _constant_node,
    "an operator of a custom domain": sample_models.custom,
    "an operator of a library": custom_ops.model,
}  # fmt: skip

REFUSED: Mapping[str, str] = {
    "documented": "x [N, 3]", "a symbolic batch": "x [N, 4]", "two inputs of one symbolic batch": "z [N, 4]",
    "a symbolic sequence": "x [1, S, 4]", "a symbolic image": "x [1, 4, H, W]",
    "two symbolic dimensions and a shape computed from them": "x [B, S, 4]",
    "a function, and a symbolic batch": "x [N, 4]", "a branch of a symbolic batch": "x [N, 4]",
}  # fmt: skip
"""Features that normalisation refuses, and what it says."""
UNRUNNABLE = frozenset({"an operator of a custom domain", "duplicate node names"})
"""Features that nobody has a library for, or that ONNX Runtime refuses in the original: these are loaded, rewritten and
saved only."""
