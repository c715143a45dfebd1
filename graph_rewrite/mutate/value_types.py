"""Types of values in a program: shapes, and the inputs that are multiplied in each of their terms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import DoesNotFit, layout_of
from graph_rewrite.mutate.program import Step, TensorProgram

Monomial = tuple[int, ...]
"""Inputs that are multiplied with each other, sorted; an input's own elements are no part of it."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A shape, and the monomials that its elements may have. No monomial: a constant."""

    shape: Shape
    monomials: frozenset[Monomial]

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def degree(self) -> int:
        """The degree of the elements as polynomials of the inputs' elements."""
        return max(map(len, self.monomials), default=0)


def input_types(shapes: Sequence[Shape]) -> list[ValueType]:
    """Return the types of inputs of these shapes."""
    return [ValueType(tuple(shape), frozenset([(number,)])) for number, shape in enumerate(shapes)]


def types_of(program: TensorProgram, shapes: Sequence[Shape]) -> list[ValueType]:
    """Return the types of all values of a program: of its inputs, then of its steps.

    Raises:
        DoesNotFit: a step does not take its operands.
    """
    found = input_types(shapes)
    for step in program.steps:
        found.append(type_of(step, [found[value] for value in step.inputs]))
    return found


def type_of(step: Step, operands: Sequence[ValueType]) -> ValueType:
    """Return the type that a step gives.

    Raises:
        DoesNotFit: the step does not take these operands.
    """
    shape = _SHAPES[step.op](step, [operand.shape for operand in operands])
    if min(shape, default=1) < 1:
        raise DoesNotFit(f"{step.op} gives {shape}")
    return ValueType(shape, _monomials(step, [operand.monomials for operand in operands]))


def _monomials(step: Step, operands: list[frozenset[Monomial]]) -> frozenset[Monomial]:
    if step.op in ("averaging", "constant"):
        return frozenset([()])
    if step.op == "fit":
        return operands[0]
    if step.op in ("conv", "matmul", "mul"):
        first, second, *bias = operands
        products = frozenset(tuple(sorted((*a, *b))) for a in first for b in second)
        return products.union(*bias)
    return frozenset().union(*operands)


def window_count(size: int, kernel: int, stride: int, dilation: int, pads: int) -> int:
    """Return how many windows there are along an axis; 0 or less where none fits."""
    return (size + pads - dilation * (kernel - 1) - 1) // stride + 1


def _conv(step: Step, shapes: list[Shape]) -> Shape:
    x, w = shapes[:2]
    strides, dilations, pads = step.param("strides"), step.param("dilations"), step.param("pads")
    rank = len(x) - 2
    if rank < 1 or len(w) != len(x) or len(strides) != rank or x[1] % w[1] or w[0] % (x[1] // w[1]):
        raise DoesNotFit(f"conv of {x} and {w}")
    if len(shapes) == 3 and shapes[2] != (w[0],):
        raise DoesNotFit(f"conv of {x} and {w} with a bias of {shapes[2]}")
    sizes = [window_count(x[2 + i], w[2 + i], strides[i], dilations[i], pads[i] + pads[rank + i]) for i in range(rank)]
    return (x[0], w[0], *sizes)


def _pool(step: Step, shapes: list[Shape]) -> Shape:
    (x,) = shapes
    kernel, strides, pads = step.param("kernel"), step.param("strides"), step.param("pads")
    rank = len(x) - 2
    if rank != len(kernel) or any(max(pads[i], pads[rank + i]) >= kernel[i] for i in range(rank)):
        raise DoesNotFit(f"pool of {x}")
    return (*x[:2], *(window_count(x[2 + i], kernel[i], strides[i], 1, pads[i] + pads[rank + i]) for i in range(rank)))


def _matmul(step: Step, shapes: list[Shape]) -> Shape:
    a, b = shapes
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise DoesNotFit(f"matmul of {a} and {b}")
    return (*_broadcast([a[:-2], b[:-2]]), a[-2], b[-1])


def _broadcast(shapes: Sequence[Shape]) -> Shape:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise DoesNotFit(str(error)) from error


def _concat(step: Step, shapes: list[Shape]) -> Shape:
    axis, first = step.param("axis"), shapes[0]
    if axis >= len(first) or len({(len(s), s[:axis], s[axis + 1 :]) for s in shapes}) > 1:
        raise DoesNotFit(f"concat of {shapes} along {axis}")
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _fit(step: Step, shapes: list[Shape]) -> Shape:
    a, b = shapes
    if len(a) != len(b) or a == b or any(x > y for x, y in zip(a, b, strict=True)):
        raise DoesNotFit(f"fit of {a} to {b}")
    return b


def _diagonal(step: Step, shapes: list[Shape]) -> Shape:
    (x,) = shapes
    count, source, target = step.param("count"), step.param("source"), step.param("target")
    if max(source, target) >= len(x) or source == target or count < 2 or x[source] % count:
        raise DoesNotFit(f"diagonal of {x}")
    return tuple(size * count if axis == target else size for axis, size in enumerate(x))


def _averaging(step: Step, shapes: list[Shape]) -> Shape:
    (x,) = shapes
    kernel: Shape = step.param("kernel")
    if len(x) != len(kernel) + 2:
        raise DoesNotFit(f"averaging of {x}")
    return (x[1], 1, *kernel)


def _constant(step: Step, shapes: list[Shape]) -> Shape:
    shape: Shape = step.param("shape")
    if len(step.param("numerators")) not in (1, prod(shape)):
        raise DoesNotFit(f"constant of {shape}")
    return shape


_SHAPES: dict[str, Callable[[Step, list[Shape]], Shape]] = {
    "conv": _conv,
    "pool": _pool,
    "matmul": _matmul,
    "add": lambda step, shapes: _broadcast(shapes),
    "mul": lambda step, shapes: _broadcast(shapes),
    "concat": _concat,
    "fit": _fit,
    "layout": lambda step, shapes: layout_of(step.chain, shapes[0]).shape,
    "diagonal": _diagonal,
    "averaging": _averaging,
    "constant": _constant,
}
