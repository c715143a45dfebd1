"""Moves of whole rows, put together in one Gather.

Windows of an image that is rolled, as in Swin (Liu et al., "Swin Transformer", ICCV 2021, section 3.2), are two Splits,
two Concats and a Transpose: each copies all of it. They only move rows of channels, as a Gather does in one copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.algebra.elimination_shape import RESHAPES
from graph_rewrite.rules.helpers.axes import permutation, reshape
from graph_rewrite.rules.helpers.constants import ints, is_readable
from graph_rewrite.rules.helpers.slices import slice_ranges

COPIES = frozenset({"Concat", "Gather", "Slice", "Split", "Transpose"})
"""Operators that move elements."""
MOST_MOVES = 40
"""Most operators that are put together."""
LARGEST = 1 << 23
"""Elements of the largest value whose moves are followed one by one."""

Places = NDArray[np.int64]
"""For each element of a value, where it lies in the value that all moves begin with."""


class MovesAsGather(Rule):
    """f(x) = Reshape(Gather(Reshape(x, [n, b]), rows)) where f is made of Reshape, Transpose, Slice, Split, Concat and
    Gather of constant indices, and moves whole rows of b elements"""

    family = "structure"
    least_row: int = 16
    """Elements of a row below which a copy of each by itself takes longer than moving them together."""

    @property
    def at_any_size(self) -> MovesAsGather:
        small = MovesAsGather()
        small.least_row = 1
        return small

    def source(self, op: PatternBuilder, operands: Values) -> Any:
        return op.any_of(RESHAPES | COPIES - {"Split"})(operands, _label="end")

    def check(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        readers = m.consumers(m.root())
        if readers and not m.is_output(m.root()) and all(_is_move(m, reader) for reader in readers):
            return Refusal("the moves go on")
        moves = _moves(m)
        if _copies(moves) < 2:
            return Refusal("there is one copy at most already")
        sources = _sources(moves)
        if len(sources) != 1:
            return Refusal("the moves begin with several values")
        (source,) = sources
        return Refusal("the value is too large to be followed") if m.ref(source).type.size > LARGEST else None

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...]) -> Any:
        moves = _moves(m)
        (source,) = _sources(moves)
        x, end = m.ref(source), m.root()
        places = _places(m, moves, x).reshape(-1)
        if not places.size:
            return Refusal("there is nothing to move")
        row = row_length(places, x.type.size)
        if row < self.least_row:
            return Refusal(f"rows of {row} elements are moved")
        rows = places[::row] // row
        if np.array_equal(rows, np.arange(x.type.size // row)):
            return reshape(op, x, end.shape)
        return reshape(op, op.Gather(reshape(op, x, (-1, row)), op.constant(rows), axis=0), end.shape)


def row_length(places: Places, size: int) -> int:
    """Return the number of elements in the longest rows that are moved as a whole.

    Args:
        places: where each element lies in the value that it comes from, one axis.
        size: number of elements of that value.
    """
    begins = np.concatenate(([0], np.flatnonzero(np.diff(places) != 1) + 1))
    return int(np.gcd.reduce([*begins, *places[begins], places.size, size]))


def _is_move(m: Match, node: Node) -> bool:
    """Return whether an operator moves elements, in a way that is known."""
    if node.domain or node.opaque or (node.op not in COPIES and node.op not in RESHAPES):
        return False
    if any(value is not None and m.graph.types[value] is None for value in (*node.inputs, *node.outputs)):
        return False
    others = [m.ref(value) for value in node.inputs[1:] if value is not None]
    if node.op == "Gather":
        (indices,) = others
        return indices.constant is not None and is_readable(indices.constant)
    # Before opset 10 the ranges of Slice were attributes.
    return node.op != "Slice" or (len(others) >= 2 and all(ints(other) is not None for other in others))


def _data(node: Node) -> tuple[int, ...]:
    """Return the operands whose elements are moved."""
    operands = node.inputs if node.op == "Concat" else node.inputs[:1]
    return tuple(value for value in operands if value is not None)


def _moves(m: Match) -> list[Node]:
    """Return the moves that end at the root of a match and that nothing else reads from, the last one first."""
    found = [m.node("end")] if _is_move(m, m.node("end")) else []
    open_values = [value for node in found for value in _data(node)]
    while open_values and len(found) < MOST_MOVES:
        maker = m.producer(m.ref(open_values.pop()))
        if maker is None or maker.id in {node.id for node in found} or not _is_move(m, maker):
            continue
        if all(_is_inside(m, m.ref(value), found) for value in maker.outputs):
            found.append(maker)
            # An operand that another operator reads too is looked at again when that one is inside.
            open_values += [value for node in found for value in _data(node)]
    return found


def _is_inside(m: Match, value: Ref, found: list[Node]) -> bool:
    """Return whether nothing reads a value but these operators."""
    return not m.is_output(value) and {reader.id for reader in m.consumers(value)} <= {node.id for node in found}


def _copies(moves: list[Node]) -> int:
    """Return how often moves copy their value. Transposes in a row count once, since they are one."""
    found = [node for node in moves if node.op in COPIES]
    made = {value for node in found if node.op == "Transpose" for value in node.outputs}
    return sum(node.op != "Transpose" or node.inputs[0] not in made for node in found)


def _sources(moves: list[Node]) -> set[int]:
    """Return the values that moves begin with."""
    made = {value for node in moves for value in node.outputs}
    return {value for node in moves for value in _data(node)} - made


def _places(m: Match, moves: list[Node], x: Ref) -> Places:
    """Return, for each element of the end of the moves, where it lies in their beginning."""
    assert x.external is not None
    known: dict[int, Places] = {x.external: np.arange(x.type.size, dtype=np.int64).reshape(x.shape)}
    left = list(moves)
    while left:
        node = next(node for node in reversed(left) if all(value in known for value in _data(node)))
        left.remove(node)
        known.update(zip(node.outputs, _moved(m, node, [known[value] for value in _data(node)]), strict=True))
    return known[moves[0].outputs[0]]


def _moved(m: Match, node: Node, operands: list[Places]) -> Iterator[Places]:
    """Yield the outputs of a move."""
    x, others = operands[0], [None if value is None else m.ref(value) for value in node.inputs[1:]]
    if node.op == "Transpose":
        yield x.transpose(permutation(node.attrs.get("perm"), x.ndim))
    elif node.op == "Concat":
        yield np.concatenate(operands, axis=node.attrs["axis"])
    elif node.op == "Gather":
        assert others[0] is not None
        yield np.take(x, others[0].numpy(), axis=node.attrs.get("axis", 0))
    elif node.op == "Slice":
        starts, ends, axes, steps = (*others, None, None)[:4]
        assert starts is not None
        assert ends is not None
        ranges = slice_ranges(m.ref(_data(node)[0]), starts, ends, axes, steps)
        assert not isinstance(ranges, Refusal)
        for axis, kept in ranges.items():
            x = np.take(x, np.array(kept, dtype=np.int64), axis=axis)
        yield x
    elif node.op == "Split":
        axis = node.attrs.get("axis", 0)
        sizes = [m.ref(value).shape[axis] for value in node.outputs]
        yield from np.split(x, np.cumsum(sizes)[:-1], axis=axis)
    else:
        yield x.reshape(m.ref(node.outputs[0]).shape)


RULES = (MovesAsGather,)
