"""Output types of ONNX's own operators, from onnx's inference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeGuard

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant, tensor_proto
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.plausibility import is_possible, pads_twice, without_unread_pads

DATA_LIMIT = 256
"""Constant inputs up to this many elements are shown to the inference: shapes, axes, indices."""

# Its own errors, and those that its code in C++ lets through when attributes are absurd.
_REFUSALS = (
    onnx.shape_inference.InferenceError, onnx.checker.ValidationError,
    ValueError, IndexError, MemoryError, RuntimeError,
)  # fmt: skip
_ELEMENT_TYPES = frozenset(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}

Operand = tuple[TensorType | None, Constant | None] | None
"""Type of an input, None where it is not known, and its elements where it is a constant; None for an input left out."""


class TypeInferenceError(InvalidRewriteError):
    """An operator cannot be applied to inputs of these types."""


def infer_standard(
    op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Operand], outputs: int, opset: int
) -> tuple[TensorType | None, ...]:
    """Return the types of the `outputs` results of an operator of ONNX's own; an element is None where onnx can tell no
    static type.

    Raises:
        TypeInferenceError: the operator refuses these inputs, or is unknown at this opset.
    """
    if any(i is not None and i[0] is None for i in inputs):
        return (None,) * outputs
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError as error:
        raise TypeInferenceError(f"{domain or 'ai.onnx'}.{op} does not exist in opset {opset}") from error
    if op == "Split" and attrs.get("num_outputs", outputs) != outputs:
        # onnx makes a list of them all, and reads beyond its end.
        raise TypeInferenceError(f"Split has {outputs} outputs and is to give {attrs['num_outputs']}")
    if pads_twice(op, attrs):
        raise TypeInferenceError(f"{op} has both pads and auto_pad")
    attrs = without_unread_pads(attrs)
    node = make_node(op, domain, attrs, [None if i is None else f"i{k}" for k, i in enumerate(inputs)], outputs)
    types, data = {}, {}
    for k, entry in enumerate(inputs):
        if entry is None or entry[0] is None:
            continue
        types[f"i{k}"] = helper.make_tensor_type_proto(entry[0].dtype, entry[0].shape)
        if is_shown(entry[1]):
            data[f"i{k}"] = numpy_helper.from_array(np.asarray(entry[1].numpy()), f"i{k}")
    try:
        found = onnx.shape_inference.infer_node_outputs(
            schema, node, types, data, opset_imports=[helper.make_opsetid("", opset)]
        )
    except _REFUSALS as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise TypeInferenceError(f"{op} cannot take {_describe(inputs)}: {reason}") from error
    results = tuple(_from_proto(found.get(f"o{k}")) for k in range(outputs))
    if not domain and not is_possible(op, attrs, [None if i is None else i[0] for i in inputs], results):
        raise TypeInferenceError(f"{op} cannot take {_describe(inputs)}")
    return results


def is_shown(constant: Constant | None) -> TypeGuard[Constant]:
    """Tell whether inference looks at the elements of an operand."""
    return constant is not None and constant.type.size <= DATA_LIMIT and constant.type.dtype != TensorProto.STRING


def make_node(
    op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[str | None], outputs: int
) -> onnx.NodeProto:
    """Return a NodeProto with outputs named o0, o1, ... and empty names for inputs left out."""
    node = onnx.NodeProto(op_type=op, domain=domain)
    node.input.extend(name or "" for name in inputs)
    node.output.extend(f"o{k}" for k in range(outputs))
    node.attribute.extend(attribute_proto(name, attrs[name]) for name in sorted(attrs))
    return node


def attribute_proto(name: str, value: AttrValue) -> onnx.AttributeProto:
    """Return the AttributeProto of an attribute value."""
    if isinstance(value, RawAttr):
        return value.proto()
    if isinstance(value, Constant):
        return helper.make_attribute(name, tensor_proto(value))
    if isinstance(value, tuple) and not value:
        return helper.make_attribute(name, [], attr_type=onnx.AttributeProto.INTS)
    return helper.make_attribute(name, [_encoded(v) for v in value] if isinstance(value, tuple) else _encoded(value))


def _encoded(value: AttrValue) -> AttrValue:
    """Return strings as the bytes they were read from, UTF-8 or not."""
    return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


def _describe(inputs: Sequence[Operand]) -> str:
    return ", ".join("nothing" if entry is None else str(entry[0]) for entry in inputs)


def _from_proto(proto: onnx.TypeProto | None) -> TensorType | None:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if proto.tensor_type.elem_type not in _ELEMENT_TYPES or any(not dim.HasField("dim_value") for dim in dims):
        return None
    return TensorType(proto.tensor_type.elem_type, tuple(dim.dim_value for dim in dims))
