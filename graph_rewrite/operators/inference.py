"""Output types of a node, memoised per operator, attributes, input types and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graph_rewrite.ir.attribute_defaults import IMAGE_OPERATORS
from graph_rewrite.ir.attributes import AttrValue, operator_signature
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators import contrib, nchwc
from graph_rewrite.operators.plausibility import fits_operands
from graph_rewrite.operators.standard_types import Operand, TypeInferenceError, infer_standard, is_shown
from graph_rewrite.system.bounded import BoundedDict

BY_TYPES_ALONE = frozenset({
    "Add", "And", "BatchNormalization", "Conv", "Div", "Equal", "Gemm", "Greater", "GreaterOrEqual",
    "LayerNormalization", "Less", "LessOrEqual", "MatMul", "Max", "Min", "Mul", "Or", "PRelu", "Pow",
    "RMSNormalization", "Sub", "Where", "Xor",
})  # fmt: skip
"""Standard operators whose results have the same types whatever the elements of their operands: every layer has biases
and scales of its own. Operators of other domains are all like that."""
_MEMO = BoundedDict[tuple[Any, ...], tuple[TensorType | None, ...] | str](65536)


def infer(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[Operand],
    outputs: int,
    opset: int,
    signature: str | None = None,
) -> tuple[TensorType | None, ...]:
    """Return the types of the `outputs` results of an operator; an element is None where onnx can't tell a static type.

    `inputs` holds (type, constant or None) per input, None for an input left out.

    Raises:
        TypeInferenceError: the operator refuses these inputs, or is unknown at this opset.
    """
    if op in IMAGE_OPERATORS and not domain and not fits_operands(op, attrs, _type(inputs, 0), _type(inputs, 1)):
        raise TypeInferenceError(f"{op}: kernel_shape, strides, dilations, pads or auto_pad do not fit its operands")
    signature = signature or operator_signature(op, domain, attrs)
    if domain or op in BY_TYPES_ALONE:
        key: tuple[Any, ...] = (signature, outputs, opset, *["" if i is None else i[0] for i in inputs])
    else:
        key = (
            signature, outputs, opset,
            *["" if i is None else (i[0], i[1].digest) if is_shown(i[1]) else i[0] for i in inputs],
        )  # fmt: skip
    found = _MEMO.get(key)
    if found is None:
        try:
            found = _infer(op, domain, attrs, inputs, outputs, opset)
        except TypeInferenceError as error:
            found = str(error)
        _MEMO[key] = found
    if isinstance(found, str):
        raise TypeInferenceError(found)
    return found


def _type(inputs: Sequence[Operand], place: int) -> TensorType | None:
    operand = inputs[place] if place < len(inputs) else None
    return None if operand is None else operand[0]


def _infer(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[Operand],
    outputs: int,
    opset: int,
) -> tuple[TensorType | None, ...]:
    if domain == contrib.DOMAIN:
        return contrib.infer(op, attrs, [None if i is None else i[0] for i in inputs], outputs)
    if domain == nchwc.DOMAIN:
        return nchwc.infer(op, attrs, [None if i is None else i[0] for i in inputs], outputs)
    return infer_standard(op, domain, attrs, inputs, outputs, opset)
