"""Constants by content: weights as loaded, and expressions over them that are evaluated once, on demand.

Search never moves weights: a concatenated, padded or transposed weight is an expression with a digest; its elements
are computed when a graph is measured or saved, and kept while anything refers to them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx_ir.serde import TensorProtoTensor

from graph_rewrite.ir.tensor_type import TensorType

EAGER_SIZE = 4096
"""Expressions up to this many elements are evaluated at once, so that equal contents get equal digests."""


@dataclass(frozen=True, slots=True)
class ConstantExpression:
    """Output `index` of the `outputs` of an operator whose inputs are all constants.

    `evaluate` computes the elements of a constant that has this expression. Whoever builds the expression hands it in,
    since constants know no operator's semantics.
    """

    op: str
    domain: str
    attrs: Mapping[str, Any]
    inputs: tuple[Constant | None, ...]
    index: int
    opset: int
    outputs: int
    evaluate: Callable[[Constant], np.ndarray[Any, Any]]


class Constant:
    """A tensor known before run time, identified by its `digest`.

    `origin` is the expression whose elements, rounded, the constant holds, also where it was evaluated at once: exact
    proofs read it.
    """

    __slots__ = ("__weakref__", "_array", "_digest", "expression", "origin", "tensor", "type")

    def __init__(
        self,
        type: TensorType,
        digest: str | None,
        array: np.ndarray[Any, Any] | None = None,
        tensor: onnx_ir.TensorProtocol | None = None,
        expression: ConstantExpression | None = None,
    ) -> None:
        self.type, self._digest = type, digest
        self.tensor, self.expression, self._array = tensor, expression, array
        self.origin = expression

    @property
    def digest(self) -> str:
        """The identity of the constant: a digest of its content, or of the expression that gives it. It is computed on
        first use, since that reads all of a weight."""
        if self._digest is None:
            self._digest = _content_digest(self.type, self.numpy())
        return self._digest

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the elements, read-only by convention (memory-mapped where the model file is)."""
        if self._array is not None:
            return self._array
        if self.tensor is not None:
            array = np.asarray(self.tensor.numpy())
            if self.is_small:
                self._array = array
            return array
        if self.expression is None:
            raise ValueError(f"{self!r} has no elements and no expression that gives them")
        self._array = self.expression.evaluate(self)
        return self._array

    @property
    def is_small(self) -> bool:
        return self.type.size <= EAGER_SIZE

    def __repr__(self) -> str:
        return f"Constant({self.type}, {'not read yet' if self._digest is None else self._digest[:8]})"


def from_array(array: np.ndarray[Any, Any]) -> Constant:
    """Return a constant that holds `array`."""
    array = np.asarray(array)
    type = TensorType(int(onnx_ir.DataType.from_numpy(array.dtype)), tuple(array.shape))
    return Constant(type, _content_digest(type, array), array=array)


@lru_cache(maxsize=4096)
def from_ints(values: tuple[int, ...]) -> Constant:
    """Return a one-dimensional int64 constant: a shape, axes, indices."""
    return from_array(np.array(values, dtype=np.int64))


def from_tensor(tensor: onnx_ir.TensorProtocol) -> Constant:
    """Return a constant backed by a tensor of a model file; large tensors stay where they are."""
    shape = tuple(int(dim) for dim in tensor.shape)  # type: ignore[arg-type]
    type = TensorType(int(tensor.dtype), shape)
    return Constant(type, None, tensor=tensor)


def _content_digest(type: TensorType, array: np.ndarray[Any, Any]) -> str:
    state = hashlib.blake2b(f"{type.dtype}:{type.shape}".encode(), digest_size=16)
    if type.dtype == onnx.TensorProto.STRING:
        state.update(repr([s if isinstance(s, bytes) else str(s).encode() for s in array.reshape(-1)]).encode())
    else:
        state.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return state.hexdigest()


def tensor_proto(constant: Constant, name: str = "") -> onnx.TensorProto:
    """Return a TensorProto that holds the elements: the loaded one, bit by bit, where the model file held it."""
    tensor = constant.tensor
    if isinstance(tensor, TensorProtoTensor):
        proto = onnx.TensorProto()
        proto.CopyFrom(tensor.raw)
        proto.name = name
        return proto
    proto = onnx.TensorProto(name=name, data_type=constant.type.dtype, dims=constant.type.shape)
    if constant.type.dtype == onnx.TensorProto.STRING:
        strings = constant.numpy().reshape(-1)
        proto.string_data.extend(s if isinstance(s, bytes) else str(s).encode() for s in strings)
    else:
        proto.raw_data = b"".join(chunks(constant))
    return proto


def nbytes(constant: Constant) -> int:
    """Return the bytes that the elements take in a file; 0 for strings, which always lie in the model file."""
    if constant.type.dtype == onnx.TensorProto.STRING:
        return 0
    return -(-constant.type.size * int(onnx_ir.DataType(constant.type.dtype).bitwidth) // 8)


def chunks(constant: Constant) -> Iterator[bytes | memoryview]:
    """Yield the elements as ONNX stores them: little endian, types of fewer than 8 bits packed."""
    if onnx_ir.DataType(constant.type.dtype).bitwidth < 8:
        tensor = constant.tensor if constant.tensor is not None else onnx_ir.Tensor(
            constant.numpy(), onnx_ir.DataType(constant.type.dtype)
        )  # fmt: skip
        yield tensor.tobytes()
    elif constant.type.size:
        array = np.ascontiguousarray(constant.numpy())
        yield array.astype(array.dtype.newbyteorder("<"), copy=False).reshape(-1).view(np.uint8).data
