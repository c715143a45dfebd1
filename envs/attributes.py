"""Attributes of operators as numbers: the columns `node_attributes` of the feature set `full`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log2
from typing import Any

from graph_rewrite.ir.attribute_defaults import is_default
from graph_rewrite.ir.tensor_type import TensorType

AXES = 3
"""Spatial axes that are shown, the last ones; those that an operator lacks are 0."""
WEIGHT_DIMENSIONS = 4

NODE_ATTRIBUTES = (
    *(f"kernel_{axis}" for axis in "dhw"), *(f"stride_{axis}" for axis in "dhw"),
    *(f"dilation_{axis}" for axis in "dhw"), *(f"padding_{axis}" for axis in "dhw"), "auto_padding", "groups",
    *(f"weight_{number}" for number in range(WEIGHT_DIMENSIONS)), "constants", "heads", "axis", "transposed_a",
    "transposed_b", "repeats",
)  # fmt: skip
"""Columns of `node_attributes`, 0 where an operator has none.

kernel: log2(1 + x) / 8, along depth, height and width; stride, dilation: log2(x) / 8; padding: log2(1 + x) / 8 of both
ends together; auto_padding: 1 where ONNX Runtime computes the padding; groups: log2(groups) / 12; weight: log2(1 + x) /
16 of the last four dimensions of the first constant input that is no scalar, leading zeros; constants: constant inputs
/ 8; heads: log2(1 + heads) / 8 of an attention; axis: (1 + axis) / 8, counted from the front; transposed_a and _b: 1
where a product transposes that operand; repeats: log2(equal nodes that this row stands for) / 8, 0 for one node. A
default counts as none, whether it is spelled out or not.
"""
REPEATS = NODE_ATTRIBUTES.index("repeats")


_WITH_KERNELS = frozenset({"Conv", "ConvTranspose", "FusedConv", "ConvInteger"})
"""Operators whose second input holds kernels."""


def attribute_features(
    op: str,
    domain: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[tuple[TensorType | None, bool] | None],
    outputs: Sequence[TensorType | None],
) -> list[float]:
    """Return the row of an operator application, columns `NODE_ATTRIBUTES`.

    Args:
        inputs: type of each input, and whether it is a constant; None for inputs left out.
    """
    attributes = {name: value for name, value in attributes.items() if not is_default(op, domain, name, value)}
    constants = [entry[0] for entry in inputs if entry is not None and entry[1]]
    shapes = [type.shape for type in constants if type is not None and type.rank > 0]
    weight = list(shapes[0][-WEIGHT_DIMENSIONS:]) if shapes else []
    pads = _integers(attributes, "pads")
    half = len(pads) // 2
    kernels = inputs[1][0] if op in _WITH_KERNELS and len(inputs) > 1 and inputs[1] is not None else None
    kernel = _integers(attributes, "kernel_shape") if kernels is None else kernels.shape[2:]
    steps = (_integers(attributes, name) for name in ("strides", "dilations"))
    return [
        *_along([1 + size for size in kernel]), *(value for sizes in steps for value in _along(sizes)),
        *_along([1 + low + high for low, high in zip(pads[:half], pads[half:], strict=True)]),
        float(_text(attributes.get("auto_pad")) in ("SAME_UPPER", "SAME_LOWER")),
        log2(max(1, _integer(attributes, "group", 1))) / 12,
        *[0.0] * (WEIGHT_DIMENSIONS - len(weight)), *(log2(1 + size) / 16 for size in weight),
        len(constants) / 8, log2(1 + max(0, _heads(attributes))) / 8, _axis(attributes, inputs, outputs),
        float(bool(_integer(attributes, "transA", 0))), float(bool(_integer(attributes, "transB", 0))), 0.0,
    ]  # fmt: skip


def _along(sizes: Sequence[int]) -> list[float]:
    last = [log2(max(1, size)) / 8 for size in sizes[-AXES:]]
    return [*[0.0] * (AXES - len(last)), *last]


def _integers(attributes: Mapping[str, Any], name: str) -> list[int]:
    value = attributes.get(name)
    whole = isinstance(value, tuple) and all(isinstance(item, int) for item in value)
    return list(value) if whole and value is not None and len(value) % (2 if name == "pads" else 1) == 0 else []


def _integer(attributes: Mapping[str, Any], name: str, default: int) -> int:
    value = attributes.get(name)
    return value if isinstance(value, int) else default


def _heads(attributes: Mapping[str, Any]) -> int:
    return max(_integer(attributes, "num_heads", 0), _integer(attributes, "q_num_heads", 0))


def _axis(
    attributes: Mapping[str, Any],
    inputs: Sequence[tuple[TensorType | None, bool] | None],
    outputs: Sequence[TensorType | None],
) -> float:
    if "axis" not in attributes:
        return 0.0
    axis = _integer(attributes, "axis", 0)
    first = inputs[0][0] if inputs and inputs[0] is not None else (outputs[0] if outputs else None)
    rank = 0 if first is None else first.rank
    return max(0, 1 + axis + (rank if axis < 0 else 0)) / 8


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
