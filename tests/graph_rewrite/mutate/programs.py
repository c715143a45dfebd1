"""Programs for tests: small ones by name, random ones, and their values by arithmetic that shares nothing."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from graph_rewrite.layouts import Crop, LayoutError, Pad, Reorder, Shape
from graph_rewrite.mutate.moves import DoesNotFit, LayoutMove, Move, Tiles, Window, layout_of
from graph_rewrite.mutate.program import Step, TensorProgram, program, step
from graph_rewrite.mutate.value_types import types_of


def conv(*inputs: int, stride: int = 1, dilation: int = 1, pad: int | tuple[int, ...] = 1, rank: int = 2) -> Step:
    pads = (pad,) * (2 * rank) if isinstance(pad, int) else pad
    return step("conv", *inputs, strides=(stride,) * rank, dilations=(dilation,) * rank, pads=pads)


def layout(value: int, *chain: LayoutMove) -> Step:
    return step("layout", value, chain=chain)


CONV = program(2, [conv(0, 1)])
BATCH_TO_WIDTH = program(
    2, [layout(0, Move(0, "inner", 3, "outer", 2)), conv(2, 1), layout(3, Move(3, "outer", 0, "inner", 2))]
)
"""Figure 1 of PET: two images side by side, and a convolution of both."""

DILATED = program(2, [conv(0, 1, dilation=2, pad=2)])
DILATED_TO_DENSE = program(
    2,
    [
        layout(0, Move(2, "inner", 2, "outer", 2), Move(3, "inner", 3, "outer", 2)),
        conv(2, 1),
        layout(3, Move(3, "outer", 3, "inner", 2), Move(2, "outer", 2, "inner", 2)),
    ],
)
"""Figure 3 of PET: even rows and columns first, then the odd ones."""


def _picked(first: int, factor: int, length: int) -> Step:
    """Every `factor`-th element of [1, 1, n] from `first` on, as many as `length`."""
    return layout(0, Crop(2, first, 0), Move(2, "inner", 1, "outer", factor), Window((0, 0, 0), (1, 1, length)))


def counterexample(length: int = 8) -> tuple[TensorProgram, TensorProgram]:
    """x[3v] + x[v+1] and x[2v] + x[2v+1], over one input of shape [1, 1, 3 * length]."""
    shifted = layout(0, Window((0, 0, 1), (1, 1, length)))
    first = program(1, [_picked(0, 3, length), shifted, step("add", 1, 2)])
    second = program(1, [_picked(0, 2, length), _picked(1, 2, length), step("add", 1, 2)])
    return first, second


def random_chain(rng: np.random.Generator, shape: Shape) -> tuple[LayoutMove, ...]:
    """One or two random moves that apply at a shape."""
    chain: tuple[LayoutMove, ...] = ()
    for _ in range(int(rng.integers(1, 3))):
        now = layout_of(chain, shape).shape
        source, target = (int(axis) for axis in rng.integers(0, len(now), 2))
        part, place = (("outer", "inner")[int(i)] for i in rng.integers(0, 2, 2))
        factor, front = int(rng.integers(2, 4)), bool(rng.integers(0, 2))
        options: list[LayoutMove] = [
            Move(source, part, target, place, factor, front),  # type: ignore[arg-type]
            Tiles(source, factor, int(rng.integers(0, 3)), target, int(rng.integers(0, 2))),
            Window(tuple(int(i) for i in rng.integers(-1, 2, len(now))), now),
            Reorder(tuple(int(i) for i in rng.permutation(len(now)))),
            Pad(source, int(rng.integers(0, 2)), int(rng.integers(0, 2))),
        ]
        try:
            longer = (*chain, options[min(int(rng.integers(0, 8)), 7) % 5])
            if prod(layout_of(longer, shape).shape) <= 4 * prod(shape):
                chain = longer
        except (DoesNotFit, LayoutError):
            continue
    return chain


def random_program(rng: np.random.Generator, largest: int = 2000) -> tuple[TensorProgram, tuple[Shape, ...]]:
    """A program of a layout, a convolution, a product, a pool or a sum, and so on; with shapes of its inputs."""
    groups = int(rng.choice([1, 1, 2]))
    x = (int(rng.integers(1, 3)), 2 * groups, int(rng.integers(4, 8)), int(rng.integers(4, 8)))
    shapes: tuple[Shape, ...] = (x, (groups * int(rng.integers(1, 3)), 2, 3, int(rng.integers(1, 4))))
    steps: list[Step] = []
    for _ in range(int(rng.integers(1, 5))):
        types = types_of(TensorProgram(2, tuple(steps), ()), shapes)
        value = int(rng.integers(0, len(types)))
        new = _random_step(rng, value, len(types), types[value].shape)
        try:
            found = types_of(TensorProgram(2, (*steps, new), ()), shapes)
        except (DoesNotFit, LayoutError):
            continue
        if found[-1].size <= largest and found[-1].degree <= 3:
            steps.append(new)
    return program(2, steps or [conv(0, 1)], [2 + max(len(steps) - 1, 0)]), shapes


def _random_step(rng: np.random.Generator, value: int, count: int, shape: Shape) -> Step:
    other = int(rng.integers(0, count))
    pads = tuple(int(size) for size in rng.integers(0, 3, 4))
    axes = tuple(int(axis) for axis in rng.permutation(4)[:2])
    options = [
        layout(value, *random_chain(rng, shape)),
        step("conv", value, 1, strides=(int(rng.integers(1, 3)), 1), dilations=(1, int(rng.integers(1, 3))), pads=pads),
        step("pool", value, kernel=(2, 3), strides=(1, int(rng.integers(1, 3))), pads=(1, 1, 0, 2),
             counted=int(rng.integers(0, 2))),
        step("add", value, other), step("mul", value, other), step("matmul", value, other),
        step("concat", value, other, axis=axes[0]), step("fit", value, other),
        step("diagonal", value, count=2, source=axes[0], target=axes[1]),
    ]  # fmt: skip
    return options[int(rng.integers(0, len(options)))]


def values_modulo(
    prime: int, made: TensorProgram, inputs: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """Outputs of a program modulo any prime below 2^31, element by element and without BLAS. Layouts are index maps."""
    values = [np.asarray(array) % prime for array in inputs]
    for each in made.steps:
        values.append(_value(prime, each, [values[v] for v in each.inputs]))
    return [values[v] for v in made.outputs]


def _value(prime: int, each: Step, operands: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    x = operands[0]
    if each.op == "layout":
        index = layout_of(each.chain, x.shape).index_map()
        return np.where(index >= 0, x.reshape(-1)[index], 0)
    if each.op == "conv":
        return _conv(prime, each, operands)
    if each.op == "matmul":
        return (x[..., :, :, None] * operands[1][..., None, :, :] % prime).sum(axis=-2) % prime
    if each.op == "add":
        return (x + operands[1]) % prime
    if each.op == "pool":
        return _pool(prime, each, x)
    if each.op == "concat":
        return np.concatenate(operands, axis=each.param("axis"))
    raise NotImplementedError(each.op)


def _conv(prime: int, each: Step, operands: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    x, w = operands[:2]
    (sh, sw), (dh, dw), (top, left, bottom, right) = (each.param(n) for n in ("strides", "dilations", "pads"))
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    rows = (x.shape[2] - dh * (w.shape[2] - 1) - 1) // sh + 1
    columns = (x.shape[3] - dw * (w.shape[3] - 1) - 1) // sw + 1
    result = np.zeros((x.shape[0], w.shape[0], rows, columns), dtype=np.int64)
    groups = x.shape[1] // w.shape[1]
    for m in range(w.shape[0]):
        first = m // (w.shape[0] // groups) * w.shape[1]
        for c, i, j in np.ndindex(*w.shape[1:]):
            seen = x[:, first + c, i * dh : i * dh + rows * sh : sh, j * dw : j * dw + columns * sw : sw]
            result[:, m] = (result[:, m] + seen[:, :rows, :columns] * w[m, c, i, j]) % prime
    return result


def _pool(prime: int, each: Step, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An average that counts the zeros of its border, without strides."""
    (height, width), (top, left, bottom, right) = each.param("kernel"), each.param("pads")
    assert (each.param("counted"), set(each.param("strides"))) == (1, {1})
    x = np.pad(x, [(0, 0), (0, 0), (top, bottom), (left, right)])
    rows, columns = x.shape[2] - height + 1, x.shape[3] - width + 1
    places = np.ndindex(height, width)
    total = sum((x[:, :, i : i + rows, j : j + columns] for i, j in places), start=np.zeros((), dtype=np.int64))
    return total % prime * pow(height * width, -1, prime) % prime
