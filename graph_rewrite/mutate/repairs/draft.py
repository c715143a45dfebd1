"""A program in the making: steps with their shapes, each step once."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.moves import LayoutMove, Window
from graph_rewrite.mutate.program import Step, TensorProgram, step
from graph_rewrite.mutate.value_types import input_types, type_of


class Draft:
    """Collect steps over inputs of given shapes. Values are numbered as in a `TensorProgram`.

    Methods raise `DoesNotFit` or `LayoutError` where a step does not take its operands.
    """

    def __init__(self, shapes: Sequence[Shape]) -> None:
        self._count = len(shapes)
        self._types = input_types(shapes)
        self._steps: list[Step] = []
        self._known: dict[Step, int] = {}

    def shape(self, value: int) -> Shape:
        """Return the shape of a value."""
        return self._types[value].shape

    def add(self, op: str, *inputs: int, **params: Any) -> int:
        """Add an operator, and return the value that it computes."""
        return self.add_step(step(op, *inputs, **params))

    def add_step(self, made: Step) -> int:
        """Add a step, and return the value that it computes."""
        if made not in self._known:
            self._types.append(type_of(made, [self._types[value] for value in made.inputs]))
            self._steps.append(made)
            self._known[made] = self._count + len(self._steps) - 1
        return self._known[made]

    def include(self, program: TensorProgram, inputs: Sequence[int]) -> list[int]:
        """Add all steps of a program over these values, and return all its values, inputs first."""
        values = list(inputs)
        for each in program.steps:
            values.append(self.add_step(Step(each.op, tuple(values[v] for v in each.inputs), each.params)))
        return values

    def layout(self, value: int, *moves: LayoutMove) -> int:
        """Add moves of a value; none add nothing."""
        return self.add("layout", value, chain=moves) if moves else value

    def as_one_layout(self, value: int) -> int:
        """Return a value that layouts in a row compute, by one layout."""
        chain: tuple[LayoutMove, ...] = ()
        while value >= self._count and self._steps[value - self._count].op == "layout":
            made = self._steps[value - self._count]
            chain, value = made.chain + chain, made.inputs[0]
        return self.layout(value, *chain)

    def window(self, value: int, box: Box) -> int:
        """Return the part of a value in a box, which may reach beyond it: zeros are there."""
        if all(side == (0, size) for side, size in zip(box, self.shape(value), strict=True)):
            return value
        return self.layout(value, Window(tuple(a for a, _ in box), tuple(b - a for a, b in box)))

    def constant(self, like: int, numbers: np.ndarray[Any, Any]) -> int:
        """Return a constant of integers or fractions, of the element type of a value."""
        alike = numbers.size > 1 and (numbers == numbers.reshape(-1)[0]).all()
        fractions = [Fraction(number) for number in numbers.reshape(-1)[: 1 if alike else None].tolist()]
        denominator = lcm(*(number.denominator for number in fractions))
        numerators = tuple(int(number * denominator) for number in fractions)
        shape = tuple(map(int, numbers.shape))
        return self.add("constant", like, shape=shape, numerators=numerators, denominator=denominator)

    def joined(self, values: Sequence[int], axis: int) -> int:
        """Return values one after the other along an axis."""
        return values[0] if len(values) == 1 else self.add("concat", *values, axis=axis)

    def finish(self, outputs: Sequence[int]) -> TensorProgram:
        """Return the program that computes these values, without steps that they do not need."""
        return TensorProgram(self._count, tuple(self._steps), tuple(outputs)).live()


def reduced(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with size 1 along every axis on which it does not depend."""
    for axis in range(numbers.ndim):
        first = numbers.take([0], axis=axis)
        if (numbers == first).all():
            numbers = first
    return numbers
