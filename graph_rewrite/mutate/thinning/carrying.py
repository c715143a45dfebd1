"""Programs and boxes for inputs with more or fewer channels: what counts positions along them counts in proportion."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import prod

import numpy as np

from graph_rewrite.layouts import Crop, Fold, Fuse, Pad, Reorder, Shape, Split, Unfold
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.moves import Chain, DoesNotFit, LayoutMove, Move, Tiles, Window, layout_of
from graph_rewrite.mutate.program import Step, TensorProgram, step
from graph_rewrite.mutate.value_types import ValueType, input_types, type_of, types_of

_LARGEST_CONSTANT = 1 << 16
"""Elements of a constant that varies, as in a mask."""


def carried(program: TensorProgram, source: Sequence[Shape], target: Sequence[Shape]) -> TensorProgram:
    """Return a program for inputs of other sizes along some axes. Moves have no sizes, and stay; windows, paddings and
    masks get sizes in the ratio of the axis.

    Args:
        program: the program.
        source: the shapes of its inputs.
        target: the other shapes, of the same ranks.

    Raises:
        DoesNotFit: a size is no whole number there, or a step does not take its operands.
        LayoutError: a layout does not fit.
    """
    before = types_of(program, source)
    if tuple(source) == tuple(target):
        return program
    after = input_types(target)
    steps: list[Step] = []
    for number, each in enumerate(program.steps):
        if each.op == "layout":
            [value] = each.inputs
            each = step("layout", value, chain=_chain(each.chain, before[value].shape, after[value].shape))
        elif each.op == "constant":
            each = _constant(each, _constant_shape(program, program.count + number, before, after))
        steps.append(each)
        after.append(type_of(each, [after[value] for value in each.inputs]))
    return TensorProgram(program.count, tuple(steps), program.outputs)


def carried_box(box: Box, source: Shape, target: Shape) -> Box:
    """Return a box of an output of another shape.

    Raises:
        DoesNotFit: a side is no whole number there.
    """
    axes = zip(box, source, target, strict=True)
    return tuple((_scaled(start, old, new), _scaled(stop, old, new)) for (start, stop), old, new in axes)


def _chain(chain: Chain, source: Shape, target: Shape) -> Chain:
    """Return moves of a value for one of another shape."""
    found: list[LayoutMove] = []
    for move in chain:
        other = _move(move, source, target)
        found.append(other)
        source, target = layout_of((move,), source).shape, layout_of((other,), target).shape
    return tuple(found)


def _move(move: LayoutMove, source: Shape, target: Shape) -> LayoutMove:
    """Return a move with the sizes that it has at another shape.

    Raises:
        DoesNotFit: it has none.
    """
    match move:
        case Move() | Tiles() | Reorder():
            return move
        case Window(start, size):
            if len(size) != len(source):
                raise DoesNotFit(f"{move} at {source}")
            return Window(_all_scaled(start, source, target), _all_scaled(size, source, target))
        case Pad(axis, before, after) | Crop(axis, before, after):
            old, new = source[axis], target[axis]
            return type(move)(axis, _scaled(before, old, new), _scaled(after, old, new))
        case Fuse(axis, sizes):
            return Fuse(axis, target[axis : axis + len(sizes)])
        case Split() | Unfold() | Fold():
            # Splits, tiles and folds have sizes of their own: what they are applied to must stay as large.
            axes = range(move.axis, move.axis + (2 if isinstance(move, Fold) else 1))
            if any(source[axis] != target[axis] for axis in axes):
                raise DoesNotFit(f"{move} at {target}")
            return move
        case _:
            raise TypeError(f"{move} has no known form at other sizes")


def _all_scaled(numbers: Sequence[int], source: Shape, target: Shape) -> tuple[int, ...]:
    return tuple(_scaled(number, old, new) for number, old, new in zip(numbers, source, target, strict=True))


def _scaled(number: int, old: int, new: int) -> int:
    found = Fraction(number * new, old)
    if found.denominator != 1:
        raise DoesNotFit(f"{number} of {old} is no whole number of {new}")
    return int(found)


def _constant_shape(
    program: TensorProgram, value: int, before: Sequence[ValueType], after: Sequence[ValueType]
) -> Shape:
    """Return the shape that a constant has at the other sizes: that of a factor or term beside a value it is applied
    to, or else that of the input whose shape it has."""
    shape = before[value].shape
    if prod(shape) == 1:
        return shape
    for each in program.steps:
        if each.op in ("add", "mul") and value in each.inputs:
            others = [v for v in each.inputs if v != value and v < len(after) and len(before[v].shape) >= len(shape)]
            if others:
                return _beside(shape, before[others[0]].shape, after[others[0]].shape)
    likely = {after[v].shape for v in range(program.count) if before[v].shape == shape}
    if len(likely) != 1:
        raise DoesNotFit(f"a constant of {shape}, whose part is not known")
    return likely.pop()


def _beside(shape: Shape, source: Shape, target: Shape) -> Shape:
    rank = len(shape)
    axes = zip(shape, source[len(source) - rank :], target[len(target) - rank :], strict=True)
    return tuple(1 if size == 1 else _scaled(size, old, new) for size, old, new in axes)


def _constant(each: Step, shape: Shape) -> Step:
    """Return a constant in another shape: each number stands for as many positions as the ratio of an axis tells."""
    own, numbers = each.param("shape"), each.param("numerators")
    if own == shape:
        return each
    if len(numbers) > 1:
        array = np.array(numbers, dtype=object).reshape(own)
        for axis, (old, new) in enumerate(zip(own, shape, strict=True)):
            if new % old:
                raise DoesNotFit(f"a constant of {own} as one of {shape}")
            array = np.repeat(array, new // old, axis)
        if array.size > _LARGEST_CONSTANT:
            raise DoesNotFit(f"a constant of {shape} is too large")
        numbers = tuple(array.reshape(-1).tolist())
    params = {**dict(each.params), "shape": shape, "numerators": numbers}
    return step("constant", *each.inputs, **params)
