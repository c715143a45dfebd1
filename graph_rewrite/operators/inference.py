"""Output types of a node, from onnx's own inference, memoised per operator, attributes, input types and constants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.ir.constants import Constant, tensor_proto
from graph_rewrite.ir.graph import AttrValue, RawAttr, TensorType, operator_signature
from graph_rewrite.operators import contrib, nchwc

_MEMO: dict[tuple[Any, ...], tuple[TensorType | None, ...] | str] = {}
_DATA_LIMIT = 256
"""Constant inputs up to this many elements are shown to the inference: shapes, axes, indices."""


class TypeInferenceError(ValueError):
    """An operator cannot be applied to inputs of these types."""


def infer(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[tuple[TensorType | None, Constant | None] | None],
    outputs: int,
    opset: int,
    signature: str | None = None,
) -> tuple[TensorType | None, ...]:
    """Types of the `outputs` results of an operator; an element is None where onnx can't tell a static type.

    `inputs` holds (type, constant or None) per input, None for an input left out.

    Raises:
        TypeInferenceError: the operator refuses these inputs, or is unknown at this opset.
    """
    signature = signature or operator_signature(op, domain, attrs)
    key = (
        signature, outputs, opset,
        *["" if i is None else (i[0], i[1].digest) if _shown(i[1]) else i[0] for i in inputs],
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


def _shown(constant: Constant | None) -> TypeGuard[Constant]:
    return constant is not None and constant.type.size <= _DATA_LIMIT and constant.type.dtype != TensorProto.STRING


def _infer(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[tuple[TensorType | None, Constant | None] | None],
    outputs: int,
    opset: int,
) -> tuple[TensorType | None, ...]:
    if domain == contrib.DOMAIN:
        return contrib.infer(op, attrs, [None if i is None else i[0] for i in inputs], outputs)
    if domain == nchwc.DOMAIN:
        return nchwc.infer(op, attrs, [None if i is None else i[0] for i in inputs], outputs)
    if any(i is not None and i[0] is None for i in inputs):
        return (None,) * outputs
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError as error:
        raise TypeInferenceError(f"{domain or 'ai.onnx'}.{op} does not exist in opset {opset}") from error
    node = make_node(op, domain, attrs, [None if i is None else f"i{k}" for k, i in enumerate(inputs)], outputs)
    types, data = {}, {}
    for k, entry in enumerate(inputs):
        if entry is None or entry[0] is None:
            continue
        types[f"i{k}"] = helper.make_tensor_type_proto(entry[0].dtype, entry[0].shape)
        if _shown(entry[1]):
            data[f"i{k}"] = numpy_helper.from_array(np.asarray(entry[1].numpy()), f"i{k}")
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[helper.make_opsetid("", opset)]
        )
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().splitlines()[-1]
        raise TypeInferenceError(f"{op} cannot take {_describe(inputs)}: {reason}") from error
    return tuple(_from_proto(found.get(f"o{k}")) for k in range(outputs))


def make_node(
    op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[str | None], outputs: int
) -> onnx.NodeProto:
    """A NodeProto with outputs named o0, o1, ... and empty names for inputs left out."""
    node = onnx.NodeProto(op_type=op, domain=domain)
    node.input.extend(name or "" for name in inputs)
    node.output.extend(f"o{k}" for k in range(outputs))
    node.attribute.extend(attribute_proto(name, attrs[name]) for name in sorted(attrs))
    return node


def attribute_proto(name: str, value: AttrValue) -> onnx.AttributeProto:
    """The AttributeProto of an attribute value."""
    if isinstance(value, RawAttr):
        return value.proto()
    if isinstance(value, Constant):
        return helper.make_attribute(name, tensor_proto(value))
    if isinstance(value, tuple) and not value:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, [_encoded(v) for v in value] if isinstance(value, tuple) else _encoded(value))


def _encoded(value: AttrValue) -> AttrValue:
    """Strings as the bytes they were read from, also where those are no UTF-8."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _describe(inputs: Sequence[tuple[TensorType | None, Constant | None] | None]) -> str:
    return ", ".join("nothing" if entry is None else str(entry[0]) for entry in inputs)


def _from_proto(proto: onnx.TypeProto | None) -> TensorType | None:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if any(not dim.HasField("dim_value") for dim in dims):
        return None
    return TensorType(proto.tensor_type.elem_type, tuple(dim.dim_value for dim in dims))
