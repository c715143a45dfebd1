"""Values of programs at random inputs over the field of integers modulo 2^31 - 1: every element, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod

import numpy as np

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import layout_of
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.soundness.domains.limbs import LONGEST, Limbs, P, Residues, multiply, product

_CHUNK = 2**21
"""Elements of unrolled windows that are multiplied at once."""


def random_inputs(shapes: Sequence[Shape], seed: int) -> list[Residues]:
    """Return uniformly random residues of these shapes."""
    rng = np.random.default_rng(seed)
    return [rng.integers(0, P, shape, dtype=np.int64) for shape in shapes]


def values_of(program: TensorProgram, inputs: Sequence[Residues]) -> list[Residues]:
    """Return all values of a program, inputs first, modulo P.

    The program must fit the inputs' shapes (`value_types.types_of`).
    """
    values = list(inputs)
    for step in program.steps:
        values.append(apply(step, [values[value] for value in step.inputs]))
    return values


def outputs_of(program: TensorProgram, inputs: Sequence[Residues]) -> list[Residues]:
    """Return the outputs of a program, modulo P; values are dropped after their last use."""
    last = {value: number for number, step in enumerate(program.steps) for value in step.inputs}
    values: dict[int, Residues] = dict(enumerate(inputs))
    for number, step in enumerate(program.steps):
        values[program.count + number] = apply(step, [values[value] for value in step.inputs])
        for value in set(step.inputs).difference(program.outputs):
            if last[value] == number:
                del values[value]
    return [values[value] for value in program.outputs]


def apply(step: Step, operands: Sequence[Residues]) -> Residues:
    """Return what a step gives for operands whose types it takes."""
    return _APPLY[step.op](step, operands)


def _conv(step: Step, operands: Sequence[Residues]) -> Residues:
    x, w = operands[:2]
    strides, dilations, pads = step.param("strides"), step.param("dilations"), step.param("pads")
    groups, filters, rank = x.shape[1] // w.shape[1], w.shape[0], x.ndim - 2
    taps = w.reshape(groups, filters // groups, -1)
    windows = _windows(x, w.shape[2:], strides, dilations, pads)
    sizes = windows.shape[2 : 2 + rank]
    whole = Limbs(taps) if taps.shape[-1] <= LONGEST else None
    result = np.empty((x.shape[0], filters, *sizes), dtype=np.int64)
    for images, rows in _chunks(x.shape[0], sizes, taps.shape[-1] * groups):
        part = windows[images, :, rows]  # [images, channels, sizes, kernel]
        count, size = part.shape[0], part.shape[2 : 2 + rank]
        part = part.reshape(count, groups, w.shape[1], *part.shape[2:])
        order = (1, 2, *range(3 + rank, 3 + 2 * rank), 0, *range(3, 3 + rank))
        columns = part.transpose(order).reshape(groups, taps.shape[-1], -1)
        made = multiply(taps, columns) if whole is None else product(whole, Limbs(columns))
        result[images, :, rows] = np.moveaxis(made.reshape(filters, count, *size), 1, 0)
    return result if len(operands) == 2 else (result + operands[2].reshape(-1, *(1,) * rank)) % P


def _chunks(batch: int, sizes: Shape, length: int) -> Iterator[tuple[slice, slice]]:
    """Yield whole images as long as they are few elements together, else rows of one image."""
    images = max(1, _CHUNK // max(1, length * prod(sizes)))
    rows = max(1, _CHUNK // max(1, length * prod(sizes[1:])))
    for first in range(0, batch, images):
        for start in range(0, sizes[0], rows):
            yield slice(first, first + images), slice(start, start + rows)


def _windows(x: Residues, kernel: Shape, strides: Shape, dilations: Shape, pads: Shape) -> Residues:
    """Return a view [batch, channels, windows, kernel] of a padded image."""
    rank = x.ndim - 2
    if any(pads):
        x = np.pad(x, [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))])
    reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, x.ndim)))
    steps = [slice(None, None, s) for s in strides]
    return windows[(slice(None), slice(None), *steps, *(slice(None, None, d) for d in dilations))]


def _pool(step: Step, operands: Sequence[Residues]) -> Residues:
    (x,) = operands
    kernel, strides, pads = step.param("kernel"), step.param("strides"), step.param("pads")
    rank, ones = x.ndim - 2, (1,) * (x.ndim - 2)
    axes = tuple(range(-rank, 0))
    sums: Residues = _windows(x, kernel, strides, ones, pads).sum(axis=axes) % P
    if step.param("counted"):
        sums *= pow(prod(kernel), -1, P)
        return sums % P
    inside = np.ones((1, 1, *x.shape[2:]), dtype=np.int64)
    counts = _windows(inside, kernel, strides, ones, pads).sum(axis=axes)
    inverses = np.array([0, *(pow(n, -1, P) for n in range(1, prod(kernel) + 1))])
    sums *= inverses[counts]
    return sums % P


def _fit(step: Step, operands: Sequence[Residues]) -> Residues:
    x, like = operands
    return np.pad(x, [(0, wanted - size) for size, wanted in zip(x.shape, like.shape, strict=True)])


def _diagonal(step: Step, operands: Sequence[Residues]) -> Residues:
    (x,) = operands
    count, source, target = step.param("count"), step.param("source"), step.param("target")
    shape = tuple(size * count if axis == target else size for axis, size in enumerate(x.shape))
    result = np.zeros(shape, dtype=x.dtype)
    high, wide = x.shape[source] // count, x.shape[target]
    for i in range(count):
        here = [slice(None)] * x.ndim
        here[source] = slice(i * high, (i + 1) * high)
        block = x[tuple(here)]
        here[target] = slice(i * wide, (i + 1) * wide)
        result[tuple(here)] = block
    return result


def _averaging(step: Step, operands: Sequence[Residues]) -> Residues:
    kernel = step.param("kernel")
    return np.full((operands[0].shape[1], 1, *kernel), pow(prod(kernel), -1, P), dtype=np.int64)


def _constant(step: Step, operands: Sequence[Residues]) -> Residues:
    numerators = np.array([number % P for number in step.param("numerators")], dtype=np.int64)
    made = numerators * pow(step.param("denominator"), -1, P) % P
    shape = step.param("shape")
    return made.reshape(shape) if made.size == prod(shape) else np.full(shape, made[0])


_APPLY: dict[str, Callable[[Step, Sequence[Residues]], Residues]] = {
    "conv": _conv,
    "pool": _pool,
    "matmul": lambda step, operands: multiply(*operands),
    "add": lambda step, operands: (operands[0] + operands[1]) % P,
    "mul": lambda step, operands: operands[0] * operands[1] % P,
    "concat": lambda step, operands: np.concatenate(operands, axis=step.param("axis")),
    "fit": _fit,
    "layout": lambda step, operands: layout_of(step.chain, operands[0].shape).numpy(operands[0]),
    "diagonal": _diagonal,
    "averaging": _averaging,
    "constant": _constant,
}
