"""Slices as ranges of indices."""

from __future__ import annotations

from collections.abc import Mapping

from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rules.helpers.constants import ints


def slice_ranges(x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None) -> dict[int, range] | Refusal:
    """Return what Slice takes of each axis it names, as ranges of indices; a Refusal where that is not constant."""
    begin, end = ints(starts), ints(ends)
    which = tuple(range(len(begin or ()))) if axes is None else ints(axes)
    step = (1,) * len(begin or ()) if steps is None else ints(steps)
    if begin is None or end is None or which is None or step is None:
        return Refusal("the bounds of the slice are not constants")
    found: dict[int, range] = {}
    for axis, first, last, stride in zip(which, begin, end, step, strict=True):
        dim = x.shape[axis % x.rank]
        found[axis % x.rank] = range(dim)[first:last:stride]
    return found


def take(op: ReplacementBuilder, x: Ref, ranges: Mapping[int, range]) -> Ref:
    """Return the slice of x with the given range of indices per axis; x itself where the ranges cover it."""
    used = {axis: r for axis, r in sorted(ranges.items()) if r != range(x.shape[axis])}
    if not used:
        return x
    # A range that runs down to index 0 ends before it, which only a number below -dim can say.
    stops = [r.stop if r.stop >= 0 else -x.shape[axis] - 1 for axis, r in used.items()]
    steps = [r.step for r in used.values()]
    result: Ref = op.Slice(
        x, op.ints(*(r.start for r in used.values())), op.ints(*stops), op.ints(*used),
        None if set(steps) == {1} else op.ints(*steps),
    )  # fmt: skip
    return result
