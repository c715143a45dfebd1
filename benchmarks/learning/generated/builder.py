"""A builder of ONNX files in the manner of exporters: fixed shapes, BatchNorm folded, weights drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from graph_rewrite.experience.describing import FAMILY, NETWORK

OPSET = 20
IR_VERSION = 10


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A value by name, float32, with its shape."""

    name: str
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """The size of the second dimension."""
        return self.shape[1]


class NetworkBuilder:
    """Collects nodes and weights. Every method that is named like an operator adds one and returns its result.

    Args:
        seed: of the weights and of what the caller draws from `rng`.
    """

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, *shape: int) -> NamedTensor:
        """Add an input of standard normal numbers."""
        self._inputs.append(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
        return NamedTensor(name, shape)

    def draw(self, *choices: Any) -> Any:
        """Draw one of some values."""
        return choices[int(self.rng.integers(len(choices)))]

    def op(
        self, kind: str, inputs: Sequence[NamedTensor | str], shape: tuple[int, ...], domain: str = "", **attrs: Any
    ) -> NamedTensor:
        """Add an operator with one result of a known shape."""
        name = f"{kind.lower()}_{len(self._nodes)}"
        names = [one.name if isinstance(one, NamedTensor) else one for one in inputs]
        self._nodes.append(helper.make_node(kind, names, [name], name, domain=domain, **attrs))
        return NamedTensor(name, shape)

    def constant(self, array: NDArray[Any]) -> NamedTensor:
        """Add a constant."""
        return self._initializer(np.ascontiguousarray(array))  # which has an axis, where the array has none

    def index(self, number: int) -> NamedTensor:
        """Add an index of rank 0."""
        return self._initializer(np.array(number, np.int64))

    def _initializer(self, array: NDArray[Any]) -> NamedTensor:
        name = f"constant_{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(array, name))
        return NamedTensor(name, array.shape)

    def weight(self, *shape: int, inputs: int) -> NamedTensor:
        """Add a weight that keeps the magnitude of what it sums over `inputs` numbers."""
        drawn = self.rng.standard_normal(shape, dtype=np.float32) * np.float32(math.sqrt(1.5 / inputs))
        return self.constant(drawn)

    def vector(self, size: int, around: float = 0.0) -> NamedTensor:
        """Add a bias or a scale."""
        drawn = around + 0.1 * self.rng.standard_normal(size)
        return self.constant(drawn.astype(np.float32))

    def scalar(self, value: float) -> NamedTensor:
        """Add a number of rank 0."""
        return self.constant(np.array(value, np.float32))

    def unary(self, kind: str, x: NamedTensor, **attrs: Any) -> NamedTensor:
        """Add an elementwise operator."""
        return self.op(kind, [x], x.shape, **attrs)

    def binary(self, kind: str, a: NamedTensor, b: NamedTensor) -> NamedTensor:
        """Add an elementwise operator on two values that broadcast."""
        return self.op(kind, [a, b], tuple(np.broadcast_shapes(a.shape, b.shape)))

    def add(self, a: NamedTensor, b: NamedTensor) -> NamedTensor:
        """Add two values."""
        return self.binary("Add", a, b)

    def mul(self, a: NamedTensor, b: NamedTensor) -> NamedTensor:
        """Multiply two values."""
        return self.binary("Mul", a, b)

    def conv(
        self, x: NamedTensor, channels: int, kernel: int | tuple[int, ...] = 3, *, stride: int = 1, groups: int = 1,
        dilation: int = 1,
    ) -> NamedTensor:  # fmt: skip
        """Add a convolution with bias, padded so that stride 1 keeps the size."""
        rank = len(x.shape) - 2
        sizes = (kernel,) * rank if isinstance(kernel, int) else kernel
        pads = [dilation * (size - 1) // 2 for size in sizes]
        area = tuple(
            (extent + 2 * pad - dilation * (size - 1) - 1) // stride + 1
            for extent, pad, size in zip(x.shape[2:], pads, sizes, strict=True)
        )
        weight = self.weight(channels, x.channels // groups, *sizes, inputs=x.channels // groups * math.prod(sizes))
        return self.op(
            "Conv", [x, weight, self.vector(channels)], (x.shape[0], channels, *area), kernel_shape=sizes,
            pads=[*pads, *pads], strides=[stride] * rank, dilations=[dilation] * rank, group=groups,
        )  # fmt: skip

    def pool(self, kind: str, x: NamedTensor, kernel: int = 3, stride: int = 1) -> NamedTensor:
        """Add a MaxPool or AveragePool, padded as `conv` pads."""
        pad, rank = (kernel - 1) // 2, len(x.shape) - 2
        area = tuple((extent + 2 * pad - kernel) // stride + 1 for extent in x.shape[2:])
        extra: dict[str, Any] = {"count_include_pad": 0} if kind == "AveragePool" else {}
        return self.op(
            kind, [x], (*x.shape[:2], *area), kernel_shape=[kernel] * rank, pads=[pad] * 2 * rank,
            strides=[stride] * rank, **extra,
        )  # fmt: skip

    def concat(self, parts: Sequence[NamedTensor], axis: int = 1) -> NamedTensor:
        """Join values along an axis."""
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        return self.op("Concat", parts, tuple(shape), axis=axis)

    def split(self, x: NamedTensor, count: int, axis: int) -> list[NamedTensor]:
        """Cut a value into equal parts along an axis."""
        shape = (*x.shape[:axis], x.shape[axis] // count, *x.shape[axis + 1 :])
        names = [f"split_{len(self._nodes)}_{i}" for i in range(count)]
        self._nodes.append(helper.make_node("Split", [x.name], names, names[0], axis=axis, num_outputs=count))
        return [NamedTensor(name, shape) for name in names]

    def matmul(self, a: NamedTensor, b: NamedTensor) -> NamedTensor:
        """Multiply matrices in the last two dimensions."""
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        return self.op("MatMul", [a, b], (*batch, a.shape[-2], b.shape[-1]))

    def linear(self, x: NamedTensor, size: int, *, bias: bool = True) -> NamedTensor:
        """Add a product with a weight, and a bias."""
        y = self.matmul(x, self.weight(x.shape[-1], size, inputs=x.shape[-1]))
        return self.add(y, self.vector(size)) if bias else y

    def layer_norm(self, x: NamedTensor) -> NamedTensor:
        """Normalise the last dimension."""
        size = x.shape[-1]
        return self.op(
            "LayerNormalization", [x, self.vector(size, 1.0), self.vector(size)], x.shape, axis=-1, epsilon=1e-5
        )

    def rms_norm(self, x: NamedTensor) -> NamedTensor:
        """Divide by the root of the mean of squares of the last dimension, in the operators that exporters write."""
        mean = self.op(
            "ReduceMean", [self.binary("Pow", x, self.scalar(2.0)), self.constant(np.array([-1]))],
            (*x.shape[:-1], 1), keepdims=1,
        )  # fmt: skip
        root = self.unary("Sqrt", self.add(mean, self.scalar(1e-6)))
        return self.mul(self.binary("Div", x, root), self.vector(x.shape[-1], 1.0))

    def reshape(self, x: NamedTensor, *shape: int) -> NamedTensor:
        """Give a value another shape."""
        return self.op("Reshape", [x, self.constant(np.array(shape, np.int64))], shape)

    def transpose(self, x: NamedTensor, *order: int) -> NamedTensor:
        """Put the dimensions into another order."""
        return self.op("Transpose", [x], tuple(x.shape[i] for i in order), perm=order)

    def activation(self, kind: str, x: NamedTensor) -> NamedTensor:
        """Add an activation as exporters write it: relu, relu6, gelu, erf, tanh, silu or hardswish."""
        if kind == "relu6":
            return self.op("Clip", [x, self.scalar(0.0), self.scalar(6.0)], x.shape)
        if kind == "silu":
            return self.mul(x, self.unary("Sigmoid", x))
        if kind == "erf":
            inner = self.unary("Erf", self.binary("Div", x, self.scalar(math.sqrt(2.0))))
            return self.mul(self.mul(x, self.add(inner, self.scalar(1.0))), self.scalar(0.5))
        names = {"relu": "Relu", "gelu": "Gelu", "tanh": "Tanh", "hardswish": "HardSwish"}
        return self.unary(names[kind], x)

    def classifier(self, x: NamedTensor, classes: int = 100) -> NamedTensor:
        """Average what is left of an image or a sequence, and add a last layer."""
        if len(x.shape) == 3:
            axes = self.constant(np.array([1], np.int64))
            return self.linear(self.op("ReduceMean", [x, axes], (x.shape[0], x.shape[2]), keepdims=0), classes)
        pooled = self.op("GlobalAveragePool", [x], (*x.shape[:2], *(1,) * (len(x.shape) - 2)))
        flat = self.op("Flatten", [pooled], x.shape[:2], axis=1)
        weight = self.weight(classes, x.channels, inputs=x.channels)
        return self.op("Gemm", [flat, weight, self.vector(classes)], (x.shape[0], classes), transB=1)

    def save(self, output: NamedTensor, path: Path, family: str, network: str) -> Path:
        """Check and write the network; its metadata names it and its family."""
        result = helper.make_tensor_value_info(output.name, onnx.TensorProto.FLOAT, output.shape)
        read = {name for node in self._nodes for name in node.input}
        weights = [weight for weight in self._weights if weight.name in read]
        graph = helper.make_graph(self._nodes, network, self._inputs, [result], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        helper.set_model_props(model, {FAMILY: family, NETWORK: network})
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)
        return path
