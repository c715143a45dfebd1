"""The operators of a graph, as `OperatorCostMeter` takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.meter import Measurable
from graph_rewrite.latency.operator_spec import OperatorSpec, ValueType

VALUES_MATTER = 64
"""Constants of integers up to this many elements are shapes, axes and indices: their values go into the operator."""
_INDEX_INPUTS = {"Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1}
"""The operand that tells where elements lie: constants of any size go into the operator with their values, since caches
feel where they lie."""


def operators_of(graph: Measurable) -> Iterator[OperatorSpec]:
    """Yield a spec per node, in topological order.

    Opaque nodes and values without a static type are left out, since they cannot be timed alone.

    Raises:
        TypeError: `graph` is not a `Graph`.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"only the operators of a Graph are known, not those of {type(graph).__name__}")
    yield from filter(None, (operator_of(graph, node) for node in graph.order()))


def operator_of(graph: Graph, node: Node) -> OperatorSpec | None:
    """Return one node's operator; None where it cannot be timed alone."""
    types = [None if value is None else graph.types[value] for value in (*node.inputs, *node.outputs)]
    if node.opaque or any(
        t is None and v is not None for t, v in zip(types, (*node.inputs, *node.outputs), strict=True)
    ):
        return None
    constants = {i: graph.constants[v] for i, v in enumerate(node.inputs) if v is not None and v in graph.constants}
    inputs, outputs = types[: len(node.inputs)], types[len(node.inputs) :]
    return spec_of(node.op, node.domain, node.attrs, inputs, outputs, constants, graph.opset)


def spec_of(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[TensorType | None],
    outputs: Sequence[TensorType | None],
    constants: Mapping[int, Constant],
    opset: int,
) -> OperatorSpec:
    """Return one operator as it is timed alone.

    `inputs` and `outputs` are types, None where one is left out; `constants` are the constant inputs by index.
    """
    return OperatorSpec(
        op, domain, {name: _attribute(value) for name, value in attrs.items()},
        tuple(map(_value_type, inputs)), tuple(map(_value_type, outputs)),
        {i: constant.numpy() if has_values(op, i, constant) else None for i, constant in constants.items()},
        opset if domain == "" else 1,
    )  # fmt: skip


def _attribute(value: AttrValue) -> object:
    if isinstance(value, Constant):
        return value.numpy()
    return value.proto() if isinstance(value, RawAttr) else value


def _value_type(type: TensorType | None) -> ValueType | None:
    return None if type is None else (type.dtype, type.shape)


def has_values(op: str, position: int, constant: Constant) -> bool:
    """Return whether the values of a constant operand go into the operator, and not its type alone."""
    is_small = constant.type.size <= VALUES_MATTER and constant.numpy().dtype.kind in "iub"
    return is_small or _INDEX_INPUTS.get(op) == position
