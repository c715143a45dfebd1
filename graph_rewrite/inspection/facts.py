"""The contents of an ONNX file: operator sets, inputs and outputs, operators, sizes, and what rules leave alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite

import onnx

from graph_rewrite.ir.attributes import RawAttr
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import memory_of
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.inlining.functions import calls_written_out
from graph_rewrite.operators.work import estimate_flops

_KINDS = onnx.AttributeProto.AttributeType
_GRAPHS = (_KINDS.GRAPH, _KINDS.GRAPHS)


@dataclass(frozen=True)
class TensorFact:
    """An input or output: `shape` has a text where a dimension is symbolic, and is None where the rank is unknown, and
    for what is no tensor."""

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None
    default: bool = False
    """An input that has a value in the file, which a caller may override."""
    is_tensor: bool = True

    def __str__(self) -> str:
        dims = " of unknown shape" if self.shape is None else f" [{', '.join(map(str, self.shape))}]"
        return f"{self.name}: {self.dtype}{dims if self.is_tensor else ''}{' (has a default)' if self.default else ''}"


@dataclass(frozen=True)
class OpaqueNodes:
    """Nodes that no rule touches, for one reason."""

    operator: str
    reason: str
    count: int
    example: str
    """Name of the first of them."""


@dataclass(frozen=True)
class Facts:
    """The contents of a file; bytes and counts."""

    producer: str
    ir_version: int
    opsets: dict[str, int]
    inputs: tuple[TensorFact, ...]
    outputs: tuple[TensorFact, ...]
    nodes: int
    operators: dict[str, int]
    """Number of nodes by operator, the most frequent first; `domain::name` outside the ONNX standard."""
    parameters: int
    """Elements of the weights of floating-point type."""
    weight_bytes: int
    peak_bytes: int | None
    """Estimated memory of one inference, weights included; None where shapes are unknown."""
    gflop: float | None
    """Floating-point operations of one inference, in 10**9; a multiply-add counts 2. None where shapes are unknown."""
    opaque: tuple[OpaqueNodes, ...]

    @property
    def symbolic(self) -> list[TensorFact]:
        """Input tensors with a dimension that the file leaves open."""
        tensors = [fact for fact in self.inputs if fact.is_tensor]
        return [fact for fact in tensors if fact.shape is None or any(isinstance(dim, str) for dim in fact.shape)]


def facts_of(graph: Graph) -> Facts:
    """Return the facts of a graph as it was loaded, before any normalisation."""
    header, order = graph.header, graph.order()
    known = bool(order) and all(graph.types.get(value) is not None for value in graph.inputs)
    gflop = sum(_flops(graph, node) for node in order) / 1e9
    constants = [*graph.constants.values(), *graph.stored.values()]
    memory = memory_of(graph)
    return Facts(
        producer=" ".join(filter(None, (header.producer_name, header.producer_version))),
        ir_version=header.ir_version,
        opsets={entry.domain or "ai.onnx": entry.version for entry in header.opset_import},
        inputs=tuple(_inputs(graph)),
        outputs=tuple(_outputs(graph)),
        nodes=len(order),
        operators=dict(Counter(map(operator_name, order)).most_common()),
        parameters=sum(constant.type.size for constant in constants if _is_floating(constant)),
        weight_bytes=memory.weights,
        peak_bytes=memory.peak if known else None,
        gflop=gflop if known and isfinite(gflop) else None,
        opaque=tuple(opaque_nodes(graph, order)),
    )


def operator_name(node: Node) -> str:
    """Return an operator's name, with its domain where that is not the ONNX standard."""
    return f"{node.domain}::{node.op}" if node.domain else node.op


def opaque_nodes(graph: Graph, order: Iterable[Node]) -> list[OpaqueNodes]:
    """Return the nodes that no rule touches, by operator and reason, the most frequent first. Calls of functions that
    normalisation writes out are none."""
    known = all(graph.types.get(value) is not None for value in graph.inputs)
    written_out = calls_written_out(graph)
    found: dict[tuple[str, str], list[Node]] = {}
    for node in order:
        if node.id in written_out:
            continue
        reason = _opaque_reason(node) or (_untyped_reason(graph, node) if known else "")
        if reason:
            found.setdefault((operator_name(node), reason), []).append(node)
    listed = [OpaqueNodes(op, reason, len(nodes), _name(nodes[0])) for (op, reason), nodes in found.items()]
    return sorted(listed, key=lambda entry: -entry.count)


def _opaque_reason(node: Node) -> str:
    if not node.opaque:
        return ""
    raw = {name: value.proto() for name, value in node.attrs.items() if isinstance(value, RawAttr)}
    if not raw:
        return "calls a function of the model"
    if any(attribute.type in _GRAPHS for attribute in raw.values()):
        return "holds subgraphs (control flow)"
    name, attribute = next(iter(raw.items()))
    return f"its attribute {name} ({_KINDS.Name(attribute.type).lower()}) is kept as it is"


def _untyped_reason(graph: Graph, node: Node) -> str:
    if all(graph.types.get(value) is not None for value in node.outputs):
        return ""
    if any(value is not None and graph.types.get(value) is None for value in node.inputs):
        return "the shape of an operand is unknown"
    if not onnx.defs.has(node.op, node.domain) and node.domain != "com.microsoft":
        return f"an operator of the domain {node.domain or 'ai.onnx'} that is not known here"
    return "the shape of its result depends on values"


def _flops(graph: Graph, node: Node) -> float:
    inputs = [None if value is None else graph.types.get(value) for value in node.inputs]
    return estimate_flops(node, inputs, [graph.types.get(value) for value in node.outputs])


def _is_floating(constant: Constant) -> bool:
    name = onnx.TensorProto.DataType.Name(constant.type.dtype)
    return "FLOAT" in name or name == "DOUBLE"


def _name(node: Node) -> str:
    return (node.proto.name if node.proto is not None else "") or node.op


def _inputs(graph: Graph) -> Iterable[TensorFact]:
    for info, value in zip(graph.header.graph.input, graph.inputs, strict=True):
        fixed = graph.types.get(value)
        yield _fact(info, None if fixed is None else fixed.shape, default=value in graph.stored)


def _outputs(graph: Graph) -> Iterable[TensorFact]:
    for info, value in zip(graph.header.graph.output, graph.outputs, strict=True):
        fixed = graph.types.get(value)
        yield _fact(info, None if fixed is None else fixed.shape)


def _fact(info: onnx.ValueInfoProto, fixed: tuple[int, ...] | None, *, default: bool = False) -> TensorFact:
    if not info.type.HasField("tensor_type"):
        kind = str(info.type.WhichOneof("value")).removesuffix("_type")
        return TensorFact(info.name, kind, None, default, is_tensor=False)
    tensor = info.type.tensor_type
    dtype = onnx.TensorProto.DataType.Name(tensor.elem_type).lower()
    if fixed is not None or not tensor.HasField("shape"):
        return TensorFact(info.name, dtype, fixed, default)
    dims = tuple(dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?" for dim in tensor.shape.dim)
    return TensorFact(info.name, dtype, dims, default)
