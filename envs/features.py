"""Features of operators and tensors: rows of numbers, computed once per distinct operator and shape.

The tables are process-wide and only grow. A row depends on nothing but its key, so sharing them between environments
changes no observation; row numbers themselves never leave the process.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from math import log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.attributes import NODE_ATTRIBUTES, attribute_features
from envs.vocabulary import CANDIDATE, operator_index
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.work import estimate_flops, tensor_bytes
from graph_rewrite.rewriting.earlier_graphs import of_each_node
from graph_rewrite.rewriting.replacement import ReplacementNode

NODE_FEATURES = (
    "elements", "flops", "moved_bytes", "constant_bytes", "inputs", "outputs", "rank", "opaque", "replacement", "head",
)  # fmt: skip
"""Columns of `node_features`.

elements: log2(1 + elements of the first output) / 32; flops: log2(1 + floating-point operations) / 48; moved_bytes and
constant_bytes: log2(1 + bytes of run-time inputs and outputs, and of constant inputs) / 32; inputs, outputs, rank of
the first output: / 8; opaque: 1 for operators that no rule may touch; replacement: 1 for nodes that a candidate would
insert and its head; head: 1 for the head of a candidate's replacement.
"""
REPLACEMENT, HEAD = NODE_FEATURES.index("replacement"), NODE_FEATURES.index("head")

EDGE_FEATURES = 4
SHAPE_SCALE = 4096.0
"""M of X-RLflow (section 3.3.2; value from appendix A, table 4)."""

NOMINAL = (1e11, 2e10, 1e-6)
"""A plain machine, by which times are estimated: floating-point operations per second, bytes per second, and seconds
that every node takes at least."""

DIGEST_MODULUS = 2**64
"""Digests of nodes are added up modulo this."""

Operator = Node | ReplacementNode
Input = tuple[TensorType | None, bool] | None
NodeRecord = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Row of a node, ids of its input values, and a shape row per input value."""


class _Rows:
    """An array that grows at its end, by doubling."""

    def __init__(self, dtype: type[np.generic], *width: int) -> None:
        self._data: NDArray[Any] = np.zeros((256, *width), dtype=dtype)
        self._count = 0

    @property
    def data(self) -> NDArray[Any]:
        return self._data[: self._count]

    def append(self, row: Sequence[float] | float) -> int:
        """Returns the number of the new row."""
        if self._count == len(self._data):
            self._data = np.concatenate([self._data, np.zeros_like(self._data)])
        self._data[self._count] = row
        self._count += 1
        return self._count - 1


class NodeTable:
    """A row per distinct (operator, attributes, types of inputs and outputs, which inputs are constant)."""

    def __init__(self) -> None:
        self._index: dict[Any, int] = {}
        self._operators, self._features = _Rows(np.int32), _Rows(np.float32, len(NODE_FEATURES))
        self._work, self._digests = _Rows(np.float64, 2), _Rows(np.uint64)
        # The same once more: for a handful of rows plain numbers are ten times faster than arrays.
        self._plain: list[tuple[float, float, int]] = []
        self._attributes, self._seconds = _Rows(np.float32, len(NODE_ATTRIBUTES)), _Rows(np.float64)
        head = [0.0] * len(NODE_FEATURES)
        head[REPLACEMENT] = head[HEAD] = 1.0
        self._attributes.append([0.0] * len(NODE_ATTRIBUTES))
        self._seconds.append(0.0)
        self.head = self._append(CANDIDATE, head, (0.0, 0.0), 0)
        """Row of a candidate's head."""

    def row(
        self, node: Operator, inputs: tuple[Input, ...], outputs: tuple[TensorType | None, ...], opaque: bool = False
    ) -> int:
        """The row of an operator application; `inputs` holds (type, is it constant?), None for inputs left out."""
        key = (node.signature, opaque, inputs, outputs)
        row = self._index.get(key)
        if row is None:
            row = self._index[key] = self._add(node, inputs, outputs, opaque)
        return row

    def _add(
        self, node: Operator, inputs: tuple[Input, ...], outputs: tuple[TensorType | None, ...], opaque: bool
    ) -> int:
        types = tuple(None if entry is None else entry[0] for entry in inputs)
        first = outputs[0] if outputs else None
        constant = float(sum(tensor_bytes(entry[0]) for entry in inputs if entry is not None and entry[1]))
        moved = float(sum(map(tensor_bytes, (*types, *outputs)))) - constant
        flops = estimate_flops(node, types, outputs)
        sizes = (first.size if first is not None else 0, first.rank if first is not None else 0)
        features = [
            log2(1 + sizes[0]) / 32, log2(1 + flops) / 48, log2(1 + moved) / 32, log2(1 + constant) / 32,
            sum(entry is not None for entry in inputs) / 8, len(outputs) / 8, sizes[1] / 8, float(opaque), 0.0, 0.0,
        ]  # fmt: skip
        # Constness is left out: rewiring a consumer to a constant must not change what its node counts for.
        content = hash((node.signature, types, outputs)) % DIGEST_MODULUS
        self._attributes.append(attribute_features(node.op, node.domain, node.attrs, inputs, outputs))
        self._seconds.append(max(flops / NOMINAL[0], (moved + constant) / NOMINAL[1]) + NOMINAL[2])
        return self._append(operator_index(node.domain, node.op), features, (flops, moved + constant), content)

    def _append(self, operator: int, features: Sequence[float], work: tuple[float, float], content: int) -> int:
        self._operators.append(operator)
        self._work.append(work)
        self._digests.append(content)
        self._plain.append((*work, content))
        return self._features.append(features)

    def totals(self, rows: Iterable[int]) -> tuple[float, float, int]:
        """Floating-point operations, bytes read and written, and digests of a few rows, each added up."""
        flops, moved, content = 0.0, 0.0, 0
        for row in rows:
            one = self._plain[row]
            flops, moved, content = flops + one[0], moved + one[1], content + one[2]
        return flops, moved, content

    @property
    def operators(self) -> NDArray[np.int32]:
        """Index in the operator vocabulary, per row."""
        return self._operators.data

    @property
    def features(self) -> NDArray[np.float32]:
        """Columns `NODE_FEATURES`, per row."""
        return self._features.data

    @property
    def attributes(self) -> NDArray[np.float32]:
        """Columns `NODE_ATTRIBUTES`, per row."""
        return self._attributes.data

    @property
    def seconds(self) -> NDArray[np.float64]:
        """Estimated seconds on the machine `NOMINAL`, per row."""
        return self._seconds.data

    @property
    def work(self) -> NDArray[np.float64]:
        """Columns (floating-point operations, bytes read and written), per row."""
        return self._work.data

    @property
    def digests(self) -> NDArray[np.uint64]:
        """64-bit digest of operator, attributes and types, per row; valid in this process only."""
        return self._digests.data


class ShapeTable:
    """A row per distinct shape: rank 4, leading dimensions zero or multiplied, divided by `SHAPE_SCALE`."""

    def __init__(self) -> None:
        self._index: dict[tuple[int, ...] | None, int] = {}
        self._rows = _Rows(np.float32, EDGE_FEATURES)

    def row(self, type: TensorType | None) -> int:
        """The row of a tensor's shape; zeros where the type is not known."""
        shape = None if type is None else type.shape
        row = self._index.get(shape)
        if row is None:
            row = self._index[shape] = self._rows.append(_four_dimensions(shape))
        return row

    @property
    def rows(self) -> NDArray[np.float32]:
        return self._rows.data


NODES = NodeTable()
SHAPES = ShapeTable()


NODE_RECORDS = MemoKey[dict[int, NodeRecord]]("node records")


def node_records(graph: Graph) -> dict[int, NodeRecord]:
    """Return the record of each node of a graph, by node id; after a rewrite only changed nodes are computed."""
    return of_each_node(graph, NODE_RECORDS, partial(node_record, graph))


def node_row(node: Node, types: Mapping[int, TensorType | None], constants: Container[int]) -> int:
    """Return the row of a node, given the types of its values and those values that are constants."""
    inputs = tuple(None if v is None else (types.get(v), v in constants) for v in node.inputs)
    return NODES.row(node, inputs, tuple(types.get(v) for v in node.outputs), node.opaque)


def node_record(graph: Graph, node: Node) -> NodeRecord:
    """Return the record of one node of a graph."""
    types = graph.types
    row = node_row(node, types, graph.constants)
    values = tuple(v for v in node.inputs if v is not None)
    return row, values, tuple(SHAPES.row(types.get(v)) for v in values)


def _four_dimensions(shape: tuple[int, ...] | None) -> list[float]:
    dims = list(shape or ())
    if len(dims) > EDGE_FEATURES:
        split = len(dims) - EDGE_FEATURES + 1
        dims = [prod(dims[:split]), *dims[split:]]
    return [0.0] * (EDGE_FEATURES - len(dims)) + [dim / SHAPE_SCALE for dim in dims]
