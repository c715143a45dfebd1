"""Estimates of the work of an operator: floating-point operations, and bytes of its operands and results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Protocol

import onnx

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.tensor_type import TensorType

_PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm", "MatMulInteger", "QLinearMatMul", "MatMulNBits"})
_CONVOLUTIONS = frozenset({"Conv", "FusedConv", "ConvInteger", "NhwcConv"})
_ATTENTIONS = frozenset({"Attention", "MultiHeadAttention"})
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_PICKING = frozenset({"Gather", "GatherElements", "GatherND", "Slice"})
"""Operators that read of their first input what they give, however large it is: a table of embeddings."""


class OperatorApplication(Protocol):
    """An operator with its attributes."""

    @property
    def op(self) -> str: ...

    @property
    def domain(self) -> str: ...

    @property
    def attrs(self) -> Mapping[str, AttrValue]: ...


def estimate_flops(
    node: OperatorApplication, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType | None]
) -> float:
    """Estimate the floating-point operations of a node. A multiply-add counts 2; where no formula applies, each
    element of the outputs counts 1."""
    elements = float(sum(type.size for type in outputs if type is not None))
    first, second, third = (*inputs, None, None, None)[:3]
    if first is None or second is None:
        return elements
    if node.op in _PRODUCTS and first.rank >= 2:
        return 2.0 * elements * first.shape[-2 if node.attrs.get("transA", 0) else -1]
    if node.op in _CONVOLUTIONS:
        return 2.0 * elements * prod(second.shape[1:])
    if node.op == "ConvTranspose":
        return 2.0 * first.size * prod(second.shape[1:])
    if node.op in _ATTENTIONS and second.rank > 2:
        return 2.0 * (first.size + elements) * second.shape[-2]
    if node.op in _RECURRENT and third is not None and first.rank == 3:
        return 2.0 * (second.size + third.size) * prod(first.shape[:2])
    return elements


def touched(
    node: OperatorApplication, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType | None]
) -> list[TensorType]:
    """Return the types of what a node reads and writes: its operands and results, and for an operator that picks
    entries of its first operand, in place of that, as much as it picks."""
    read = [*outputs, *inputs[1:]] if node.op in _PICKING and not node.domain else inputs
    return [type for type in (*read, *outputs) if type is not None]


@lru_cache(maxsize=65536)
def tensor_bytes(type: TensorType | None) -> int:
    """Return the bytes that a tensor takes in memory; 0 where its type is unknown, and for strings."""
    if type is None or type.dtype == onnx.TensorProto.STRING:
        return 0
    return type.size * int(onnx.helper.tensor_dtype_to_np_dtype(type.dtype).itemsize)
