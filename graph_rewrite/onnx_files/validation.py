"""Checks of a model before anything is built from it: text, operator sets, declared types, operators.

ONNX Runtime refuses what is refused here too, but rules, inference and the version converter assume it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx
from onnx import AttributeProto

from graph_rewrite.onnx_files.external_data import ModelLoadError, is_absurd
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.system.deadline import check_time

_NEWEST_CONCEIVABLE = 10_000
_LARGE = 1 << 20
_STANDARD = ("", "ai.onnx")


def check_model(model: onnx.ModelProto, label: str) -> None:
    """Check everything about a model but its tensors.

    Raises:
        ModelLoadError: naming the model by `label`, and what is damaged.
    """
    if not model.HasField("graph"):
        raise ModelLoadError(f"{label}: holds no graph; is it an ONNX model, and complete?")
    if not model.opset_import and model.ir_version >= 3:
        raise ModelLoadError(f"{label}: names no operator set (opset_import); is the file complete?")
    if not 0 <= model.ir_version <= _NEWEST_CONCEIVABLE:
        raise ModelLoadError(f"{label}: has the impossible IR version {model.ir_version}; is the file damaged?")
    _check_texts(model, label)
    for imported in (model.opset_import, *(function.opset_import for function in model.functions)):
        for entry in imported:
            if not 1 <= entry.version <= _NEWEST_CONCEIVABLE:
                domain = f"{entry.domain or 'ai.onnx'!r}"
                raise ModelLoadError(f"{label}: imports version {entry.version} of {domain}; is the file damaged?")
    _check_types(model.graph, label)
    _check_operators(model, label)


def open_negative_sizes(model: onnx.ModelProto) -> None:
    """Make dimensions of inputs, outputs and values symbolic, without a name, that a model declares as -1, in place: as
    ONNX Runtime does."""
    for body in (model.graph, *(inner for node in inner_nodes(model.graph) for inner in attribute_graphs(node))):
        for info in (*body.input, *body.output, *body.value_info):
            for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                if dim.dim_value < 0:
                    dim.ClearField("dim_value")


def check_shapes(shapes: Mapping[str, tuple[int, ...]], inputs: Mapping[str, onnx.ValueInfoProto], label: str) -> None:
    """Check the shapes that a user gives to inputs with symbolic dimensions.

    Raises:
        ModelLoadError: there is no such input, or the model declares another shape.
    """
    for name, shape in shapes.items():
        if name not in inputs:
            raise ModelLoadError(f"{label}: there is no input {name!r}; the inputs are {', '.join(inputs)}")
        tensor = inputs[name].type.tensor_type
        if not inputs[name].type.HasField("tensor_type") or any(dim < 0 for dim in shape):
            raise ModelLoadError(f"{label}: input {name!r} cannot be given the shape {list(shape)}")
        declared = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim]
        fits = len(declared) == len(shape) and all(
            isinstance(old, str) or old == new for old, new in zip(declared, shape, strict=True)
        )
        if is_absurd(shape):
            raise ModelLoadError(f"{label}: input {name!r} of shape {list(shape)} is too large for any machine")
        if tensor.HasField("shape") and not fits:
            raise ModelLoadError(
                f"{label}: input {name!r} is declared as [{', '.join(map(str, declared))}], which the shape"
                f" {list(shape)} contradicts; only symbolic dimensions can be set"
            )


def _check_types(graph: onnx.GraphProto, label: str) -> None:
    known = set(onnx.TensorProto.DataType.values())
    for info in (*graph.input, *graph.output, *graph.value_info):
        tensor = info.type.tensor_type
        if tensor.elem_type not in known:
            raise ModelLoadError(
                f"{label}: {info.name!r} has the unknown element type {tensor.elem_type}; is the file damaged?"
            )
        if is_absurd(abs(dim.dim_value) for dim in tensor.shape.dim):
            shape = [dim.dim_value for dim in tensor.shape.dim]
            raise ModelLoadError(f"{label}: {info.name!r} has the shape {shape}, too large for any machine")
    for info in graph.input:
        if info.type.HasField("tensor_type") and not info.type.tensor_type.elem_type:
            raise ModelLoadError(f"{label}: input {info.name!r} has no element type; is the file damaged?")


def _check_texts(model: onnx.ModelProto, label: str) -> None:
    """Refuse names that are not UTF-8, which protobuf hands out as bytes."""
    if not all(isinstance(text, str) for text in _texts(model)):
        raise ModelLoadError(f"{label}: a name in it is not valid UTF-8; is the file damaged?")


def _texts(model: onnx.ModelProto) -> Iterator[str]:
    graph = model.graph
    for body in (graph, *(onnx.GraphProto(node=function.node) for function in model.functions)):
        for node in inner_nodes(body):
            yield from (node.op_type, node.domain, node.name, node.overload, *node.input, *node.output)
            for attribute in node.attribute:
                yield from (attribute.name, attribute.ref_attr_name)
            for inner in attribute_graphs(node):
                yield from _names(inner)
    yield from _names(graph)
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output, *function.attribute)
        yield from (entry.domain for entry in function.opset_import)
    yield from (entry.domain for entry in model.opset_import)
    for entry in model.metadata_props:
        yield from (entry.key, entry.value)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield graph.name
    for info in (*graph.input, *graph.output, *graph.value_info):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def _check_operators(model: onnx.ModelProto, label: str) -> None:
    """Check the standard operators of the main graph against their schemas: numbers of operands, names and types of
    attributes. Unknown and deprecated operators, calls of functions, and operators with subgraphs are not looked at.
    """
    version = next((entry.version for entry in model.opset_import if entry.domain in _STANDARD), 0)
    functions = {function.name for function in model.functions if function.domain in _STANDARD}
    context = onnx.checker.C.CheckerContext()
    context.ir_version, context.opset_imports = model.ir_version, {"": version}
    for node in model.graph.node:
        check_time()
        if node.domain not in _STANDARD or node.op_type in functions:
            continue
        if node.op_type == "Constant" and len(node.attribute) != 1:
            raise ModelLoadError(f"{label}: {_described(node)} has {len(node.attribute)} attributes instead of a value")
        if not _is_checked(node, version):
            continue
        checked = node
        if node.domain:
            checked = onnx.NodeProto()
            checked.CopyFrom(node)
            checked.ClearField("domain")
        try:
            onnx.checker.check_node(checked, context)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            reason = (str(error).strip().splitlines() or ["not a valid node"])[0].rstrip(".")
            raise ModelLoadError(
                f"{label}: {_described(node)} is no valid operator of opset {version}: {reason}; export the model again"
            ) from error


def _described(node: onnx.NodeProto) -> str:
    name = f"{node.op_type} {node.name!r}"
    return name if node.name else f"the {node.op_type} that gives {next(iter(node.output), '')!r}"


def _is_checked(node: onnx.NodeProto, version: int) -> bool:
    if _has_kind(node.attribute, (AttributeProto.GRAPH, AttributeProto.GRAPHS)) or not onnx.defs.has(
        node.op_type, version
    ):
        return False
    # Constants may be large, and the checker gets a copy.
    large = _has_kind(node.attribute, (AttributeProto.TENSOR,)) and node.ByteSize() > _LARGE
    return not large and not onnx.defs.get_schema(node.op_type, version).deprecated


def _has_kind(attributes: Iterable[AttributeProto], kinds: tuple[int, ...]) -> bool:
    return any(attribute.type in kinds for attribute in attributes)
