"""What the rules share: axes, permutations, shapes, slices, and questions about constants."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.constants import Constant
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16})

UNARY = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log",
    "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators that work on each element of their first input alone; further inputs are scalars (Clip's bounds)."""

BINARY = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or",
    "Pow", "Sub", "Xor",
})  # fmt: skip
"""Operators that work on pairs of elements of two inputs, with broadcasting in both directions."""

_LARGEST_READ = 1 << 22
_UNIFORM: weakref.WeakKeyDictionary[Constant, float | None] = weakref.WeakKeyDictionary()


def is_float(ref: Ref) -> bool:
    """Whether the elements are floating-point numbers."""
    return ref.dtype in FLOATS


def is_readable(constant: Constant) -> bool:
    """Whether a condition may look at the elements: weights that search has made are not computed for it."""
    return constant.type.size <= _LARGEST_READ and (constant.is_small or constant.expression is None)


def uniform(ref: Ref | None) -> float | None:
    """The value that all elements of a constant have; None where they differ, are none, or are not to be read."""
    if ref is None or ref.constant is None or not is_readable(ref.constant):
        return None
    if ref.constant not in _UNIFORM:
        array = ref.numpy().reshape(-1)
        alike = array.size > 0 and array.dtype.kind in "biuf" and bool((array == array[0]).all())
        _UNIFORM[ref.constant] = float(array[0]) if alike else None
    return _UNIFORM[ref.constant]


def ints(ref: Ref | None) -> tuple[int, ...] | None:
    """Elements of an integer constant (axes, sizes, indices); None where it is left out, not constant or large."""
    if ref is None or ref.constant is None or not ref.constant.is_small:
        return None
    return tuple(int(element) for element in ref.numpy().reshape(-1))


def permutation(perm: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The attribute `perm` of Transpose; left out, it reverses the axes."""
    return tuple(reversed(range(rank))) if perm is None else tuple(perm)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes `perm`."""
    result = [0] * len(perm)
    for place, axis in enumerate(perm):
        result[axis] = place
    return tuple(result)


def transpose(op: ReplacementBuilder, x: Ref, perm: Sequence[int]) -> Ref:
    """x with its axes permuted; x itself where nothing moves."""
    if tuple(perm) == tuple(range(x.rank)):
        return x
    result: Ref = op.Transpose(x, perm=tuple(perm))
    return result


def reshape(op: ReplacementBuilder, x: Ref, shape: Sequence[int]) -> Ref:
    """x in a static shape; x itself where it has it."""
    if tuple(shape) == x.shape:
        return x
    # A zero in the shape means "as in the input" unless allowzero is set.
    result: Ref = op.Reshape(x, op.ints(*shape), allowzero=1 if 0 in shape else None)
    return result


def stripped(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without leading ones: the same to broadcasting."""
    dims = list(shape)
    while dims and dims[0] == 1:
        dims.pop(0)
    return tuple(dims)


def concat(op: ReplacementBuilder, parts: Sequence[Ref], axis: int) -> Ref:
    """Parts joined along an axis; a single part is itself."""
    if len(parts) == 1:
        return parts[0]
    result: Ref = op.Concat(*parts, axis=axis)
    return result


def split(op: ReplacementBuilder, x: Ref, sizes: Sequence[int], axis: int) -> tuple[Ref, ...]:
    """x in parts of the given sizes along an axis."""
    result: tuple[Ref, ...] = op.Split(x, op.ints(*sizes), axis=axis, _outputs=len(sizes))
    return result


def sizes_of(m: Match, label: str, count: int, axis: int) -> tuple[int, ...]:
    """Sizes along `axis` of the outputs of the matched Split with this label."""
    return tuple(m.value(label, i).shape[axis] for i in range(count))


def unary_key(m: Match, label: str, rest: Sequence[Ref]) -> tuple[object, ...]:
    """Identifies the function that an element-wise node applies: operator, attributes and further inputs."""
    return (m.node(label).signature, *(ref.constant.digest if ref.constant else ref.key for ref in rest))


def apply_like(op: ReplacementBuilder, m: Match, label: str, *inputs: Ref | None) -> Ref:
    """The operator of the matched node with this label, with its attributes, on other inputs."""
    node = m.node(label)
    return op.apply(node.op, node.domain, dict(node.attrs), inputs, 1)[0]


def operands(m: Match, label: str) -> tuple[Ref, ...]:
    """The inputs of the matched node with this label in the order they have in the graph. A target that uses it comes
    out the same for both orders in which commuting operands match."""
    return tuple(m.ref(value) for value in m.node(label).inputs if value is not None)


def in_order(m: Match, label: str, first: Ref, replaced: Ref, other: Ref) -> tuple[Ref, Ref]:
    """`(replaced, other)` as the two operands of the matched node: `replaced` stands where `first` stood."""
    return (replaced, other) if m.node(label).inputs[0] == first.external else (other, replaced)


def slice_ranges(x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None) -> dict[int, range] | Refusal:
    """What Slice takes of each axis it names, as ranges of indices; a Refusal where that is not constant."""
    begin, end = ints(starts), ints(ends)
    which = tuple(range(len(begin or ()))) if axes is None else ints(axes)
    step = (1,) * len(begin or ()) if steps is None else ints(steps)
    if begin is None or end is None or which is None or step is None:
        return Refusal("the bounds of the slice are not constants")
    found: dict[int, range] = {}
    for axis, first, last, stride in zip(which, begin, end, step, strict=True):
        dim = x.shape[axis % x.rank]
        found[axis % x.rank] = range(dim)[first:last:stride]
    return found


def take(op: ReplacementBuilder, x: Ref, ranges: Mapping[int, range]) -> Ref:
    """The slice of x with the given range of indices per axis; x itself where they are all there is."""
    used = {axis: r for axis, r in sorted(ranges.items()) if r != range(x.shape[axis])}
    if not used:
        return x
    # A range that runs down to index 0 ends before it, which only a number below -dim can say.
    stops = [r.stop if r.stop >= 0 else -x.shape[axis] - 1 for axis, r in used.items()]
    steps = [r.step for r in used.values()]
    result: Ref = op.Slice(
        x, op.ints(*(r.start for r in used.values())), op.ints(*stops), op.ints(*used),
        None if set(steps) == {1} else op.ints(*steps),
    )  # fmt: skip
    return result


def finite_reciprocal(ref: Ref) -> bool:
    """Whether 1/c neither overflows nor loses precision for any element of a readable floating-point constant."""
    if ref.constant is None or not is_readable(ref.constant):
        return False
    magnitude = np.abs(ref.numpy().astype(np.float64))
    limits = np.finfo(ref.numpy().dtype) if ref.dtype != TensorProto.BFLOAT16 else np.finfo(np.float32)
    low, high = float(limits.tiny), 1.0 / float(limits.tiny)
    return bool(magnitude.size) and bool(((magnitude > low) & (magnitude < high)).all())
