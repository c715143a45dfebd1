"""Small models from which damaged ones are made: every field of the format that loading reads stands in one of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import parsed, weights


def image() -> onnx.ModelProto:
    """Convolutions, pools, a normalisation and a classifier, with constants for shapes and axes."""
    text = """(float[1,2,8,8] x) => (float[1,3] y)
        <int64[2] axes = {2, 3}, int64[2] to = {1, 4}, int64[8] pads = {0, 0, 1, 1, 0, 0, 1, 1}> {
        p = Pad(x, pads)  c = Conv<kernel_shape = [3, 3], strides = [1, 1]>(p, w)
        n = BatchNormalization(c, s, b, m, v)  r = Relu(n)  q = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
        a = AveragePool<kernel_shape = [2, 2]>(q)  g = ReduceMean<keepdims = 1>(a, axes)  f = Reshape(g, to)
        h = Gemm<transB = 1>(f, k, o)  y = Softmax<axis = 1>(h) }"""
    tensors = [weights("w", 4, 2, 3, 3), weights("k", 3, 4), weights("o", 3)]
    return parsed(text, *tensors, *(numpy_helper.from_array(np.float32([1, 2, 3, 4]), name) for name in "sbmv"))


def tokens() -> onnx.ModelProto:
    """An embedding, an attention with its movements of axes, and an activation."""
    text = """(int64[1,4] ids) => (float[1,4,8] y, float[8,4] z)
        <int64[4] heads = {1, 4, 2, 4}, int64[3] flat = {1, 4, 8}> {
        e = Gather(t, ids)  n = LayerNormalization<axis = -1>(e, g)  q = MatMul(n, a)  k = MatMul(n, b)
        qh = Reshape(q, heads)  kh = Reshape(k, heads)  qt = Transpose<perm = [0, 2, 1, 3]>(qh)
        kt = Transpose<perm = [0, 2, 3, 1]>(kh)  s = MatMul(qt, kt)  m = Mul(s, half)  p = Softmax<axis = -1>(m)
        v = Transpose<perm = [0, 2, 1, 3]>(kh)  o = MatMul(p, v)  ot = Transpose<perm = [0, 2, 1, 3]>(o)
        f = Reshape(ot, flat)  d = Gelu(f)  l, r = Split<axis = 2, num_outputs = 2>(d)  c = Concat<axis = 2>(r, l)
        y = Add(c, e)  sq = Squeeze(y)  z = Transpose(sq) }"""
    tensors = [weights("t", 16, 8), weights("g", 8), weights("a", 8, 8), weights("b", 8, 8, seed=1)]
    return parsed(text, *tensors, numpy_helper.from_array(np.float32(0.5), "half"))


def movements() -> onnx.ModelProto:
    """Slices, gathers, pads, tiles and casts, which read shapes and indices from constants."""
    text = """(float[2,6] x, bool[2,6] c) => (float[2,6] y, int64[2] n, float16[3,2] h) <
        int64[2] starts = {0, 1}, int64[2] ends = {2, 5}, int64[1] one = {1}, int64[2] i = {1, 0}, int64[2] r = {1, 2},
        int64[2] to = {3, 2}, int64[2] wide = {2, 6}, float low = {-1.0}, float high = {1.0}> {
        s = Slice(x, starts, ends)  u = Unsqueeze(s, one)  q = Squeeze(u, one)  g = Gather<axis = 0>(x, i)
        k = Clip(g, low, high)  w = Where(c, k, x)  e = Expand(low, wide)  y = Add(w, e)  n = Shape(y)
        t = Slice(q, one, i)  a = ReduceSum(q, one)  b = Tile(a, r)  m = ArgMax<axis = 1>(b)
        l, o = Split<axis = 1, num_outputs = 2>(x)  v = Reshape(o, to)  h = Cast<to = 10>(v) }"""
    return parsed(text)


def quantised() -> onnx.ModelProto:
    """QuantizeLinear, DequantizeLinear and an integer product."""
    text = """(float[2,4] x) => (float[2,3] y) <float s = {0.1}, uint8 z = {128}, int8 wz = {0}> {
        q = QuantizeLinear(x, s, z)  d = DequantizeLinear(q, s, z)  w = DequantizeLinear(k, s, wz)  m = MatMul(d, w)
        p = QuantizeLinear(m, s, z)  y = DequantizeLinear(p, s, z) }"""
    return parsed(text, numpy_helper.from_array(np.arange(12, dtype=np.int8).reshape(4, 3), "k"))


_SAMPLES = (
    sample_models.several_outputs, sample_models.overridable, sample_models.old, sample_models.conditional,
    sample_models.loop, sample_models.functions, sample_models.strings, sample_models.sequences,
    sample_models.optionals, sample_models.omitted, sample_models.sparse, sample_models.documented,
    sample_models.half_precision, sample_models.packed_integers, sample_models.domain_alias,
    sample_models.contrib_only, sample_models.custom,
)  # fmt: skip
CORPUS: tuple[Callable[[], onnx.ModelProto], ...] = (image, tokens, movements, quantised, *_SAMPLES)
