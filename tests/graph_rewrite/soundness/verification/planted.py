"""Twenty rules that are wrong in one small thing each, as a hurried author would have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite.rewriting.patterns import Const
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import permutation
from graph_rewrite.rules.helpers.constants import uniform


class WrongAxis(Rule):
    """Transpose(ReduceMax(x, axes), p) = ReduceMax(Transpose(x, p), axes): the axes have moved"""

    def source(self, op: Any, x: Any, axes: Const) -> Any:
        return op.Transpose(op.ReduceMax(x, axes, _label="max"), perm=op.attr("p"))

    def target(self, op: Any, m: Any, x: Ref, axes: Ref) -> Any:
        return op.ReduceMax(op.Transpose(x, perm=m.attr("p")), axes, **m.attrs("max"))


class SwappedOperands(Rule):
    """Neg(x) - Neg(y) = x - y: it is y - x"""

    def source(self, op: Any, x: Any, y: Any) -> Any:
        return op.Sub(op.Neg(x), op.Neg(y))

    def target(self, op: Any, m: Any, x: Ref, y: Ref) -> Any:
        return op.Sub(x, y)


class PaddingOnOneSide(Rule):
    """Conv(x, w; pads 1, 1, 1, 1) = Conv(x, w; pads 0, 0, 2, 2): padding at the begin is missing"""

    def source(self, op: Any, x: Any, w: Const) -> Any:
        return op.Conv(x, w, pads=(1, 1, 1, 1), _label="conv")

    def target(self, op: Any, m: Any, x: Ref, w: Ref) -> Any:
        return op.Conv(x, w, **{**m.attrs("conv"), "pads": (0, 0, 2, 2)})


class MergedGroups(Rule):
    """Conv(x, v), Conv(x, w) = Split(Conv(x, Concat(v, w))): with groups the channels come in another order"""

    def source(self, op: Any, x: Any, v: Const, w: Const) -> Any:
        return op.Conv(x, v, _label="first"), op.Conv(x, w, _label="second")

    def check(self, m: Any, x: Ref, v: Ref, w: Ref) -> Refusal | None:
        alike = m.node("first").signature == m.node("second").signature and v.shape[1:] == w.shape[1:]
        return None if alike else Refusal("the convolutions differ")

    def target(self, op: Any, m: Any, x: Ref, v: Ref, w: Ref) -> Any:
        both = op.Conv(x, op.Concat(v, w, axis=0), **m.attrs("first"))
        return op.Split(both, op.ints(v.shape[0], w.shape[0]), axis=1, _outputs=2)


class NegativeZero(Rule):
    """Reciprocal(0 - x) = Reciprocal(Neg(x)): 0 - 0 is 0, Neg(0) is -0, and their reciprocals opposite infinities"""

    def source(self, op: Any, zero: Const, x: Any) -> Any:
        return op.Reciprocal(op.Sub(zero, x))

    def check(self, m: Any, zero: Ref, x: Ref) -> Refusal | None:
        return None if uniform(zero) == 0 and zero.rank == 0 else Refusal("not 0")

    def target(self, op: Any, m: Any, zero: Ref, x: Ref) -> Any:
        return op.Reciprocal(op.Neg(x))


class BroadcastBias(Rule):
    """Transpose(x + b, p) = Transpose(x, p) + b: the bias belongs to another axis now"""

    def source(self, op: Any, x: Any, b: Const) -> Any:
        return op.Transpose(op.Add(x, b), perm=op.attr("p"))

    def target(self, op: Any, m: Any, x: Ref, b: Ref) -> Any:
        return op.Add(op.Transpose(x, perm=m.attr("p")), b)


class SliceOffByOne(Rule):
    """Slice(Slice(x, s, e, a), t, f, a) = Slice(x, s + t - 1, s + f - 1, a)"""

    def source(self, op: Any, x: Any, s: Const, e: Const, t: Const, f: Const, a: Const) -> Any:
        return op.Slice(op.Slice(x, s, e, a), t, f, a)

    def check(self, m: Any, x: Ref, s: Ref, e: Ref, t: Ref, f: Ref, a: Ref) -> Refusal | None:
        bounds = np.concatenate([ref.numpy().reshape(-1) for ref in (s, t)])
        return None if np.all(bounds >= 0) and np.all(s.numpy() > 0) else Refusal("negative bounds")

    def target(self, op: Any, m: Any, x: Ref, s: Ref, e: Ref, t: Ref, f: Ref, a: Ref) -> Any:
        start = s.numpy() + t.numpy() - 1
        return op.Slice(x, op.constant(start), op.constant(start + m.root().shape[int(a.scalar())]), a)


class ComposedBackwards(Rule):
    """Transpose(Transpose(x, p), q) = Transpose(x, q after p): it is p after q"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Transpose(op.Transpose(x, perm=op.attr("p")), perm=op.attr("q"))

    def target(self, op: Any, m: Any, x: Ref) -> Any:
        p, q = (permutation(m.attr(name), x.rank) for name in ("p", "q"))
        return op.Transpose(x, perm=tuple(q[axis] for axis in p))


class SoftmaxAxis(Rule):
    """Transpose(Softmax(x, axis), p) = Softmax(Transpose(x, p), axis): the axis has moved"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Transpose(op.Softmax(x, axis=op.attr("axis", -1)), perm=op.attr("p"))

    def target(self, op: Any, m: Any, x: Ref) -> Any:
        return op.Softmax(op.Transpose(x, perm=m.attr("p")), axis=m.attr("axis"))


class AlphaForgotten(Rule):
    """Gemm(a, b; alpha) = MatMul(a, b)"""

    def source(self, op: Any, a: Any, b: Any) -> Any:
        return op.Gemm(a, b, transA=op.attr("s", 0), transB=op.attr("t", 0))

    def check(self, m: Any, a: Ref, b: Ref) -> Refusal | None:
        return Refusal("an operand is transposed") if m.attr("s") or m.attr("t") else None

    def target(self, op: Any, m: Any, a: Ref, b: Ref) -> Any:
        return op.MatMul(a, b)


class ReluOverScale(Rule):
    """Relu(x * c) = Relu(x) * c: not for a negative c"""

    def source(self, op: Any, x: Any, c: Const) -> Any:
        return op.Relu(op.Mul(x, c))

    def target(self, op: Any, m: Any, x: Ref, c: Ref) -> Any:
        return op.Mul(op.Relu(x), c)


class MaxPoolOverZeros(Rule):
    """MaxPool(x; pads) = MaxPool(Pad(x, pads)): Pad puts zeros where MaxPool sees minus infinity"""

    def source(self, op: Any, x: Any) -> Any:
        return op.MaxPool(x, _label="pool")

    def target(self, op: Any, m: Any, x: Ref) -> Any:
        attrs = m.attrs("pool")
        padded = _padded(op, x, attrs.pop("pads", ()))
        return padded if isinstance(padded, Refusal) else op.MaxPool(padded, **attrs)


class AveragePoolOverZeros(Rule):
    """AveragePool(x; pads) = AveragePool(Pad(x, pads)): padding counts in the one and not in the other"""

    def source(self, op: Any, x: Any) -> Any:
        return op.AveragePool(x, count_include_pad=op.attr("count", 0), _label="pool")

    def target(self, op: Any, m: Any, x: Ref) -> Any:
        attrs = m.attrs("pool")
        padded = _padded(op, x, attrs.pop("pads", ()))
        return padded if isinstance(padded, Refusal) else op.AveragePool(padded, **attrs)


class ConcatOrder(Rule):
    """Concat(Relu(x), Relu(y)) = Relu(Concat(y, x))"""

    def source(self, op: Any, x: Any, y: Any) -> Any:
        return op.Concat(op.Relu(x), op.Relu(y), axis=op.attr("axis"))

    def target(self, op: Any, m: Any, x: Ref, y: Ref) -> Any:
        return op.Relu(op.Concat(y, x, axis=m.attr("axis")))


class SplitSizes(Rule):
    """Split(x, sizes) in two = Slice(x, 0, s0), Slice(x, s1, 2 s1): right for equal sizes alone"""

    def source(self, op: Any, x: Any, sizes: Const) -> Any:
        return op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=2)

    def target(self, op: Any, m: Any, x: Ref, sizes: Ref) -> Any:
        first, second = (int(size) for size in sizes.numpy())
        axis = op.ints(m.attr("axis"))
        return (
            op.Slice(x, op.ints(0), op.ints(first), axis),
            op.Slice(x, op.ints(second), op.ints(2 * second), axis),
        )


class Associated(Rule):
    """(a - b) - c = a - (b - c), and with / for -"""

    def source(self, op: Any, a: Any, b: Any, c: Any) -> Any:
        either = {"Sub", "Div"}
        return op.any_of(either)(op.any_of(either)(a, b, _label="inner"), c, _label="outer")

    def check(self, m: Any, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return None if m.node("inner").op == m.node("outer").op else Refusal("the operators differ")

    def target(self, op: Any, m: Any, a: Ref, b: Ref, c: Ref) -> Any:
        name = m.node("outer").op
        return getattr(op, name)(a, getattr(op, name)(b, c))


class TransposedProduct(Rule):
    """Transpose(MatMul(a, b)) = MatMul(Transpose(a), Transpose(b)): the factors change places too"""

    def source(self, op: Any, a: Any, b: Any) -> Any:
        return op.Transpose(op.MatMul(a, b), perm=(1, 0))

    def target(self, op: Any, m: Any, a: Ref, b: Ref) -> Any:
        return op.MatMul(op.Transpose(a, perm=(1, 0)), op.Transpose(b, perm=(1, 0)))


class ScaleFoldedTwice(Rule):
    """MatMul(x, w) * c = MatMul(x * c, w * c)"""

    def source(self, op: Any, x: Any, w: Const, c: Const) -> Any:
        return op.Mul(op.MatMul(x, w), c)

    def check(self, m: Any, x: Ref, w: Ref, c: Ref) -> Refusal | None:
        return None if c.type.size == 1 else Refusal("c is not one number")

    def target(self, op: Any, m: Any, x: Ref, w: Ref, c: Ref) -> Any:
        return op.MatMul(op.Mul(x, c), op.Mul(w, c))


class EpsilonLost(Rule):
    """SkipLayerNormalization(x, skip, gamma, beta; epsilon) = LayerNormalization(x + skip, gamma, beta)"""

    def source(self, op: Any, x: Any, skip: Any, gamma: Any, beta: Any) -> Any:
        return op.ms.SkipLayerNormalization(x, skip, gamma, beta)

    def target(self, op: Any, m: Any, x: Ref, skip: Ref, gamma: Ref, beta: Ref) -> Any:
        return op.LayerNormalization(op.Add(x, skip), gamma, beta)


class GeluByTanh(Rule):
    """Gelu(x) = Gelu(x; tanh): the approximation is close, but another function"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Gelu(x, approximate="none")

    def target(self, op: Any, m: Any, x: Ref) -> Any:
        return op.Gelu(x, approximate="tanh")


def _padded(op: Any, x: Ref, pads: tuple[int, ...]) -> Any:
    if not any(pads):
        return Refusal("nothing is padded")
    half = len(pads) // 2
    outer = [0] * (x.rank - half)
    return op.Pad(x, op.ints(*outer, *pads[:half], *outer, *pads[half:]))


PLANTED: tuple[type[Rule], ...] = (
    WrongAxis, SwappedOperands, PaddingOnOneSide, MergedGroups, NegativeZero, BroadcastBias, SliceOffByOne,
    ComposedBackwards, SoftmaxAxis, AlphaForgotten, ReluOverScale, MaxPoolOverZeros, AveragePoolOverZeros, ConcatOrder,
    SplitSizes, Associated, TransposedProduct, ScaleFoldedTwice, EpsilonLost, GeluByTanh,
)  # fmt: skip
