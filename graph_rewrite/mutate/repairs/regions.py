"""The original's operators on the part of their operands that a box of a result needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.mutate.repairs.draft import Draft
from graph_rewrite.mutate.value_types import types_of

Side = tuple[int, int]
Stacked = tuple[int, bool]
"""A value, and whether it holds the parts of all boxes one after the other along axis 0, or one part for all."""


class CannotSlice(Exception):
    """The boxes cannot be computed by these operators: the reason is the message."""


class Regions:
    """Computes boxes of a program's values in a draft. Several boxes of one shape are computed together, one after the
    other along axis 0, as PET fuses correction kernels (section 5.3).

    Args:
        draft: where steps are added; its inputs are those of the program.
        original: the program.
        shapes: the shapes of its inputs.
    """

    def __init__(self, draft: Draft, original: TensorProgram, shapes: Sequence[Shape]) -> None:
        self._draft, self._program = draft, original
        self._shapes = [type.shape for type in types_of(original, shapes)]
        self._whole: list[int] | None = None

    def boxes(self, value: int, boxes: Sequence[Box]) -> list[int]:
        """Return the values of disjoint boxes of equal shape, computed together.

        Raises:
            CannotSlice: an operator cannot compute them together, or not without computing everything.
        """
        made, stacked = self._part(value, tuple(boxes))
        if not stacked:
            return [made] * len(boxes)
        size = self._draft.shape(made)[0] // len(boxes)
        rest = [(0, side) for side in self._draft.shape(made)[1:]]
        return [self._draft.window(made, ((i * size, (i + 1) * size), *rest)) for i in range(len(boxes))]

    def _part(self, value: int, boxes: tuple[Box, ...]) -> Stacked:
        """Return the boxes of a value. A box may reach beyond the value: zeros are there."""
        shape = self._shapes[value]
        inside = tuple(tuple(_within(side, size) for side, size in zip(box, shape, strict=True)) for box in boxes)
        if any(stop <= start for box in inside for start, stop in box):
            raise CannotSlice("a box needs nothing but zeros of a border")
        if value < self._program.count:
            return self._cut(value, boxes)
        step = self._program.steps[value - self._program.count]
        rule = _RULES.get(step.op)
        found = self._cut(self._all()[value], inside) if rule is None else rule(self, step, shape, inside)
        return found if inside == boxes else self._bordered(found, inside, boxes)

    def _bordered(self, found: Stacked, inside: Sequence[Box], boxes: Sequence[Box]) -> Stacked:
        """Return boxes with the zeros around what is inside the value."""
        value, stacked = found
        offsets = {
            tuple((a - c, b - c) for (a, b), (c, _) in zip(box, part, strict=True))
            for box, part in zip(boxes, inside, strict=True)
        }
        if len(offsets) > 1 or (stacked and boxes[0][0] != inside[0][0]):
            raise CannotSlice("the boxes reach beyond the border in different ways")
        [box] = offsets
        if stacked:
            box = ((0, self._draft.shape(value)[0]), *box[1:])
        return self._draft.window(value, box), stacked

    def _cut(self, value: int, boxes: Sequence[Box]) -> Stacked:
        """Return windows of a value of the draft."""
        if len(set(boxes)) == 1:
            return self._draft.window(value, boxes[0]), False
        return self._draft.joined([self._draft.window(value, box) for box in boxes], 0), True

    def _all(self) -> list[int]:
        """Return all values of the program, computed as a whole."""
        if self._whole is None:
            self._whole = self._draft.include(self._program, range(self._program.count))
        return self._whole

    def conv(self, step: Step, shape: Shape, boxes: tuple[Box, ...]) -> Stacked:
        """Return boxes of a convolution, with the zeros of the border in the operand."""
        x, w = (self._shapes[value] for value in step.inputs[:2])
        groups = x[1] // w[1]
        filters = w[0] // groups
        aligned = boxes
        if groups > 1:
            aligned = tuple((box[0], _outward(box[1], filters), *box[2:]) for box in boxes)
        strides, dilations, pads = step.param("strides"), step.param("dilations"), step.param("pads")
        images: list[Box] = []
        weights: list[Box] = []
        for batch, rows, *sides in aligned:
            channels = (0, x[1]) if groups == 1 else (rows[0] // filters * w[1], rows[1] // filters * w[1])
            images.append((batch, channels, *_windows(sides, w[2:], strides, dilations, pads)))
            weights.append((rows, *((0, size) for size in w[1:])))
        images, zeros = _padded(images, x)
        operands = [self._part(step.inputs[0], tuple(images)), self._part(step.inputs[1], tuple(weights))]
        operands += [self._part(bias, tuple((box[0],) for box in weights)) for bias in step.inputs[2:]]
        if any(stacked for _, stacked in operands[1:]):
            raise CannotSlice("the boxes need different filters")
        made = self._draft.add(
            "conv", *(value for value, _ in operands), strides=strides, dilations=dilations, pads=zeros
        )
        return self._unaligned((made, operands[0][1]), aligned, boxes)

    def _unaligned(self, found: Stacked, outer: Sequence[Box], boxes: Sequence[Box]) -> Stacked:
        """Return what boxes have of larger ones along axis 1."""
        value, stacked = found
        offsets = {(box[1][0] - large[1][0], box[1][1] - large[1][0]) for box, large in zip(boxes, outer, strict=True)}
        if len(offsets) > 1:
            raise CannotSlice("the boxes are different parts of their groups")
        shape = self._draft.shape(value)
        whole = [(0, size) for size in shape]
        return self._draft.window(value, (whole[0], offsets.pop(), *whole[2:])), stacked

    def pool(self, step: Step, shape: Shape, boxes: tuple[Box, ...]) -> Stacked:
        """Return boxes of an average; zeros of the border that do not count stay with the operator."""
        [x] = step.inputs
        kernel, strides, pads = step.param("kernel"), step.param("strides"), step.param("pads")
        ones = (1,) * len(kernel)
        wanted: list[Box] = [(box[0], box[1], *_windows(box[2:], kernel, strides, ones, pads)) for box in boxes]
        zeros = (0,) * len(pads)
        if not step.param("counted"):
            wanted, zeros = _padded(wanted, self._shapes[x])
            sides = [each for box in wanted for each in zip(box[2:], self._shapes[x][2:], strict=True)]
            if any(_beyond(side, size) != (0, 0) for side, size in sides):
                raise CannotSlice("the boxes reach beyond the border in different ways")
        value, stacked = self._part(x, tuple(wanted))
        made = self._draft.add("pool", value, kernel=kernel, strides=strides, pads=zeros, counted=step.param("counted"))
        return made, stacked

    def elementwise(self, step: Step, shape: Shape, boxes: tuple[Box, ...]) -> Stacked:
        """Return boxes of a sum or product with broadcasting."""
        parts = []
        for value in step.inputs:
            sizes = self._shapes[value]
            wanted = tuple(tuple(_of(side, size) for side, size in _tail(box, sizes)) for box in boxes)
            parts.append(self._part(value, wanted))
        return self._stack(step, parts, len(shape))

    def matmul(self, step: Step, shape: Shape, boxes: tuple[Box, ...]) -> Stacked:
        """Return boxes of a product of matrices: of rows, of columns, of a batch."""
        parts = []
        for place, value in enumerate(step.inputs):
            sizes = self._shapes[value]
            last = (lambda box, n: (box[-2], (0, n[-1])), lambda box, n: ((0, n[-2]), box[-1]))[place]
            wanted = tuple(
                (*(_of(side, size) for side, size in _tail(box[:-2], sizes[:-2])), *last(box, sizes)) for box in boxes
            )
            parts.append(self._part(value, wanted))
        if len(shape) == 2 and parts[1][1]:
            raise CannotSlice("the boxes need different columns")
        return self._stack(step, parts, len(shape), matrix=len(shape) == 2)

    def _stack(self, step: Step, parts: Sequence[Stacked], rank: int, matrix: bool = False) -> Stacked:
        """Apply an operator that pairs the positions of its operands along axis 0, or, to a `matrix`, does not."""
        stacked = any(each for _, each in parts)
        shapes = [self._draft.shape(value) for value, _ in parts]
        if stacked and not matrix:
            for shape, (_, each) in zip(shapes, parts, strict=True):
                if (each and len(shape) < rank) or (not each and len(shape) == rank and shape[0] > 1):
                    raise CannotSlice("the boxes share an operand that has a batch")
            if len({shape[0] for shape, (_, each) in zip(shapes, parts, strict=True) if each}) > 1:
                raise CannotSlice("the operands of the boxes have different batches")
        return self._draft.add(step.op, *(value for value, _ in parts), **dict(step.params)), stacked

    def concat(self, step: Step, shape: Shape, boxes: tuple[Box, ...]) -> Stacked:
        """Return boxes of tensors one after the other: of one of them, or of both."""
        axis = step.param("axis")
        if len({box[axis] for box in boxes}) > 1:
            raise CannotSlice("the boxes are different parts of what is joined")
        low, high = boxes[0][axis]
        parts, start = [], 0
        for value in step.inputs:
            size = self._shapes[value][axis]
            side = _within((low - start, high - start), size)
            start += size
            if side[0] < side[1]:
                parts.append(self._part(value, tuple((*box[:axis], side, *box[axis + 1 :]) for box in boxes)))
        if len(parts) == 1:
            return parts[0]
        if len({stacked for _, stacked in parts}) > 1 or (axis == 0 and parts[0][1]):
            raise CannotSlice("parts of the batch are joined, or the same one to all boxes")
        return self._draft.joined([value for value, _ in parts], axis), parts[0][1]


def _windows(
    sides: Sequence[Side], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], pads: Sequence[int]
) -> list[Side]:
    """Return what windows at some positions read, along each spatial axis; it may reach beyond the border."""
    return [
        (start * s - pad, (stop - 1) * s - pad + d * (k - 1) + 1)
        for (start, stop), k, s, d, pad in zip(sides, kernel, strides, dilations, pads, strict=False)
    ]


def _padded(boxes: Sequence[Box], shape: Shape) -> tuple[list[Box], tuple[int, ...]]:
    """Return boxes of an image without the zeros beyond its border, and these as pads, along each spatial axis where
    they are the same for all boxes. Along others they stay in the boxes."""
    rank = len(shape) - 2
    pads = [0] * (2 * rank)
    result = [list(box) for box in boxes]
    for axis in range(2, 2 + rank):
        beyond = {_beyond(box[axis], shape[axis]) for box in boxes}
        inside = [_within(box[axis], shape[axis]) for box in boxes]
        if len(beyond) == 1 and all(start < stop for start, stop in inside):
            pads[axis - 2], pads[rank + axis - 2] = beyond.pop()
            for box, side in zip(result, inside, strict=True):
                box[axis] = side
    return [tuple(box) for box in result], tuple(pads)


def _beyond(side: Side, size: int) -> Side:
    """Return how far a side reaches beyond an axis, before and after it."""
    return max(-side[0], 0), max(side[1] - size, 0)


def _within(side: Side, size: int) -> Side:
    return max(side[0], 0), min(side[1], size)


def _outward(side: Side, step: int) -> Side:
    return side[0] // step * step, -(-side[1] // step) * step


def _of(side: Side, size: int) -> Side:
    """Return what an operand of this size has of a side of the result: all of it where it is broadcast."""
    return (0, 1) if size == 1 else side


def _tail(box: Sequence[Side], sizes: Shape) -> list[tuple[Side, int]]:
    return list(zip(box[len(box) - len(sizes) :], sizes, strict=True))


_RULES: dict[str, Callable[[Regions, Step, Shape, tuple[Box, ...]], Stacked]] = {
    "conv": Regions.conv,
    "pool": Regions.pool,
    "add": Regions.elementwise,
    "mul": Regions.elementwise,
    "matmul": Regions.matmul,
    "concat": Regions.concat,
}
