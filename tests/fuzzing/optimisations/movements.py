"""Steps that move elements: axes, shapes, parts, copies, indices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from tests.fuzzing.optimisations.builder import BATCH, FLOAT, INT64, Builder, Unfit, Value
from tests.fuzzing.optimisations.registry import anything, floats, images, matrices, step, tensors


def _order(b: Builder, x: Value) -> list[int]:
    """A permutation of axes, which leaves a symbolic one in front."""
    first = 1 if x.shape and x.shape[0] == BATCH else 0
    axes = list(range(first, x.rank))
    b.rng.shuffle(axes)
    return [*range(first), *axes]


@step(anything, 2.5)
def transpose(b: Builder, x: Value) -> Value:
    """A change of axes, often with something behind it, and its inverse."""
    order = _order(b, x)
    y = b.op("Transpose", x, perm=order)
    if b.chance(0.4) and x.is_float:
        y = b.op(b.choice(("Relu", "Sigmoid", "Neg", "Tanh")), y)
    elif b.chance(0.3):
        return b.op("Transpose", y, perm=_order(b, y))
    return b.op("Transpose", y, perm=[int(i) for i in np.argsort(order)]) if b.chance(0.6) else y


def _factors(b: Builder, size: int) -> list[int]:
    dims = []
    for factor in (2, 3, 2):
        if size % factor == 0 and size > 1 and b.chance(0.6):
            dims.append(factor)
            size //= factor
    dims.insert(b.rng.randrange(len(dims) + 1), size)
    return dims


@step(anything, 2.5)
def reshape(b: Builder, x: Value) -> Value:
    """One or two changes of shape."""
    for _ in range(b.choice((1, 1, 2))):
        if x.shape and x.shape[0] == BATCH:
            target = [0, *_factors(b, int(np.prod([x.dim(axis) for axis in range(1, x.rank)])))]
        else:
            target = _factors(b, int(np.prod(x.dims)))
            if b.chance(0.3):
                target[0] = -1
        x = b.op("Reshape", x, b.ints(*target))
    return x


@step(anything, 1.0)
def flatten(b: Builder, x: Value) -> Value:
    return b.op("Flatten", x, axis=1) if x.rank > 1 else b.op("Flatten", x, axis=0)


@step(anything, 1.0)
def axes_of_one(b: Builder, x: Value) -> Value:
    """An axis of size 1 that comes, or goes."""
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    if ones and x.rank > 2 and b.chance(0.6):
        return b.op("Squeeze", x, b.ints(b.choice(ones)))
    if x.rank >= 5:
        raise Unfit("many axes already")
    axis = 1 + b.rng.randrange(x.rank)
    y = b.op("Unsqueeze", x, b.ints(axis))
    return b.op("Squeeze", y, b.ints(axis)) if b.chance(0.3) else y


def _axis(b: Builder, x: Value, least: int = 2) -> int:
    """A fixed axis of at least this size."""
    axis: int = b.choice([i for i, size in enumerate(x.shape) if isinstance(size, int) and size >= least])
    return axis


@step(anything, 2.0)
def slices(b: Builder, x: Value) -> Value:
    axis = _axis(b, x)
    size = x.dim(axis)
    begin = b.rng.randrange(size - 1)
    end = b.choice((size, 2**31, begin + 1 + b.rng.randrange(size - begin)))
    y = b.op("Slice", x, b.ints(begin), b.ints(end), b.ints(axis), b.ints(b.choice((1, 1, 1, 2))))
    if b.chance(0.3):
        axis = _axis(b, y, 1)
        return b.op("Slice", y, b.ints(0), b.ints(max(1, y.dim(axis) - 1)), b.ints(axis))
    return b.op("Relu", y) if y.is_float and b.chance(0.3) else y


@step(anything, 2.0)
def cut_and_joined(b: Builder, x: Value) -> Value:
    """Parts of a value, put together again, in another order or after something was done to each."""
    axis = _axis(b, x)
    size, count = x.dim(axis), b.choice((2, 3))
    if size < count:
        raise Unfit("too small to split")
    sizes = [size - (count - 1) * (size // count), *[size // count] * (count - 1)]
    if b.chance(0.3):
        ends = np.cumsum([0, *sizes])
        parts = [b.op("Slice", x, b.ints(int(i)), b.ints(int(j)), b.ints(axis)) for i, j in pairwise(ends)]
    else:
        parts = b.several("Split", count, x, b.ints(*sizes), axis=axis)
    if x.is_float and b.chance(0.6):
        op = b.choice(("Relu", "Tanh", "Neg", "Sigmoid"))
        parts = [b.op(op, part) for part in parts]
    if b.chance(0.3) and len(set(sizes)) == 1 and x.is_float:
        return b.op("Add", *parts[:2])
    if b.chance(0.3):
        parts.reverse()
    return b.op("Concat", *parts, axis=axis)


@step(anything, 1.5)
def joined(b: Builder, x: Value) -> Value:
    """A value next to another or to itself, and a part of both."""
    axis = _axis(b, x, 1)
    first = b.op("Concat", x, b.like(x, 0.0) if b.chance(0.5) else x, axis=axis)
    match b.rng.randrange(4):
        case 0:
            return b.op("Slice", first, b.ints(x.dim(axis)), b.ints(2**31), b.ints(axis))
        case 1:
            return b.several("Split", 2, first, b.ints(x.dim(axis), x.dim(axis)), axis=axis)[1]
        case 2:
            return b.op("Concat", first, x, axis=axis)
        case _:
            return first


@step(anything, 1.0)
def padded(b: Builder, x: Value) -> Value:
    axis = _axis(b, x)
    before, after = [0] * x.rank, [0] * x.rank
    before[axis], after[axis] = b.choice(((1, 0), (0, 1), (1, 1), (0, 0)))
    modes = ("constant", "constant", "reflect", "edge") if x.is_float else ("constant",)
    y = b.op("Pad", x, b.ints(*before, *after), mode=b.choice(modes))
    if b.chance(0.3):
        return b.op("Pad", y, b.ints(*before, *after))
    return y


@step(anything, 1.0)
def repeated(b: Builder, x: Value) -> Value:
    if b.chance(0.5):
        axis = _axis(b, x, 1)
        return b.op("Tile", x, b.ints(*(2 if i == axis else 1 for i in range(x.rank))))
    ones = [axis for axis, size in enumerate(x.shape) if size == 1]
    target = [1 if isinstance(size, str) else size for size in x.shape]
    if ones and b.chance(0.8):
        target[b.choice(ones)] = 2
    return b.op("Expand", x, b.ints(*target))


@step(anything, 1.5)
def gathered(b: Builder, x: Value) -> Value:
    axis = _axis(b, x, 1)
    size = x.dim(axis)
    match b.rng.randrange(4):
        case 0:
            return b.op("Gather", x, b.constant(b.rng.randrange(-size, size), INT64), axis=axis)
        case 1:
            return b.op("Gather", x, b.ints(*range(size // 2, size)), axis=axis)
        case 2:
            indices = b.constant(b.numbers.integers(0, size, x.dims), INT64)
            return b.op("GatherElements", x, indices, axis=axis)
        case _:
            return b.op("Gather", x, b.ints(*(b.rng.randrange(size) for _ in range(3))), axis=axis)


@step(tensors, 0.8)
def scattered(b: Builder, x: Value) -> Value:
    rows = x.dim(0)
    if b.chance(0.5):
        updates = b.weight(1, *x.dims[1:], dtype=x.dtype)
        return b.op("ScatterND", x, b.constant(np.array([[b.rng.randrange(rows)]]), INT64), updates)
    if b.chance(0.3):
        return b.op("GatherND", x, b.constant(np.array([[0], [rows - 1]]), INT64))
    indices = b.constant(b.numbers.permutation(rows)[:1].reshape(1, *[1] * (x.rank - 1)), INT64)
    return b.op("ScatterElements", x, indices, b.weight(*[1] * x.rank, dtype=x.dtype), axis=0)


@step(images, 0.8)
def space_and_depth(b: Builder, x: Value) -> Value:
    return b.op(b.choice(("DepthToSpace", "SpaceToDepth")), x, blocksize=2)


@step(images, 0.6)
def resized(b: Builder, x: Value) -> Value:
    if x.dtype != FLOAT:
        raise Unfit("float32 only")
    scales = b.constant([1.0, 1.0, 2.0, 2.0], FLOAT)
    mode = b.choice(("nearest", "linear"))
    return b.op("Resize", x, None, scales, mode=mode, coordinate_transformation_mode="asymmetric",
                nearest_mode="floor" if mode == "nearest" else None)  # fmt: skip


@step(matrices, 0.6)
def triangle(b: Builder, x: Value) -> Value:
    return b.op("Trilu", x, upper=b.rng.randrange(2))


@step(floats, 0.6)
def shape_of(b: Builder, x: Value) -> Value:
    """A shape that is computed and used: a reshape to it, or ones or zeros of it."""
    shape = b.op("Shape", x)
    if b.chance(0.5):
        return b.op("Add", x, b.op("ConstantOfShape", shape, type=x)) if x.dtype == FLOAT else b.op("Identity", x)
    return b.op("Reshape", b.op("Relu", x), shape, type=x)


@step(tensors, 0.4)
def reversed_axis(b: Builder, x: Value) -> Value:
    axis = _axis(b, x)
    return b.op("Slice", x, b.ints(-1), b.ints(-(2**31)), b.ints(axis), b.ints(-1))


@step(lambda x: x.dtype == INT64 and x.rank <= 2, 1.0)
def one_hot(b: Builder, x: Value) -> Value:
    low = b.op("Mod", x, b.constant(5, INT64))
    return b.op("OneHot", low, b.constant(5, INT64), b.constant([0.0, 1.0], FLOAT))
