"""Estimates of operations and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from onnx import TensorProto

from graph_rewrite import Node, TensorType
from graph_rewrite.operators.work import estimate_flops, tensor_bytes


def floats(*shape: int) -> TensorType:
    return TensorType(TensorProto.FLOAT, shape)


def node(op: str, **attrs: Any) -> Node:
    return Node(0, op, [], [], attrs)


@pytest.mark.parametrize(
    ("op", "attrs", "inputs", "output", "flops"),
    [
        ("MatMul", {}, [(2, 3, 4), (4, 5)], (2, 3, 5), 2 * 30 * 4),
        ("Gemm", {"transA": 1}, [(4, 3), (4, 5)], (3, 5), 2 * 15 * 4),
        ("Conv", {}, [(1, 8, 6, 6), (16, 8, 3, 3)], (1, 16, 4, 4), 2 * 256 * 72),
        ("ConvTranspose", {}, [(1, 8, 4, 4), (8, 16, 3, 3)], (1, 16, 6, 6), 2 * 128 * 144),
        ("Attention", {}, [(1, 2, 6, 8), (1, 2, 7, 8), (1, 2, 7, 4)], (1, 2, 6, 4), 2 * (96 + 48) * 7),
        ("LSTM", {}, [(5, 1, 8), (1, 16, 8), (1, 16, 4)], (5, 1, 1, 4), 2 * (128 + 64) * 5),
        ("Relu", {}, [(2, 3)], (2, 3), 6),
        ("Unheard", {}, [], (7,), 7),
    ],
)
def test_flops(
    op: str, attrs: Mapping[str, int], inputs: list[tuple[int, ...]], output: tuple[int, ...], flops: float
) -> None:
    assert estimate_flops(node(op, **attrs), [floats(*shape) for shape in inputs], [floats(*output)]) == flops


def test_bytes() -> None:
    assert tensor_bytes(floats(2, 3)) == 24
    assert tensor_bytes(TensorType(TensorProto.INT64, ())) == 8
    assert tensor_bytes(TensorType(TensorProto.STRING, (4,))) == tensor_bytes(None) == 0
