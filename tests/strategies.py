"""Hypothesis strategies: small random ONNX models made of what the rules look for, with shared values and several
outputs, and names and orders shuffled.

    @given(model=models())
    def test_something(model: onnx.ModelProto) -> None: ...
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

OPSET = 23
BATCH, HEADS = 1, 2
Shape = tuple[int, ...]


@dataclass
class Net:
    """A model on its way: values by name and shape, and the generator that its weights come from."""

    draw: Any
    rng: np.random.Generator
    dtype: Any = np.float32
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)

    def node(self, op: str, inputs: Sequence[str], shape: Shape, **attrs: Any) -> str:
        """Append a node with one result of this shape."""
        return self.nodes_with(op, inputs, [shape], **attrs)[0]

    def nodes_with(self, op: str, inputs: Sequence[str], shapes: Sequence[Shape], **attrs: Any) -> list[str]:
        names = [f"v{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"n{len(self.nodes)}", **attrs))
        self.shapes.update(zip(names, shapes, strict=True))
        return names

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Normal numbers, scaled so that sums over the first axes keep unit size; sometimes an earlier weight again."""
        fan = float(np.prod(shape[:-1])) if scale is None else 1.0
        array = self.rng.standard_normal(shape) * (scale or 1.0) / np.sqrt(max(fan, 1.0))
        known = [t.name for t in self.initializers if tuple(t.dims) == shape and t.name.startswith("w")]
        if known and self.flip():
            return known[self.rng.integers(len(known))]
        return self.constant(array.astype(self.dtype), "w")

    def constant(self, array: np.ndarray[Any, Any], prefix: str = "c") -> str:
        name = f"{prefix}{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, dtype=self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def flip(self) -> bool:
        return bool(self.draw(st.booleans()))

    def choose(self, options: Sequence[Any]) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def pick(self, rank: int) -> str | None:
        """A value of this rank that is in reach."""
        options = [name for name in self.live if len(self.shapes[name]) == rank]
        return self.choose(options) if options else None

    def partner(self, shape: Shape, *others: str) -> str:
        """Another value of the same shape, or a new one of that shape computed from `others`."""
        options = [name for name in self.live if self.shapes[name] == shape]
        return self.choose(options) if options else others[0]


Block = Callable[[Net, str], list[str]]


def unary(net: Net, x: str) -> list[str]:
    op = net.choose(["Relu", "Sigmoid", "Tanh", "Identity", "Gelu", "Neg", "Erf", "Abs"])
    return [net.node(op, [x], net.shapes[x])]


def binary(net: Net, x: str) -> list[str]:
    other = net.partner(net.shapes[x], x)
    op = net.choose(["Add", "Sub", "Mul", "Max"])
    inputs = [x, other] if net.flip() else [other, x]
    return [net.node(op, inputs, net.shapes[x])]


def with_constant(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    op = net.choose(["Add", "Mul", "Sub", "Div"])
    wide = {4: (shape[1], 1, 1)}.get(len(shape), (shape[-1],))
    array = 1.0 + net.rng.random(wide)
    y = net.constant(array.astype(net.dtype)) if net.flip() else net.scalar(net.choose([0.5, 2.0, -1.5]))
    return [net.node(op, [x, y], shape)]


def neutral(net: Net, x: str) -> list[str]:
    """Operators that do nothing."""
    shape = net.shapes[x]
    kind = net.choose(["Identity", "Add", "Mul", "Div", "Sub", "Dropout", "Reshape", "Transpose", "Cast", "Expand", "Slice"])
    if kind in ("Identity", "Dropout"):
        return [net.node(kind, [x], shape)]
    if kind in ("Add", "Sub"):
        return [net.node(kind, [x, net.scalar(0.0)], shape)]
    if kind in ("Mul", "Div"):
        return [net.node(kind, [x, net.scalar(1.0)], shape)]
    if kind == "Transpose":
        return [net.node(kind, [x], shape, perm=list(range(len(shape))))]
    if kind == "Cast":
        return [net.node(kind, [x], shape, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(net.dtype))))]
    if kind == "Slice":
        return [net.node(kind, [x, net.ints(0), net.ints(2**31), net.ints(len(shape) - 1)], shape)]
    return [net.node(kind, [x, net.ints(*shape)], shape)]


def constant_chain(net: Net, x: str) -> list[str]:
    """Operators over constants alone, and the shape of a value, as exporters leave them."""
    shape = net.shapes[x]
    if net.flip():
        return [net.node("Reshape", [x, net.node("Shape", [x], (len(shape),))], shape)]
    table = net.weight(2, shape[-1], scale=1.0)
    row = net.node("Gather", [table, net.constant(np.array(1, dtype=np.int64))], (shape[-1],))
    return [net.node("Add", [x, net.node("Neg", [row], (shape[-1],))], shape)]


def transposes(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    perm = net.draw(st.permutations(range(len(shape))))
    y = net.node("Transpose", [x], tuple(shape[i] for i in perm), perm=perm)
    if net.flip():
        y = net.node(net.choose(["Relu", "Tanh", "Neg"]), [y], net.shapes[y])
    back = [perm.index(i) for i in range(len(perm))]
    return [net.node("Transpose", [y], shape, perm=back), *([y] if net.flip() and len(shape) != 4 else [])]


def reshapes(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    flat = net.node("Reshape", [x, net.ints(-1, shape[-1])], (int(np.prod(shape[:-1])), shape[-1]))
    if net.flip():
        flat = net.node(net.choose(["Relu", "Sigmoid"]), [flat], net.shapes[flat])
    if net.flip():
        axes = net.ints(0)
        up = net.node("Unsqueeze", [flat, axes], (1, *net.shapes[flat]))
        flat = net.node("Squeeze", [up, axes], net.shapes[flat])
    return [net.node("Reshape", [flat, net.ints(*shape)], shape)]


def concat_split(net: Net, x: str) -> list[str]:
    shape, axis = net.shapes[x], 1 if len(net.shapes[x]) == 4 else net.choose(range(len(net.shapes[x])))
    other = net.partner(shape, x)
    joined = net.node("Concat", [x, other], (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis)
    if net.flip():
        joined = net.node(net.choose(["Relu", "Tanh"]), [joined], net.shapes[joined])
    sizes = net.ints(shape[axis], shape[axis])
    return net.nodes_with("Split", [joined, sizes], [shape, shape], axis=axis)


def split_concat(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if shape[-1] % 2:
        return unary(net, x)
    half = (*shape[:-1], shape[-1] // 2)
    a, b = net.nodes_with("Split", [x], [half, half], axis=-1, num_outputs=2)
    if net.flip():
        op = net.choose(["Relu", "Neg"])
        a, b = net.node(op, [a], half), net.node(op, [b], half)
    return [net.node("Concat", [a, b] if net.flip() else [b, a], shape, axis=-1)]


def linear(net: Net, x: str, width: int | None = None, weight: str | None = None) -> str:
    shape = net.shapes[x]
    width = width or shape[-1]
    y = net.node("MatMul", [x, weight or net.weight(shape[-1], width)], (*shape[:-1], width))
    if net.flip():
        bias = net.weight(width, scale=0.5)
        y = net.node("Add", [y, bias] if net.flip() else [bias, y], net.shapes[y])
    return y


def matmul(net: Net, x: str) -> list[str]:
    y = linear(net, x)
    return [linear(net, y) if net.flip() else y]


def parallel_matmuls(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    parts = [linear(net, x) for _ in range(net.choose([2, 3]))]
    kind = net.choose(["apart", "Add", "Concat"])
    if kind == "apart":
        return parts
    if kind == "Add":
        return [net.node("Add", parts[:2], shape), *parts[2:]]
    wide = net.node("Concat", parts, (*shape[:-1], len(parts) * shape[-1]), axis=-1)
    return [linear(net, wide, shape[-1])]


def product_sums(net: Net, x: str) -> list[str]:
    """Sums of products with a common factor, on either side."""
    shape = net.shapes[x]
    other, w = net.partner(shape, x), net.weight(shape[-1], shape[-1])
    a = net.node("MatMul", [x, w], shape)
    if net.flip():
        return [net.node("Add", [a, net.node("MatMul", [other, w], shape)], shape)]
    return [net.node("Add", [a, net.node("MatMul", [x, net.weight(shape[-1], shape[-1])], shape)], shape)]


def gemm(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    rows, width = int(np.prod(shape[:-1])), shape[-1]
    flat = net.node("Reshape", [x, net.ints(rows, width)], (rows, width))
    attrs: dict[str, Any] = {"transB": 1} if net.flip() else {}
    if net.flip():
        attrs |= {"alpha": 0.5, "beta": 2.0}
    inputs = [flat, net.weight(width, width), *([net.weight(width, scale=0.5)] if net.flip() else [])]
    return [net.node("Reshape", [net.node("Gemm", inputs, (rows, width), **attrs), net.ints(*shape)], shape)]


def layer_norm(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Add", [x, net.partner(shape, x)], shape)
    width = shape[-1]
    scale = net.constant((1.0 + net.rng.random(width)).astype(net.dtype))
    return [net.node("LayerNormalization", [x, scale, net.weight(width, scale=0.5)], shape, epsilon=1e-2), x]


def gelu(net: Net, x: str) -> list[str]:
    """Gelu as exporters write it out."""
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Add", [x, net.weight(shape[-1], scale=0.5)], shape)
    inner = net.node("Div", [x, net.scalar(float(np.sqrt(2.0)))], shape)
    one = net.node("Add", [net.node("Erf", [inner], shape), net.scalar(1.0)], shape)
    if net.flip():
        return [net.node("Mul", [net.node("Mul", [x, one], shape), net.scalar(0.5)], shape)]
    return [net.node("Mul", [net.node("Mul", [x, net.scalar(0.5)], shape), one], shape)]


def attention(net: Net, x: str) -> list[str]:
    batch, length, width = net.shapes[x]
    if width % HEADS:
        return unary(net, x)
    size = width // HEADS
    split = net.ints(batch, length, HEADS, size)
    parts = []
    for perm, shape in (((0, 2, 1, 3), (length, size)), ((0, 2, 3, 1), (size, length)), ((0, 2, 1, 3), (length, size))):
        heads = net.node("Reshape", [linear(net, x), split], (batch, length, HEADS, size))
        parts.append(net.node("Transpose", [heads], (batch, HEADS, *shape), perm=perm))
    scores = net.node("MatMul", parts[:2], (batch, HEADS, length, length))
    if net.flip():
        scores = net.node("Mul", [scores, net.scalar(size**-0.5)], net.shapes[scores])
    else:
        scores = net.node("Div", [scores, net.scalar(size**0.5)], net.shapes[scores])
    weights = net.node("Softmax", [scores], net.shapes[scores], axis=-1)
    mixed = net.node("MatMul", [weights, parts[2]], (batch, HEADS, length, size))
    back = net.node("Transpose", [mixed], (batch, length, HEADS, size), perm=(0, 2, 1, 3))
    return [linear(net, net.node("Reshape", [back, net.ints(batch, length, width)], (batch, length, width)))]


def _convolve(net: Net, x: str, channels: int, kernel: int, group: int = 1) -> str:
    batch, inputs, height, width = net.shapes[x]
    weight = net.constant(
        (net.rng.standard_normal((channels, inputs // group, kernel, kernel)) / kernel).astype(net.dtype), "w"
    )
    bias = [net.weight(channels, scale=0.5)] if net.flip() else []
    pad = kernel // 2
    return net.node(
        "Conv", [x, weight, *bias], (batch, channels, height, width), kernel_shape=[kernel] * 2, pads=[pad] * 4, group=group
    )


def convolution(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    group = net.choose([1, 1, shape[1], 2 if shape[1] % 2 == 0 else 1])
    y = _convolve(net, x, shape[1], net.choose([1, 3]), group)
    if net.flip():
        positive = [net.constant((0.5 + net.rng.random(shape[1])).astype(net.dtype)) for _ in range(2)]
        shifts = [net.weight(shape[1], scale=0.5) for _ in range(2)]
        y = net.node("BatchNormalization", [y, positive[0], *shifts, positive[1]], shape)
    return [net.node("Relu", [y], shape) if net.flip() else y]


def parallel_convolutions(net: Net, x: str) -> list[str]:
    """A fire module: parallel convolutions of one input, joined or added."""
    shape = net.shapes[x]
    parts = [_convolve(net, x, shape[1], kernel) for kernel in (1, net.choose([1, 3]))]
    if net.flip():
        parts = [net.node("Relu", [part], shape) for part in parts]
    kind = net.choose(["apart", "Add", "Concat"])
    if kind == "apart":
        return parts
    if kind == "Add":
        return [net.node("Add", parts, shape)]
    joined = net.node("Concat", parts, (shape[0], 2 * shape[1], *shape[2:]), axis=1)
    return [_convolve(net, joined, shape[1], 1)]


def pooling(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Relu", [x], shape)
    op = net.choose(["MaxPool", "AveragePool"])
    y = net.node(op, [x], shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return [net.node("Relu", [y], shape) if net.flip() else y]


ANY_BLOCKS: tuple[Block, ...] = (unary, binary, with_constant, neutral, constant_chain, transposes, concat_split)
SEQUENCE_BLOCKS: tuple[Block, ...] = (
    reshapes, split_concat, matmul, parallel_matmuls, product_sums, gemm, layer_norm, gelu, attention,
)  # fmt: skip
IMAGE_BLOCKS: tuple[Block, ...] = (convolution, parallel_convolutions, pooling)


@st.composite
def models(draw: Any, max_blocks: int = 5, dtypes: Sequence[Any] = (np.float32, np.float64)) -> onnx.ModelProto:
    """A valid model in opset 23 with one or two inputs of rank 3 or 4, all values of one floating-point type, and
    every result that nothing reads among its outputs."""
    net = Net(draw, np.random.default_rng(draw(st.integers(0, 2**16))), draw(st.sampled_from(list(dtypes))))
    image = draw(st.booleans())
    shape: Shape = (BATCH, draw(st.sampled_from([2, 4])), 3, 4) if image else (BATCH, draw(st.sampled_from([2, 3])), 4)
    inputs = [f"x{i}" for i in range(draw(st.integers(1, 2)))]
    net.shapes.update(dict.fromkeys(inputs, shape))
    net.live.extend(inputs)
    blocks = (*ANY_BLOCKS, *(IMAGE_BLOCKS if image else SEQUENCE_BLOCKS))
    for _ in range(draw(st.integers(2, max_blocks))):
        chosen = net.pick(len(shape))
        assert chosen is not None
        net.live.extend(draw(st.sampled_from(blocks))(net, chosen))
    read = {name for node in net.nodes for name in node.input}
    produced = [name for node in net.nodes for name in node.output]
    ends = [name for name in produced if name not in read]
    more = [name for name in net.live if name in read and name not in inputs]
    if more and draw(st.booleans()):
        ends.append(draw(st.sampled_from(more)))
    return finish(net, inputs, ends)


def finish(net: Net, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.ModelProto:
    element = int(helper.np_dtype_to_tensor_dtype(np.dtype(net.dtype)))
    graph = helper.make_graph(
        net.nodes,
        "random",
        [helper.make_tensor_value_info(name, element, net.shapes[name]) for name in inputs],
        [helper.make_tensor_value_info(name, element, net.shapes[name]) for name in dict.fromkeys(outputs)],
        net.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=11)


def feeds_for(model: onnx.ModelProto, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Normal numbers for every input."""
    rng = np.random.default_rng(seed)
    feeds = {}
    for info in model.graph.input:
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        feeds[info.name] = rng.standard_normal(shape).astype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def renamed(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with other names for nodes, inner values and initializers; inputs and outputs keep theirs."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = {info.name for info in (*copy.graph.input, *copy.graph.output)}

    def name(old: str) -> str:
        return old if old in kept or not old else f"other_{old}"

    for node in copy.graph.node:
        node.name = f"other_{node.name}"
        node.input[:] = [name(old) for old in node.input]
        node.output[:] = [name(old) for old in node.output]
    for tensor in copy.graph.initializer:
        tensor.name = name(tensor.name)
    return copy


@st.composite
def reordered(draw: Any, model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with its nodes in another topological order and its initializers shuffled."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    rng = np.random.default_rng(draw(st.integers(0, 2**16)))
    known = {info.name for info in copy.graph.input} | {t.name for t in copy.graph.initializer} | {""}
    waiting, ordered = list(copy.graph.node), []
    while waiting:
        ready = [node for node in waiting if all(name in known for name in node.input)]
        chosen = ready[rng.integers(len(ready))]
        waiting.remove(chosen)
        ordered.append(chosen)
        known.update(chosen.output)
    tensors = [copy.graph.initializer[i] for i in rng.permutation(len(copy.graph.initializer))]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    tensors = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in tensors]
    del copy.graph.node[:], copy.graph.initializer[:]
    copy.graph.node.extend(nodes)
    copy.graph.initializer.extend(tensors)
    return copy
