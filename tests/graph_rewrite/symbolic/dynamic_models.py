"""Small models with symbolic dimensions, as exporters write them: what depends on shapes is computed by Shape, Gather,
Concat, Slice and Range."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

HIDDEN, HEADS, POSITIONS, VOCABULARY = 16, 2, 48, 40

_LAYER = """
    q{i} = MatMul(h{i}, wq{i})
    k{i} = MatMul(h{i}, wk{i})
    v{i} = MatMul(h{i}, wv{i})
    qh{i} = Reshape(q{i}, split)
    kh{i} = Reshape(k{i}, split)
    vh{i} = Reshape(v{i}, split)
    qt{i} = Transpose<perm = [0, 2, 1, 3]>(qh{i})
    kt{i} = Transpose<perm = [0, 2, 3, 1]>(kh{i})
    vt{i} = Transpose<perm = [0, 2, 1, 3]>(vh{i})
    s{i} = MatMul(qt{i}, kt{i})
    sd{i} = Div(s{i}, root)
    p{i} = Softmax<axis = -1>(sd{i})
    c{i} = MatMul(p{i}, vt{i})
    ct{i} = Transpose<perm = [0, 2, 1, 3]>(c{i})
    o{i} = Reshape(ct{i}, merge)
    r{i} = Add(o{i}, h{i})
    f{i} = MatMul(r{i}, wf{i})
    fb{i} = Add(f{i}, bf{i})
    g{i} = Relu(fb{i})
    h{n} = Add(g{i}, r{i})
"""

_TEXT = """
<ir_version: 10, opset_import: ["" : 18]>
transformer (int64[batch, sequence] ids) => (float[batch, sequence, 16] hidden) {{
    shape = Shape(ids)
    zero = Constant<value = int64[1] {{0}}>()
    one = Constant<value = int64[1] {{1}}>()
    b = Gather<axis = 0>(shape, zero)
    s = Gather<axis = 0>(shape, one)
    heads = Constant<value = int64[1] {{2}}>()
    width = Constant<value = int64[1] {{8}}>()
    all = Constant<value = int64[1] {{16}}>()
    split = Concat<axis = 0>(b, s, heads, width)
    merge = Concat<axis = 0>(b, s, all)
    words = Gather<axis = 0>(table, ids)
    places = Slice(positions, zero, s, zero)
    h0 = Add(words, places)
    {layers}
    hidden = Identity(h{last})
}}
"""


def transformer(path: Path, layers: int = 2, seed: int = 0) -> Path:
    """Write an encoder with `ids` int64 [batch, sequence] and `hidden` float32 [batch, sequence, 16]. Its positions are
    a table that is sliced to the length, so that no more than 48 tokens fit."""
    text = _TEXT.format(layers="".join(_LAYER.format(i=i, n=i + 1) for i in range(layers)), last=layers)
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(seed)

    def add(name: str, *shape: int) -> None:
        array = rng.standard_normal(shape).astype(np.float32) / np.sqrt(shape[0])
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))

    add("table", VOCABULARY, HIDDEN)
    add("positions", POSITIONS, HIDDEN)
    model.graph.initializer.append(numpy_helper.from_array(np.float32(np.sqrt(HIDDEN / HEADS)), "root"))
    for i in range(layers):
        for name in ("wq", "wk", "wv", "wf"):
            add(f"{name}{i}", HIDDEN, HIDDEN)
        add(f"bf{i}", HIDDEN)
    onnx.save(model, path)
    return path


_PYRAMID = """
<ir_version: 10, opset_import: ["" : 18]>
pyramid (float[n, 3, height, width] image) => (float[n, 8, height, width] map, float[n, 5] scores) {
    a = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(image, w0, b0)
    r = Relu(a)
    c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(r, w1, b1)
    d = Add(c, r)
    e = Relu(d)
    shape = Shape(image)
    zero = Constant<value = int64[1] {0}>()
    one = Constant<value = int64[1] {1}>()
    two = Constant<value = int64[1] {2}>()
    four = Constant<value = int64[1] {4}>()
    eight = Constant<value = int64[1] {8}>()
    count = Slice(shape, zero, one)
    sizes = Slice(shape, two, four)
    full = Concat<axis = 0>(count, eight, sizes)
    map = Resize<mode = "nearest">(e, "", "", full)
    pooled = GlobalAveragePool(e)
    flat = Flatten(pooled)
    scores = Gemm(flat, w2, b2)
}
"""


def pyramid(path: Path) -> Path:
    """Write a convolutional network over `image` [n, 3, height, width] of any size, with a `map` that is enlarged to
    the size of the image, and `scores` [n, 5]."""
    model = onnx.parser.parse_model(_PYRAMID)
    rng = np.random.default_rng(0)
    for name, shape in {
        "w0": (8, 3, 3, 3),
        "b0": (8,),
        "w1": (8, 8, 3, 3),
        "b1": (8,),
        "w2": (8, 5),
        "b2": (5,),
    }.items():
        array = 0.2 * rng.standard_normal(shape)
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    onnx.save(model, path)
    return path
