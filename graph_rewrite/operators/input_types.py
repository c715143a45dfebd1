"""Types of a model's inputs that are no tensors of a fixed shape, and the check that values can be made for all."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.runtime.ort_worker.feeds import FEEDABLE
from graph_rewrite.runtime.ort_worker.narrow_floats import NARROW

SYMBOLIC_SIZE = 3
"""Size of a symbolic dimension of elements: they are never rewritten by it, since a graph knows no type of them."""


def element_types(graph: Graph) -> dict[str, TensorType]:
    """Return the declared types of optional tensors, and of the elements of sequences, by input. Those without a shape
    are left out; symbolic dimensions count as `SYMBOLIC_SIZE`."""
    found: dict[str, TensorType] = {}
    for info in graph.header.graph.input:
        tensor = None if info.type.HasField("tensor_type") else _innermost(info.type)
        if tensor is not None and tensor.HasField("shape"):
            found[info.name] = TensorType(tensor.elem_type, tuple(map(_size, tensor.shape.dim)))
    return found


def element_shapes(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Return the shapes of `element_types`."""
    return {name: type.shape for name, type in element_types(graph).items()}


def require_feedable(graph: Graph) -> None:
    """Check that values can be made for all inputs of a model, so that it can be run.

    Raises:
        UserError: an input for which none can be made; the message says why.
    """
    inputs = [
        info
        for value, info in zip(graph.inputs, graph.header.graph.input, strict=True)
        if value not in graph.stored  # the others have default values
    ]
    for info in inputs:
        if reason := _objection(info.type):
            raise UserError(f"the model cannot be run, and so not be measured: its input {info.name!r} {reason}")
    outputs = [info for info in graph.header.graph.output if _element_name(info.type) in NARROW]
    others = [info for info in inputs if not info.type.HasField("tensor_type") or _element_name(info.type) == "string"]
    if outputs and others:
        raise UserError(
            f"the model cannot be run, and so not be measured: its output {outputs[0].name!r} is of"
            f" {_element_name(outputs[0].type)}, which ONNX Runtime's Python interface does not hand over together with"
            f" the input {others[0].name!r}, a text, a sequence or an optional value; cast the output to float"
        )


def _objection(type: onnx.TypeProto) -> str:
    """Return why no values can be made for an input; empty where they can."""
    if type.HasField("tensor_type"):
        name = _element_name(type)
        return "" if name in FEEDABLE else f"has elements of type {name}, for which no values are made"
    tensor = _innermost(type)
    if tensor is None:
        return "is neither a tensor nor a sequence or an optional value of tensors, for which values are made"
    if (name := _name(tensor.elem_type)) not in FEEDABLE:
        return f"has elements of type {name}, for which no values are made"
    if not tensor.HasField("shape"):
        return (
            "is a sequence or an optional value whose tensors have no declared shape, so that no values can be"
            " made; declare one, as onnx.helper.make_tensor_sequence_value_info does"
        )
    return ""


def _innermost(type: onnx.TypeProto) -> onnx.TypeProto.Tensor | None:
    """Return the type of the tensors in a sequence or an optional value; None for other types."""
    if type.HasField("optional_type"):
        type = type.optional_type.elem_type
    if type.HasField("sequence_type"):
        type = type.sequence_type.elem_type
    return type.tensor_type if type.HasField("tensor_type") else None


def _size(dim: onnx.TensorShapeProto.Dimension) -> int:
    return int(dim.dim_value) if dim.HasField("dim_value") else SYMBOLIC_SIZE


def _element_name(type: onnx.TypeProto) -> str:
    return _name(type.tensor_type.elem_type)


def _name(element: int) -> str:
    name: str = TensorProto.DataType.Name(element).lower()
    return name
