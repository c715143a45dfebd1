"""The largest sizes that a model's tables allow, such as a table of 512 positions: what is computed from such a table
is computed once for the largest size, and sliced to the size at run time."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.ir.node import Node
from graph_rewrite.symbolic.integers import Formula, fit
from graph_rewrite.symbolic.lanes import Lane

LARGEST = 4096
"""Larger limits are not tried: the model would have to run at them."""


def table_limits(lanes: Sequence[Lane]) -> dict[str, int]:
    """Return the largest value of each symbol that some constant table allows: the model reads as many rows of the
    table as the symbol says."""
    found: dict[str, int] = {}
    first = lanes[0]
    for node in first.unfolded.order():
        for size, read in _reads(node, lanes):
            formula = fit(read, [lane.symbols for lane in lanes])
            if formula is not None and (symbol := _symbol(formula)):
                limit = size - formula.constant
                found[symbol] = min(limit, found.get(symbol, limit))
    return {symbol: limit for symbol, limit in found.items() if first.symbols[symbol] <= limit <= LARGEST}


def _reads(node: Node, lanes: Sequence[Lane]) -> list[tuple[int, list[int]]]:
    """Return the sizes of the axes of a constant table that a node reads parts of, with the number of entries along
    them that it reads or skips in each lane."""
    if node.op not in ("Gather", "Slice") or any(value is None for value in node.inputs[:2]):
        return []
    table, other = (node.inputs[0], node.inputs[1] if node.op == "Gather" else node.outputs[0])
    tables = [lane.known.get(table) for lane in lanes if table is not None]
    others = [lane.known[other] for lane in lanes if other is not None and other in lane.known]
    data = tables[0]
    if data is None or data.type.rank == 0 or len(others) < len(lanes) or any(t is not data for t in tables):
        return []
    if node.op == "Gather":
        counts = [int(indices.numpy().max(initial=-1)) + 1 for indices in others]
        return [(data.type.shape[node.attrs.get("axis", 0)], counts)]
    columns = zip(*(rows.type.shape for rows in others), strict=True)
    return [(size, list(column)) for size, column in zip(data.type.shape, columns, strict=True)]


def _symbol(formula: Formula) -> str:
    """Return the symbol that a formula is the sum of with a constant; empty for other formulas."""
    if formula.divisor != 1 or formula.offset or len(formula.terms) != 1:
        return ""
    (term,) = formula.terms
    return term.symbols[0] if term.factor == 1 and len(term.symbols) == 1 else ""
