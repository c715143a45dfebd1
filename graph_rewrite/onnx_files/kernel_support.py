"""Operator sets that ONNX Runtime can run a graph in.

ONNX Runtime implements some operators in an older version only: it runs a RoiAlign of opset 16, and refuses the same
node in opset 22. What it implements is looked up in its list of kernels; where that leaves a doubt, the graph is opened
without its weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from graph_rewrite.ir.constants import Constant, tensor_proto
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.opset import body_nodes, since_version
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.runtime.kernels import RegisteredKernel, cpu_kernels
from graph_rewrite.runtime.opening import first_that_opens
from graph_rewrite.system.bounded import BoundedDict
from graph_rewrite.system.deadline import check_time

_NO_KERNEL_NEEDED = frozenset({"Constant"})
# ONNX Runtime computes in float32 what it has no half-precision kernel for.
_WIDENED = {"tensor(float16)": "tensor(float)"}


def doubts(before: Graph, after: Graph) -> frozenset[str]:
    """Return the operators of `after` of which the list of kernels does not show that ONNX Runtime runs them, where
    `after` is `before` in a newer operator set, which it runs.

    An operator without a kernel is always in doubt: ONNX Runtime may know it as a function of others, in some versions.
    Each is told by its attributes and types.
    """
    kernels = cpu_kernels() or {}
    old, new = before.opset, after.opset
    found, run = set[str](), set[tuple[object, ...]]()
    for node in after.nodes.values():
        check_time()
        if node.domain or node.op in _NO_KERNEL_NEEDED:
            continue
        alike = node.op, node.opaque, _dtypes(after, node.inputs), _dtypes(after, node.outputs)
        if alike in run:
            continue
        if _runs(after, node, kernels.get(node.op, ()), old):
            run.add(alike)
        else:
            found.add(f"{node.signature}{_types(after, node, since_version(node.op, new))}")
    for body, version in body_nodes(before):
        standard = body.domain in ("", "ai.onnx") and body.op_type not in _NO_KERNEL_NEEDED
        if standard and not _keeps(body.op_type, version, new, kernels.get(body.op_type, ())):
            found.update(node.signature for node in after.nodes.values() if node.opaque)
    return frozenset(found)


_RUNNING = BoundedDict[tuple[frozenset[str], int, tuple[int, ...], tuple[str, ...]], int | None](1024)


def first_that_runs(
    graphs: Sequence[Graph], doubtful: frozenset[str], opset: int, libraries: tuple[str, ...] = ()
) -> Graph | None:
    """Return the first of some graphs, forms of one in operator set `opset`, that ONNX Runtime opens; None where it
    opens none of them. What it makes of the same doubtful operators is asked once per process.

    Args:
        libraries: libraries with operators of custom domains, for the process that opens the graphs.
    """
    key = (doubtful, opset, tuple(graph.opset for graph in graphs), libraries)
    if key not in _RUNNING:
        models = [_without_weights(graph).SerializeToString(deterministic=True) for graph in graphs]
        _RUNNING[key] = first_that_opens(models, libraries)
    position = _RUNNING[key]
    return None if position is None else graphs[position]


def _runs(graph: Graph, node: Node, kernels: Sequence[RegisteredKernel], old: int) -> bool:
    """Tell whether a kernel takes a node with the types of its operands and results. Where they are not all known, its
    kernels must take what they took in operator set `old`."""
    since = since_version(node.op, graph.opset)
    types = _types(graph, node, since)
    if node.opaque or "" in types.values():
        return _keeps(node.op, old, graph.opset, kernels)
    widened = {name: _WIDENED.get(type, type) for name, type in types.items()}
    return any(k.implements(since) and (k.takes(types) or k.takes(widened)) for k in kernels)


def _dtypes(graph: Graph, values: Sequence[int | None]) -> tuple[int | None, ...]:
    """Return the types of elements of some values: None where it is not known, and -1 where there is no value."""
    types = (None if value is None else graph.types[value] for value in values)
    return tuple(
        -1 if value is None else None if type is None else type.dtype for value, type in zip(values, types, strict=True)
    )


def _types(graph: Graph, node: Node, since: int) -> dict[str, str]:
    """Return the types that a node binds to the type parameters of its operator, by name of the parameter and by that
    of its formal operand; an unknown type is an empty text."""
    schema = onnx.defs.get_schema(node.op, since)
    found: dict[str, str] = {}
    for formal, values in ((schema.inputs, node.inputs), (schema.outputs, node.outputs)):
        for position, value in enumerate(values):
            if value is None or not formal:
                continue
            parameter = formal[min(position, len(formal) - 1)]
            type = graph.types[value]
            name = "" if type is None else f"tensor({onnx.TensorProto.DataType.Name(type.dtype).lower()})"
            found[parameter.type_str] = found[parameter.name] = name
    return found


def _keeps(op: str, old: int, new: int, kernels: Sequence[RegisteredKernel]) -> bool:
    """Tell whether the kernels of an operator take in the newer operator set all types that they take in the older one,
    parameter by parameter."""
    if not onnx.defs.has(op, old):
        return False
    before, after = _all_types(op, old, kernels), _all_types(op, new, kernels)
    return bool(before) and all(types <= after.get(name, frozenset()) for name, types in before.items())


def _all_types(op: str, version: int, kernels: Sequence[RegisteredKernel]) -> Mapping[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    since = since_version(op, version)
    for kernel in kernels:
        if kernel.implements(since):
            for name, types in kernel.types.items():
                found[name] = found.get(name, frozenset()) | types
    return found


def _without_weights(graph: Graph) -> onnx.ModelProto:
    """Return the model of a graph with its large constants as inputs: ONNX Runtime opens it as it would the graph."""
    large: list[onnx.ValueInfoProto] = []

    def write(name: str, constant: Constant) -> onnx.TensorProto:
        if constant.is_small:
            return tensor_proto(constant, name)
        large.append(onnx.helper.make_tensor_value_info(name, constant.type.dtype, constant.type.shape))
        return onnx.TensorProto(name=name)

    model = to_proto(graph, write)
    names = {info.name for info in large}
    kept = [tensor for tensor in model.graph.initializer if tensor.name not in names]
    model.graph.ClearField("initializer")
    model.graph.initializer.extend(kept)
    declared = {info.name for info in model.graph.input}
    model.graph.input.extend(info for info in large if info.name not in declared)
    return model
