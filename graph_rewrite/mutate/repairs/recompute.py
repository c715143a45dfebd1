"""Recompute: the wrong boxes are computed by the original's operators, and put in place.

These are PET's correction kernels (section 5.2, step 3), fused where boxes have one shape (section 5.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, product

import numpy as np

from graph_rewrite.layouts import LayoutError
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.repairs.draft import Draft, reduced
from graph_rewrite.mutate.repairs.regions import CannotSlice, Regions
from graph_rewrite.mutate.repairs.repair import Cost, Repair, RepairCase, cheapest
from graph_rewrite.rewriting.rule import Refusal

MOST_BOXES = 64
"""Boxes of an output beyond which nothing is computed again."""
_LARGEST_MASK = 1 << 16
"""Elements of a mask."""

Patch = tuple[Box, int]
"""A box of an output, and the value of the draft that belongs there."""
Placement = Callable[[Draft, int, Sequence[Patch]], int]
"""Puts patches into a value."""


def recompute_repair(case: RepairCase, cost: Cost) -> Repair | Refusal:
    """Return the mutant with its wrong boxes computed by the original's operators, in the cheapest of several ways:
    boxes of one shape together or each alone, and joined with the rest or added to it where it is masked."""
    if not any(case.wrong):
        return Refusal("nothing is wrong")
    if any(len(boxes) > MOST_BOXES for boxes in case.wrong):
        return Refusal(f"more than {MOST_BOXES} boxes are wrong")
    found: list[TensorProgram] = []
    reasons: dict[str, None] = {}
    for together, place in product((True, False), (by_joining, by_adding)):
        try:
            found.append(recomputed(case, together, place))
        except (CannotSlice, DoesNotFit, LayoutError) as error:
            reasons[str(error)] = None
    return cheapest("recompute", found, cost, "; ".join(reasons))


def recomputed(case: RepairCase, together: bool, place: Placement) -> TensorProgram:
    """Return the mutant with its wrong boxes computed by the original's operators, those of one shape `together` where
    that can be.

    Raises:
        CannotSlice: the boxes cannot be computed or placed in this way.
    """
    draft = Draft(case.shapes)
    values = draft.include(case.mutant, range(case.mutant.count))
    regions = Regions(draft, case.original, case.shapes)
    outputs = []
    for own, wanted, boxes in zip(case.mutant.outputs, case.original.outputs, case.wrong, strict=True):
        patches: list[Patch] = []
        for group in _alike(boxes) if together else [[box] for box in boxes]:
            patches += _patched(regions, wanted, group)
        outputs.append(place(draft, values[own], patches) if patches else values[own])
    return draft.finish(outputs)


def _patched(regions: Regions, value: int, group: Sequence[Box]) -> list[Patch]:
    """Return the patches of boxes of one shape: computed together, or else each alone."""
    try:
        return list(zip(group, regions.boxes(value, group), strict=True))
    except CannotSlice:
        if len(group) == 1:
            raise
        return [(box, regions.boxes(value, [box])[0]) for box in group]


def by_joining(draft: Draft, value: int, patches: Sequence[Patch]) -> int:
    """Return a value with patches in it: cut at their borders, and joined again.

    Raises:
        CannotSlice: no straight cut passes between the patches.
    """
    return _joined(draft, value, tuple((0, size) for size in draft.shape(value)), patches)


def _joined(draft: Draft, value: int, region: Box, patches: Sequence[Patch]) -> int:
    if not patches:
        return draft.window(value, region)
    if len(patches) == 1 and patches[0][0] == region:
        return patches[0][1]
    cuts = min((each for each in _cuts(region, patches) if each[1]), key=lambda each: len(each[1]), default=None)
    if cuts is None:
        raise CannotSlice("no straight cut passes between the boxes")
    axis, places = cuts
    parts = []
    for side in pairwise((region[axis][0], *places, region[axis][1])):
        inside = [patch for patch in patches if side[0] <= patch[0][axis][0] and patch[0][axis][1] <= side[1]]
        parts.append(_joined(draft, value, (*region[:axis], side, *region[axis + 1 :]), inside))
    return draft.joined(parts, axis)


def _cuts(region: Box, patches: Sequence[Patch]) -> Iterator[tuple[int, list[int]]]:
    """Yield, per axis, the borders of patches inside a region that run through no patch."""
    for axis, (low, high) in enumerate(region):
        sides = [box[axis] for box, _ in patches]
        borders = sorted({border for side in sides for border in side if low < border < high})
        yield axis, [b for b in borders if not any(start < b < stop for start, stop in sides)]


def by_adding(draft: Draft, value: int, patches: Sequence[Patch]) -> int:
    """Return a value with patches in it: zero there by a mask, and the patches added with zeros around them.

    Raises:
        CannotSlice: the mask would be too large.
    """
    shape = draft.shape(value)
    kept = np.ones(shape, dtype=np.int64)
    for box, _ in patches:
        kept[tuple(slice(start, stop) for start, stop in box)] = 0
    kept = reduced(kept)
    if kept.size > _LARGEST_MASK:
        raise CannotSlice("a mask of the boxes would be too large")
    result = draft.add("mul", value, draft.constant(value, kept))
    for box, patch in patches:
        around = tuple((-start, size - start) for (start, _), size in zip(box, shape, strict=True))
        result = draft.add("add", result, draft.window(patch, around))
    return result


def _alike(boxes: Sequence[Box]) -> list[list[Box]]:
    """Return the boxes in groups of one shape."""
    groups: dict[tuple[int, ...], list[Box]] = {}
    for box in boxes:
        groups.setdefault(tuple(stop - start for start, stop in box), []).append(box)
    return list(groups.values())
