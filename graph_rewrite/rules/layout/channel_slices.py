"""Slices that keep the first channels of an image, and constants padded for them: helpers of `channel_padding`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rules.helpers.element_types import numpy_dtype
from graph_rewrite.rules.helpers.slices import slice_ranges, take

KEEPS_OTHER_CHANNELS = Refusal("the Slice does not keep the first channels, all of the rest")


def keeps_first_channels(m: Match, kept: Ref, x: Ref, bounds: Sequence[Ref]) -> bool:
    """Tell whether a Slice keeps channels 0, 1, ... of an image x, and all of the other axes."""
    if x.rank < 3 or len(bounds) < 2:
        return False
    ranges = slice_ranges(x, *(*bounds, None, None)[:4])  # type: ignore[arg-type]
    if isinstance(ranges, Refusal):
        return False
    whole = all(r == range(x.shape[axis]) for axis, r in ranges.items() if axis != 1)
    return whole and ranges.get(1) == range(kept.shape[1]) and kept.shape[1] > 0


def first_channels(op: ReplacementBuilder, x: Ref, channels: int) -> Ref:
    return take(op, x, {1: range(channels)})


def padded_constant(op: ReplacementBuilder, x: Ref, axis: int, more: int, value: float = 0.0) -> Ref:
    """Return a constant with `more` elements of `value` after its last along an axis."""
    if more == 0:
        return x
    after = [more if i == axis else 0 for i in range(x.rank)]
    filling = None if value == 0.0 else op.constant(np.array(value, dtype=numpy_dtype(x)))
    result: Ref = op.Pad(x, op.ints(*(0,) * x.rank, *after), filling)
    return result


def sliced_operand(m: Match, kept: Ref) -> Ref | None:
    """Return the operand of the Slice that keeps a value as its first channels; None where no such Slice makes it."""
    node = m.producer(kept)
    if node is None or node.op != "Slice" or node.domain or any(v is None for v in node.inputs):
        return None
    values = [v for v in node.inputs if v is not None]
    if any(m.graph.types[v] is None for v in values):
        return None
    x, *bounds = (m.ref(v) for v in values)
    return x if keeps_first_channels(m, kept, x, bounds) else None
