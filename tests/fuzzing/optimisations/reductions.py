"""Steps that reduce axes, and those that choose elements by their order."""

from __future__ import annotations

from tests.fuzzing.optimisations.builder import Builder, Unfit, Value
from tests.fuzzing.optimisations.registry import anything, images, step, tensors, wide_integers

_AXES_AS_INPUT = 18


def reduce(b: Builder, name: str, x: Value, axis: int, keepdims: int = 1) -> Value:
    """Reduce one axis, as the operator set wants it written."""
    if name == "ReduceSum" or b.opset >= _AXES_AS_INPUT:
        return b.op(name, x, b.ints(axis), keepdims=keepdims)
    return b.op(name, x, axes=[axis], keepdims=keepdims)


def _axis(x: Value) -> int:
    return 1 if x.rank > 1 and not isinstance(x.shape[0], int) else 0


@step(tensors, 2.0)
def reduction(b: Builder, x: Value) -> Value:
    axis = b.choice(range(_axis(x), x.rank))
    x.dim(axis)
    names = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL1", "ReduceSumSquare", "ReduceProd")
    more = ("ReduceL2", "ReduceLogSumExp")
    y = reduce(b, b.choice(names if b.chance(0.8) else more), x, axis, int(b.chance(0.7)))
    if y.rank == x.rank and b.chance(0.5):
        return b.op(b.choice(("Sub", "Add", "Mul")), x, y)
    return y


@step(images, 1.0)
def mean_of_image(b: Builder, x: Value) -> Value:
    if b.opset >= _AXES_AS_INPUT:
        return b.op("ReduceMean", x, b.ints(2, 3), keepdims=int(b.chance(0.7)))
    return b.op("ReduceMean", x, axes=[2, 3], keepdims=1)


@step(wide_integers, 0.7)
def whole_reduction(b: Builder, x: Value) -> Value:
    if x.rank == 0:
        raise Unfit("no axis")
    axis = b.choice(range(_axis(x), x.rank))
    return reduce(b, b.choice(("ReduceSum", "ReduceMax", "ReduceMin")), x, axis)


@step(tensors, 0.6)
def place_of_extreme(b: Builder, x: Value) -> Value:
    x.dim(-1)
    return b.op(b.choice(("ArgMax", "ArgMin")), x, axis=-1, keepdims=int(b.chance(0.5)))


@step(tensors, 0.6)
def largest(b: Builder, x: Value) -> Value:
    size = x.dim(-1)
    values, _ = b.several("TopK", 2, x, b.ints(max(1, size // 2)), axis=-1)
    return values


@step(tensors, 0.6)
def running_sum(b: Builder, x: Value) -> Value:
    x.dim(-1)
    return b.op("CumSum", x, b.constant(x.rank - 1, 7), reverse=int(b.chance(0.3)))


@step(anything, 0.2)
def nothing(b: Builder, x: Value) -> Value:
    """Identities in a row, of which one may become an output."""
    return b.op("Identity", b.op("Identity", x))


@step(tensors, 0.3)
def hardmax(b: Builder, x: Value) -> Value:
    x.dim(-1)
    return b.op("Hardmax", x, axis=-1)
