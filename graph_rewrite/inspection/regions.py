"""Share of a model's time that its repeated blocks take."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.inspection.blocks import RepeatedBlock
from graph_rewrite.inspection.profile import TimedKernel
from graph_rewrite.ir.graph import Graph

_SEPARATORS = "/_"
_PREFIX = "fused "
"""ONNX Runtime puts this before the name of a node that it has fused with an activation."""


def block_shares(graph: Graph, blocks: Sequence[RepeatedBlock], kernels: Sequence[TimedKernel]) -> list[float]:
    """Return the share of the kernels' time that every block takes, 0 to 1.

    A kernel belongs to the node whose name, or the name of whose first result, its own name begins with. Kernels that
    ONNX Runtime has made without such a name belong to the block of the kernel before them.
    """
    owner = {node: number for number, block in enumerate(blocks) for node in block.nodes}
    places: dict[str, int | None] = {}
    for node in graph.order():
        names = [node.proto.name if node.proto is not None else "", *(graph.names.get(v, "") for v in node.outputs)]
        for name in filter(None, names):
            places.setdefault(name, owner.get(node.id))
    spent = [0.0] * len(blocks)
    last: int | None = None
    for kernel in kernels:
        last = _place(kernel.name.removeprefix(_PREFIX), places, last)
        if last is not None:
            spent[last] += kernel.us
    total = sum(kernel.us for kernel in kernels)
    return [us / total if total else 0.0 for us in spent]


def _place(name: str, places: dict[str, int | None], otherwise: int | None) -> int | None:
    """Return the block of the longest known name that `name` is, or that it goes on from after a separator."""
    end = len(name)
    while end > 0:
        if name[:end] in places:
            return places[name[:end]]
        end = max(name.rfind(separator, 0, end) for separator in _SEPARATORS)
    return otherwise
