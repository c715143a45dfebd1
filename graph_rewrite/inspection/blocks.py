"""Repeated blocks: the layers of a model, found by structure alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.system.deadline import check_time

LONGEST = 2000
"""Nodes of a block at most; longer ones are not looked for."""
MOST_BLOCKS = 8
"""Repeated blocks that are reported at most, those that cover most nodes first."""
LEAST_NODES = 4
"""Nodes that a block covers at least, in all its repetitions together."""


@dataclass(frozen=True)
class RepeatedBlock:
    """A sequence of nodes that follows upon itself: `nodes` are those of all repetitions, in the graph's order."""

    repeats: int
    nodes: tuple[int, ...]
    operators: tuple[tuple[str, int], ...]
    """Operators of one repetition with their number, the most frequent first."""
    first: str
    """Name of the first node in the file."""

    @property
    def length(self) -> int:
        """Number of nodes of one repetition."""
        return len(self.nodes) // self.repeats


def repeated_blocks(graph: Graph) -> list[RepeatedBlock]:
    """Return the blocks that repeat in the order of the graph, those that cover most nodes first.

    Two nodes are alike where operator, attributes, and shapes and element types of operands and results are equal;
    weights may differ. The search is greedy: the sequence that covers most nodes is taken first, and the shortest of
    those that cover the same; then those before and after it. Where a sequence may as well begin some nodes later, it
    begins at a node with a weight, as layers do.
    """
    order = graph.order()
    kinds = _kinds(graph, order)
    found: list[RepeatedBlock] = []
    pieces = [(0, len(order))]
    while pieces:
        begin, end = pieces.pop()
        start, length, repeats, slack = _longest_repetition(kinds[begin:end])
        if repeats < 2 or length * repeats < LEAST_NODES:
            continue
        first = begin + start + _first_weighted(graph, order[begin + start : begin + start + slack + 1])
        last = first + length * repeats
        found.append(_block(order[first:last], repeats))
        pieces += [(begin, first), (last, end)]
    found.sort(key=lambda block: -len(block.nodes))
    return found[:MOST_BLOCKS]


def _kinds(graph: Graph, order: Sequence[Node]) -> NDArray[np.int64]:
    """Return a number per node, int64 [n], the same for nodes that are alike."""
    numbers: dict[tuple[object, ...], int] = {}

    def number(node: Node) -> int:
        operands = tuple(None if value is None else graph.types.get(value) for value in node.inputs)
        results = tuple(graph.types.get(value) for value in node.outputs)
        return numbers.setdefault((node.signature, operands, results), len(numbers))

    return np.fromiter(map(number, order), np.int64, len(order))


def _first_weighted(graph: Graph, nodes: Sequence[Node]) -> int:
    """Return the position of the first node with a constant matrix or more among its operands; 0 without one."""
    constants = graph.constants
    for position, node in enumerate(nodes):
        if any(value in constants and constants[value].type.rank > 1 for value in node.inputs if value is not None):
            return position
    return 0


def _longest_repetition(kinds: NDArray[np.int64]) -> tuple[int, int, int, int]:
    """Return (start, length, repeats, slack) of the repetition that covers most of a sequence; repeats is 0 without
    one. It may begin up to `slack` positions later."""
    best = (0, 0, 0, 0)
    for length in range(1, min(LONGEST, len(kinds) // 2) + 1):
        check_time()
        equal = kinds[:-length] == kinds[length:]
        start, run = _longest_run(equal)
        repeats = run // length + 1
        if run >= length and repeats * length > best[1] * best[2]:
            best = (start, length, repeats, run % length)
    return best


def _longest_run(equal: NDArray[np.bool_]) -> tuple[int, int]:
    """Return (start, length) of the first longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], equal, [False])).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    if not len(begins):
        return 0, 0
    longest = int(np.argmax(ends - begins))
    return int(begins[longest]), int(ends[longest] - begins[longest])


def _block(nodes: Sequence[Node], repeats: int) -> RepeatedBlock:
    one = nodes[: len(nodes) // repeats]
    operators = Counter(node.op for node in one)
    named = nodes[0].proto.name if nodes[0].proto is not None else ""
    return RepeatedBlock(
        repeats, tuple(node.id for node in nodes), tuple(operators.most_common()), named or nodes[0].op
    )
