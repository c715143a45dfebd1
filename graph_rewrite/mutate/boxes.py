"""Boxes: parts of a tensor whose elements are sums over the same interval (PET, OSDI'21, section 5.2, figure 5).

A tensor is cut along each axis at its split points. Inside a box, the terms of an element are the same ones at every
position, and what each term reads moves with the position linearly. More boxes than necessary are sound.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import prod

import numpy as np

from graph_rewrite.layouts import Crop, Fold, Fuse, Pad, Primitive, Reorder, Shape, Split, Unfold
from graph_rewrite.mutate.moves import layout_of
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.mutate.value_types import types_of

Cuts = tuple[tuple[int, ...], ...]
"""Per axis, the first positions of its parts but the first one, sorted: all are above 0 and below the size."""
Box = tuple[tuple[int, int], ...]
"""Per axis, a first position and the one after the last."""


def cuts_of(program: TensorProgram, shapes: Sequence[Shape]) -> list[Cuts]:
    """Return the split points of each output of a program whose inputs have these shapes."""
    types = types_of(program, shapes)
    found: list[Cuts] = [((),) * len(shape) for shape in shapes]
    for number, step in enumerate(program.steps):
        operands = [(types[v].shape, found[v]) for v in step.inputs]
        shape = types[program.count + number].shape
        cuts = _CUTS[step.op](step, operands, shape)
        found.append(tuple(_inside(axis, size) for axis, size in zip(cuts, shape, strict=True)))
    return [found[value] for value in program.outputs]


def joined(a: Cuts, b: Cuts) -> Cuts:
    """Return the split points of both."""
    return tuple(tuple(sorted({*x, *y})) for x, y in zip(a, b, strict=True))


def boxes_of(cuts: Cuts, shape: Shape) -> Iterator[Box]:
    """Return the boxes between split points, in the order of their positions."""
    sides = [list(itertools.pairwise((0, *axis, size))) for axis, size in zip(cuts, shape, strict=True)]
    return itertools.product(*sides)


def volume(box: Box) -> int:
    """Return how many positions a box has."""
    return prod(stop - start for start, stop in box)


def merged(boxes: Iterable[Box]) -> list[Box]:
    """Return fewer boxes that cover the same positions: neighbours of equal sides become one, axis by axis."""
    found = sorted(boxes)
    for axis in reversed(range(len(found[0]) if found else 0)):
        found.sort(key=lambda box, axis=axis: (box[:axis], box[axis + 1 :], box[axis]))  # type: ignore[misc]
        kept: list[Box] = []
        for box in found:
            last = kept[-1] if kept else None
            same = last is not None and (last[:axis], last[axis + 1 :]) == (box[:axis], box[axis + 1 :])
            if last is not None and same and last[axis][1] == box[axis][0]:
                kept[-1] = (*box[:axis], (last[axis][0], box[axis][1]), *box[axis + 1 :])
            else:
                kept.append(box)
        found = kept
    return sorted(found)


Operand = tuple[Shape, Cuts]


def _inside(cuts: Iterable[int], size: int) -> tuple[int, ...]:
    return tuple(sorted({cut for cut in cuts if 0 < cut < size}))


def _crossings(size: int, cuts: Iterable[int], kernel: int, stride: int, dilation: int, pad: int) -> set[int]:
    """Return where a tap of a window steps over a border of the image, or over one of its split points."""
    return {
        -((tap * dilation - pad - border) // stride) for border in (0, *cuts, size) for tap in range(kernel)
    }  # the first i with i * stride - pad + tap * dilation >= border


def _conv(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    (x, cuts), (w, filters) = operands[:2]
    strides, dilations, pads = step.param("strides"), step.param("dilations"), step.param("pads")
    groups = x[1] // w[1]
    channels = {i * (w[0] // groups) for i in range(groups)} | set(filters[0])
    channels.update(*(axis for _, bias in operands[2:] for axis in bias))
    spatial = [
        _crossings(x[2 + i], cuts[2 + i], w[2 + i], strides[i], dilations[i], pads[i]) for i in range(len(x) - 2)
    ]
    return [set(cuts[0]), channels, *spatial]


def _pool(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    ((x, cuts),) = operands
    kernel, strides, pads = step.param("kernel"), step.param("strides"), step.param("pads")
    spatial = [_crossings(x[2 + i], cuts[2 + i], kernel[i], strides[i], 1, pads[i]) for i in range(len(kernel))]
    return [set(cuts[0]), set(cuts[1]), *spatial]


def _elementwise(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    found: list[set[int]] = [set() for _ in shape]
    for operand, cuts in operands:
        for i in range(1, len(operand) + 1):
            found[-i].update(cuts[-i])
    return found


def _matmul(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    (a, left), (b, right) = operands
    batch = _elementwise(step, [(a[:-2], left[:-2]), (b[:-2], right[:-2])], shape[:-2])
    return [*batch, set(left[-2]), set(right[-1])]


def _concat(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    axis = step.param("axis")
    found: list[set[int]] = [set().union(*sides) for sides in zip(*(cuts for _, cuts in operands), strict=True)]
    found[axis], start = set(), 0
    for size, cuts in operands:
        found[axis] |= {start, *(start + cut for cut in cuts[axis])}
        start += size[axis]
    return found


def _fit(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    (x, cuts), _ = operands
    return [{*axis, size} for axis, size in zip(cuts, x, strict=True)]


def _diagonal(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    ((x, cuts),) = operands
    count, source, target = step.param("count"), step.param("source"), step.param("target")
    found = [set(axis) for axis in cuts]
    found[source] |= {i * (x[source] // count) for i in range(count)}
    found[target] = {i * x[target] + cut for i in range(count) for cut in (0, *cuts[target])}
    return found


def _averaging(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    return [set() for _ in shape]


def _constant(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    if len(step.param("numerators")) == 1:
        return [set() for _ in shape]
    numbers = np.array(step.param("numerators"), dtype=object).reshape(shape)
    return [
        {i for i in range(1, size) if (numbers.take(i, axis) != numbers.take(i - 1, axis)).any()}
        for axis, size in enumerate(shape)
    ]


def _layout(step: Step, operands: Sequence[Operand], shape: Shape) -> list[set[int]]:
    ((x, cuts),) = operands
    layout = layout_of(step.chain, x)
    found = [set(axis) for axis in cuts]
    for primitive, before, after in zip(layout.primitives, layout.shapes, layout.shapes[1:], strict=False):
        found = [set(_inside(axis, size)) for axis, size in zip(_moved(primitive, found, before), after, strict=True)]
    return found


def _moved(primitive: Primitive, cuts: list[set[int]], shape: Shape) -> list[set[int]]:
    """Return the split points after a primitive."""
    match primitive:
        case Reorder(perm):
            return [cuts[axis] for axis in perm]
        case Pad(axis, before, _):
            return _with(cuts, axis, [{before, before + shape[axis]} | {before + cut for cut in cuts[axis]}])
        case Crop(axis, before, _):
            return _with(cuts, axis, [{cut - before for cut in cuts[axis]}])
        case Split(axis, sizes):
            return _with(cuts, axis, _digits(cuts[axis], sizes))
        case Fuse(axis, sizes):
            return _with(cuts, axis, [_fused(cuts[axis : axis + len(sizes)], sizes)], len(sizes))
        case Unfold(axis, tile, stride):
            tiles = range((shape[axis] - tile) // stride + 1)
            inner = {cut - t * stride for cut in cuts[axis] for t in tiles}
            return _with(cuts, axis, [set(tiles) if cuts[axis] else set(), inner])
        case Fold(axis, stride):
            return _with(cuts, axis, [{*range(shape[axis] * stride + shape[axis + 1])}], 2)
        case _:
            raise TypeError(f"boxes of {primitive} are not known")


def _with(cuts: list[set[int]], axis: int, new: list[set[int]], old: int = 1) -> list[set[int]]:
    return [*cuts[:axis], *new, *cuts[axis + old :]]


def _digits(cuts: set[int], sizes: Sequence[int]) -> list[set[int]]:
    """Return split points of the axes that one axis becomes: none of a box straddles a cut of the whole."""
    found: list[set[int]] = [set() for _ in sizes]
    for cut in cuts:
        for i, size in reversed(list(enumerate(sizes))):
            cut, digit = divmod(cut, size)
            found[i].add(digit)
            if digit:
                # The axes outside change in the middle of this one: before and after are boxes of their own.
                for outer, rest in _outer_digits(cut, sizes[:i]):
                    found[outer].update((rest, rest + 1))
                break
    return found


def _outer_digits(index: int, sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    for i, size in reversed(list(enumerate(sizes))):
        index, digit = divmod(index, size)
        yield i, digit


def _fused(cuts: list[set[int]], sizes: Sequence[int]) -> set[int]:
    """Return split points of one axis that several become: where any digit but the last one changes, and where the
    last one passes a split point. An axis of one position changes nothing."""
    kept = [(size, part) for size, part in zip(sizes, cuts, strict=True) if size > 1]
    if not kept:
        return set()
    *_, (inner, last) = kept
    count = prod(size for size, _ in kept[:-1])
    return {i * inner + cut for i in range(count) for cut in (0, *last)}


def box_at(cuts: Cuts, position: Sequence[int], shape: Shape) -> Box:
    """Return the box of a position."""
    found = []
    for axis, place, size in zip(cuts, position, shape, strict=True):
        at = bisect_right(axis, place)
        found.append((axis[at - 1] if at else 0, axis[at] if at < len(axis) else size))
    return tuple(found)


_CUTS: dict[str, Callable[[Step, Sequence[Operand], Shape], list[set[int]]]] = {
    "conv": _conv,
    "pool": _pool,
    "matmul": _matmul,
    "add": _elementwise,
    "mul": _elementwise,
    "concat": _concat,
    "fit": _fit,
    "layout": _layout,
    "diagonal": _diagonal,
    "averaging": _averaging,
    "constant": _constant,
}
