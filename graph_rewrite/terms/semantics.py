"""Exact values of substitutions' operators over the prime field F_p, p = 2^31 - 1.

Two sides that are equal as polynomials are equal at every point of F_p; two that differ agree at a random point with
probability at most d/p, d being their degree (Schwartz and Zippel). What is no polynomial is a function drawn at
random: activations per element, max pooling per window.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from graph_rewrite.terms.substitution import INPUT, Side, Term
from graph_rewrite.terms.term_types import (
    ACTIVATIONS,
    CONSTANTS,
    TermType,
    Types,
    close,
    infer,
    infer_side,
    operand_type,
    output_types,
    window,
)

__all__ = [
    "ACTIVATIONS",
    "CONSTANTS",
    "IntArray",
    "P",
    "TermType",
    "Types",
    "apply",
    "close",
    "constant_value",
    "evaluate",
    "infer",
    "infer_side",
    "output_types",
    "random_arrays",
    "uninterpreted",
]

P = 2**31 - 1
"""The field's prime. Products of two residues fit into int64; sums are taken over reduced products."""

IntArray = npt.NDArray[np.int64]


def evaluate(
    side: Side, arrays: Mapping[int, IntArray], types: Mapping[int, TermType] | None = None, *, seed: int = 0
) -> list[IntArray]:
    """Values of the outputs, residues mod P.

    Args:
        side: the terms.
        arrays: values of the inputs by number, residues mod P.
        types: types of the inputs, for borders that they carry; their shapes without borders by default.
        seed: draws the functions that stand for activations and max pooling.

    Raises:
        ValueError: the side has no types for these inputs.
    """
    if types is None:
        types = {number: TermType(array.shape) for number, array in arrays.items()}
    inferred: list[Types] = []
    values: list[tuple[IntArray, ...]] = []
    for node in side.terms:
        operand_types = [operand_type(operand, types, inferred) for operand in node.inputs]
        outputs = infer(node, operand_types)
        if outputs is None:
            raise ValueError(f"{node.op} does not accept operands of {[t.shape for t in operand_types]}")
        inferred.append(outputs)
        if outputs[0].constant:
            values.append((np.zeros((), dtype=np.int64),))
            continue
        operands = [arrays[o.index] if o.node == INPUT else values[o.node][o.index] for o in node.inputs]
        values.append(apply(node, operand_types, operands, seed=seed))
    if any(operand_type(o, types, inferred).constant for o in side.outputs):
        raise ValueError("an output is a constant that no operand gives a size")
    return [arrays[o.index] if o.node == INPUT else values[o.node][o.index] for o in side.outputs]


def apply(term: Term, types: Sequence[TermType], arrays: Sequence[IntArray], *, seed: int = 0) -> tuple[IntArray, ...]:
    """Values of one term's outputs. `types` must be accepted by `infer`; values of unsized constants are ignored."""
    if term.op in CONSTANTS:
        raise ValueError(f"{term.op} has a value where it meets an operand only")
    closed = close(term, types)
    assert closed is not None
    operands = [
        constant_value(open_.constant, sized) if open_.constant else array
        for open_, sized, array in zip(types, closed, arrays, strict=True)
    ]
    return _APPLY[term.op](term, closed, operands, seed)


def constant_value(constant: Term, sized: TermType) -> IntArray:
    """The value of a constant of this size."""
    if constant.op == "iewmul":
        return np.ones(sized.shape, dtype=np.int64)
    if constant.op == "imatmul":
        return np.broadcast_to(np.eye(sized.shape[-1], dtype=np.int64), sized.shape)
    value = np.zeros(sized.shape, dtype=np.int64)
    rows, columns = sized.shape[2:]
    if constant.op == "cpool":
        value[:] = pow(rows * columns, -1, P)
    else:
        channels = np.arange(sized.shape[0])
        value[channels, channels, (rows - 1) // 2, (columns - 1) // 2] = 1
    return value


def random_arrays(types: Mapping[int, TermType], rng: np.random.Generator) -> dict[int, IntArray]:
    """Uniform random values of inputs of these types."""
    return {number: rng.integers(0, P, size=type_.shape, dtype=np.int64) for number, type_ in types.items()}


def uninterpreted(name: str, array: IntArray, seed: int) -> IntArray:
    """A function F_p -> F_p drawn by name and seed, per element: nothing is known of it but that it is a function.

    What holds for it holds for every function, so for the activation that it stands for.
    """
    key = np.uint64((zlib.crc32(name.encode()) << 32 | (seed & 0xFFFFFFFF)) ^ 0x9E3779B97F4A7C15)
    mixed = array.astype(np.uint64) + key
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    return (mixed % np.uint64(P)).astype(np.int64)


# Values.

Values = tuple[IntArray, ...]


def _activated(term: Term, value: IntArray, seed: int) -> Values:
    name = term.param("activation")
    return (value if name == "none" else uninterpreted(name, value, seed),)


def _apply_matmul(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    a, b = arrays
    products = a[..., :, :, None] * b[..., None, :, :] % P
    return _activated(term, products.sum(axis=-2) % P, seed)


def _windows(term: Term, x: IntArray, kernel: Sequence[int], fill: int) -> npt.NDArray[Any]:
    """Windows [N, C, rows, columns, kernel rows, kernel columns]; what lies outside is `fill`."""
    _, padding = window(term, x.shape[2:], kernel)
    if any(map(any, padding)):
        x = np.pad(x, ((0, 0), (0, 0), *padding), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, tuple(kernel), axis=(2, 3))
    vertical, horizontal = term.param("stride")
    return windows[:, :, ::vertical, ::horizontal]


def _apply_conv(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    x, w = arrays
    outputs, per_group = w.shape[:2]
    groups = x.shape[1] // per_group
    windows = _windows(term, x, w.shape[2:], 0)
    batch, _, rows, columns, *kernel = windows.shape
    # Axes: batch, group, output of the group, row, column, then input of the group and kernel, summed over.
    patches = windows.reshape(batch, groups, 1, per_group, rows, columns, *kernel).transpose(0, 1, 2, 4, 5, 3, 6, 7)
    weights = w.reshape(1, groups, outputs // groups, 1, 1, per_group, *kernel)
    value = (patches * weights % P).sum(axis=(-3, -2, -1)) % P
    return _activated(term, value.reshape(batch, outputs, rows, columns), seed)


def _apply_average(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    kernel = term.param("kernel")
    inverse = pow(kernel[0] * kernel[1], -1, P)
    return (_windows(term, arrays[0], kernel, 0).sum(axis=(-2, -1)) % P * inverse % P,)


def _apply_max(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    """A random function of the multiset of a window's elements; padding is not among them.

    The largest element is a function of that multiset, so what holds for every such function holds for it. Equations
    that need more of it (max(x, x) = x, monotony) are not found.
    """
    windows = _windows(term, arrays[0], term.param("kernel"), -1)
    drawn = np.where(windows < 0, 0, uninterpreted("maxpool-element", windows, seed))
    return (uninterpreted("maxpool", drawn.sum(axis=(-2, -1)) % P, seed),)


def _apply_split(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    axis = term.param("axis")
    return tuple(np.split(arrays[0], [types[0].cuts[axis][-1]], axis=axis))


def _apply_reshape(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    outputs = infer(term, types)
    assert outputs is not None
    return (arrays[0].reshape(outputs[0].shape),)


def _apply_enlarge(term: Term, types: Types, arrays: Sequence[IntArray], seed: int) -> Values:
    """The kernel's centre, element (k - 1) // 2 of k, becomes the larger kernel's."""
    (w,) = arrays
    padding = []
    for new, old in zip(term.param("kernel"), w.shape[2:], strict=True):
        before = (new - 1) // 2 - (old - 1) // 2
        padding.append((before, new - old - before))
    return (np.pad(w, ((0, 0), (0, 0), *padding)),)


_APPLY: Mapping[str, Callable[[Term, Types, Sequence[IntArray], int], Values]] = {
    "ewadd": lambda term, types, arrays, seed: ((arrays[0] + arrays[1]) % P,),
    "ewmul": lambda term, types, arrays, seed: (arrays[0] * arrays[1] % P,),
    "smul": lambda term, types, arrays, seed: (arrays[0] * arrays[1].reshape(()) % P,),
    **dict.fromkeys(ACTIVATIONS, lambda term, types, arrays, seed: (uninterpreted(term.op, arrays[0], seed),)),
    "matmul": _apply_matmul,
    "conv": _apply_conv,
    "maxpool": _apply_max,
    "avgpool": _apply_average,
    "transpose": lambda term, types, arrays, seed: (arrays[0].transpose(term.param("perm")),),
    "concat": lambda term, types, arrays, seed: (np.concatenate(arrays, axis=term.param("axis")),),
    "split": _apply_split,
    "reshape": _apply_reshape,
    "enlarge": _apply_enlarge,
}
