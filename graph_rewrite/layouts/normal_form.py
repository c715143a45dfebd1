"""The normal form of a sequence of primitives: neighbours fuse, and inverse groups vanish.

The idea is that of PET (Wang et al., OSDI'21, section 6.3 and figure 7), which removes and fuses Reshapes and
Transposes. Here paddings and tiles take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from graph_rewrite.layouts.primitive import Primitive, Shape
from graph_rewrite.layouts.sizes import Crop, Fold, Pad, Unfold
from graph_rewrite.layouts.view_runs import ViewRun
from graph_rewrite.layouts.views import Fuse, Reorder, Split

_VIEWS = (Split, Fuse, Reorder)
_SIZES = (Pad, Crop)


def normal_form(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    """Return primitives with the same index map on tensors of shape `source`, the same for every sequence that these
    steps lead there:

    1. A primitive and the one that undoes it right after it vanish.
    2. Tiles that do not overlap are a Split, and their Fold is a Fuse.
    3. Neighbouring views become Splits, one Reorder and Fuses, where sizes divide.
    4. A Pad or Crop of an axis that the views before it leave whole, or that is not tiled, moves before them.
    5. Neighbouring Pads and Crops are sorted by axis and added up.
    """
    found = _without_inverses(source, primitives)
    while True:
        before = found
        for step in (_plain_tiles, _plain_views, _early_sizes, _summed_sizes, _without_inverses):
            found = step(source, found)
        if found == before:
            return found


def _without_inverses(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    found: list[Primitive] = []
    shapes = [source]
    for primitive in primitives:
        if found and found[-1].inverse(shapes[-2]) == primitive:
            found.pop()
            shapes.pop()
        else:
            found.append(primitive)
            shapes.append(primitive.result(shapes[-1]))
    return tuple(found)


def _plain_tiles(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    found: list[Primitive] = []
    shape = source
    for primitive in primitives:
        after = primitive.result(shape)
        if isinstance(primitive, Unfold) and primitive.tile in (primitive.stride, shape[primitive.axis]):
            primitive = Split(primitive.axis, after[primitive.axis : primitive.axis + 2])
        elif isinstance(primitive, Fold):
            tiles, tile = shape[primitive.axis : primitive.axis + 2]
            if tiles == 1 or tile == primitive.stride:
                primitive = Fuse(primitive.axis, (tiles, tile))
        found.append(primitive)
        shape = after
    return tuple(found)


def _plain_views(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    found: list[Primitive] = []
    for run in _runs(source, primitives):
        found += run.primitives() if isinstance(run, ViewRun) else [run]
    return tuple(found)


def _runs(source: Shape, primitives: Sequence[Primitive]) -> list[ViewRun | Primitive]:
    """Return the sequence with neighbouring views as one run."""
    found: list[ViewRun | Primitive] = []
    shape = source
    for are_views, group in groupby(primitives, lambda primitive: isinstance(primitive, _VIEWS)):
        members = list(group)
        if are_views:
            run = ViewRun.of(shape, members)
            found.append(run)
            shape = run.target
            continue
        for primitive in members:
            found.append(primitive)
            shape = primitive.result(shape)
    return found


def _early_sizes(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    """Move Pads and Crops before the views, and the tiles of other axes, before them: one run at a time."""
    runs = _runs(source, primitives)
    for i in range(1, len(runs)):
        run, following = runs[i - 1], runs[i]
        if isinstance(run, ViewRun) and isinstance(following, _SIZES):
            axis = run.traced(following.axis)
            if axis is not None:
                size = following.result(run.target)[following.axis]
                moved = type(following)(axis, following.before, following.after)
                runs[i - 1 : i + 1] = [moved, run.resized(axis, following.axis, size)]
        elif isinstance(run, (Unfold, Fold)) and isinstance(following, _SIZES):
            untiled = _untiled(run, following.axis)
            if untiled is not None:
                runs[i - 1 : i + 1] = [type(following)(untiled, following.before, following.after), run]
    found: list[Primitive] = []
    for each in runs:
        found += each.primitives() if isinstance(each, ViewRun) else [each]
    return tuple(found)


def _untiled(primitive: Unfold | Fold, axis: int) -> int | None:
    """Return the axis before tiles were made or joined that is `axis` after it; None where it is one of theirs."""
    if isinstance(primitive, Unfold):
        return axis if axis < primitive.axis else axis - 1 if axis > primitive.axis + 1 else None
    return axis if axis < primitive.axis else axis + 1 if axis > primitive.axis else None


def _summed_sizes(source: Shape, primitives: Sequence[Primitive]) -> tuple[Primitive, ...]:
    found: list[Primitive] = []
    shape = source
    for are_sizes, group in groupby(primitives, lambda primitive: isinstance(primitive, _SIZES)):
        members = list(group)
        if are_sizes:
            axes = sorted({each.axis for each in members if isinstance(each, _SIZES)})
            for axis in axes:
                along = [each for each in members if isinstance(each, _SIZES) and each.axis == axis]
                found += _summed(shape[axis], along)
        else:
            found += members
        for each in members:
            shape = each.result(shape)
    return tuple(found)


def _summed(size: int, members: Sequence[Pad | Crop]) -> list[Pad | Crop]:
    """Return Pads and Crops of one axis of this size as few: a Crop and then a Pad where they can be."""
    found = [each for each in members if each.before or each.after]
    i = 0
    while i + 1 < len(found):
        both = _sum(size + sum(map(_growth, found[:i])), found[i], found[i + 1])
        if both is None:
            i += 1
        else:
            found[i : i + 2] = both
            i = max(i - 1, 0)
    return found


def _growth(each: Pad | Crop) -> int:
    total = each.before + each.after
    return total if isinstance(each, Pad) else -total


def _sum(size: int, first: Pad | Crop, second: Pad | Crop) -> list[Pad | Crop] | None:
    """Return what two do to an axis of this size, in another way; None where there is no better one."""
    axis = first.axis
    if isinstance(first, Pad) and isinstance(second, Crop):
        before, after = first.before - second.before, first.after - second.after
        crop, pad = Crop(axis, max(-before, 0), max(-after, 0)), Pad(axis, max(before, 0), max(after, 0))
        # Where all elements were cropped away, only zeros of the padding are left.
        if crop.before + crop.after >= size:
            return None
        return [each for each in (crop, pad) if each.before or each.after]
    if isinstance(first, Pad) and isinstance(second, Pad):
        return [Pad(axis, first.before + second.before, first.after + second.after)]
    if isinstance(first, Crop) and isinstance(second, Crop):
        return [Crop(axis, first.before + second.before, first.after + second.after)]
    return None
