"""Dilated and strided convolutions as plain ones over interleaved images.

A dilation d never mixes positions of different remainders by d, so the remainders can be a batch (space to batch). A
stride s reads all remainders at once, so they can be channels (space to depth). The rules of plain convolutions
(`winograd`) apply to the result. Between two dilated convolutions in a row the conversions cancel.
"""

from __future__ import annotations

from typing import Any, ClassVar

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import permutation, reshape
from graph_rewrite.rules.helpers.geometry import conv_geometry
from graph_rewrite.rules.helpers.slices import take

TO_BATCH = (3, 5, 0, 1, 2, 4)
"""The permutation from [N, C, H / d, d, W / e, e] to [d, e, N, C, H / d, W / e]."""
FROM_BATCH = (2, 3, 4, 0, 5, 1)
"""The permutation from [d, e, N, C, H / d, W / e] to [N, C, H / d, d, W / e, e]."""
_NOT_AN_IMAGE = Refusal("not a convolution of two-dimensional images in float32")


class _Dilation(Rule):
    family = "dilation"


def to_batch(op: ReplacementBuilder, x: Ref, d: int, e: int) -> Ref:
    """Return [N, C, H, W] as [d * e * N, C, H / d, W / e]: the remainders of rows by d and columns by e."""
    n, c, height, width = x.shape
    apart = op.Transpose(reshape(op, x, (n, c, height // d, d, width // e, e)), perm=TO_BATCH)
    return reshape(op, apart, (d * e * n, c, height // d, width // e))


def from_batch(op: ReplacementBuilder, x: Ref, d: int, e: int) -> Ref:
    """Undo `to_batch`: return [d * e * N, C, H, W] as [N, C, H * d, W * e]."""
    n, c, height, width = x.shape
    apart = reshape(op, x, (d, e, n // (d * e), c, height, width))
    return reshape(op, op.Transpose(apart, perm=FROM_BATCH), (n // (d * e), c, height * d, width * e))


class DilatedConvAsBatch(_Dilation):
    """Conv(x, w, b, dilations d) = space(Conv(batch(x), w, b)), where batch makes the remainders of positions by d a
    batch of images, and space undoes it"""

    relu: ClassVar[bool] = False

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        conv = op.Conv(x, w, b, _label="conv")
        return op.Relu(conv) if self.relu else conv

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return _NOT_AN_IMAGE
        own = conv_geometry(m.node("conv"), x, w)
        if not own.is_unstrided:
            return Refusal("the convolution has strides")
        used = [d for d, k in zip(own.dilations, own.kernel, strict=True) if k > 1]
        if all(d == 1 for d in used):
            return Refusal("the convolution has no dilations")
        alone = [node.op for node in m.consumers(m.value("conv"))] == ["Relu"]
        if alone and not self.relu and not m.is_output(m.value("conv")):
            return Refusal("a Relu follows, which belongs to the batch")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        d, e = (step if k > 1 else 1 for step, k in zip(own.dilations, own.kernel, strict=True))
        before, after = list(own.pads[:2]), list(own.pads[2:])
        # Padding by whole steps of the dilation is left to the convolution of the batch.
        inner = [0, 0, 0, 0]
        for axis, step in enumerate((d, e)):
            size = x.shape[2 + axis]
            if before[axis] % step == 0 and after[axis] % step == 0 and size % step == 0:
                inner[axis], inner[2 + axis] = before[axis] // step, after[axis] // step
                before[axis] = after[axis] = 0
            else:
                after[axis] += -(size + before[axis] + after[axis]) % step
        if any((*before, *after)):
            x = op.Pad(x, op.ints(0, 0, *before, 0, 0, *after))
        attrs = {**own.attrs(), "dilations": (1, 1), "pads": tuple(inner)}
        result = op.Conv(to_batch(op, x, d, e), w, b, **attrs)
        result = from_batch(op, op.Relu(result) if self.relu else result, d, e)
        return take(op, result, {2: range(shape[2]), 3: range(shape[3])})


class DilatedConvReluAsBatch(DilatedConvAsBatch):
    """Relu(Conv(x, w, b, dilations d)) = space(Relu(Conv(batch(x), w, b))), where batch makes the remainders of
    positions by d a batch of images, and space undoes it"""

    relu = True


class BatchOfSpace(_Dilation):
    """batch(space(x)) = x, where batch makes the remainders of positions by d a batch of images, and space undoes it"""

    def source(self, op: PatternBuilder, x: Any, s: Const, t: Const, u: Const, v: Const) -> Any:
        space = op.Reshape(op.Transpose(op.Reshape(x, s, _label="apart"), perm=op.attr("p")), t)
        return op.Reshape(op.Transpose(op.Reshape(space, u, _label="again"), perm=op.attr("q")), v)

    def check(self, m: Match, x: Ref, s: Ref, t: Ref, u: Ref, v: Ref) -> Refusal | None:
        apart, again = m.value("apart"), m.value("again")
        if apart.rank != 6 or again.rank != 6:
            return Refusal("the Reshapes do not take remainders apart")
        if permutation(m.attr("p"), 6) != FROM_BATCH or permutation(m.attr("q"), 6) != TO_BATCH:
            return Refusal("the Transposes are not those between batch and space")
        if again.shape != tuple(apart.shape[axis] for axis in FROM_BATCH) or m.root().shape != x.shape:
            return Refusal("the two use different steps")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, t: Ref, u: Ref, v: Ref) -> Any:
        return x


class StridedConvAsDepth(_Dilation):
    """Conv(x, w, b, strides s) = Conv(SpaceToDepth(x, s), w by remainders of taps, b), w constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return _NOT_AN_IMAGE
        own = conv_geometry(m.node("conv"), x, w)
        if own.group != 1 or not own.is_undilated:
            return Refusal("the convolution has groups or dilations")
        if own.strides[0] != own.strides[1] or own.strides[0] == 1:
            return Refusal("the strides are 1 or differ")
        return Refusal("the kernel reads one remainder only") if max(own.kernel) == 1 else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        s = own.strides[0]
        first = [-pad % s for pad in own.pads[:2]]
        last = [-(k + f) % s for k, f in zip(own.kernel, first, strict=True)]
        kernel = [(k + f + z) // s for k, f, z in zip(own.kernel, first, last, strict=True)]
        blocks = [-(-size // s) for size in x.shape[2:]]
        before = [(pad + f) // s for pad, f in zip(own.pads[:2], first, strict=True)]
        after = [out - size - p + k - 1 for out, size, p, k in zip(shape[2:], blocks, before, kernel, strict=True)]
        missing = [n * s - size for n, size in zip(blocks, x.shape[2:], strict=True)]
        if any(missing):
            x = op.Pad(x, op.ints(0, 0, 0, 0, 0, 0, *missing))
        filters = op.Pad(w, op.ints(0, 0, *first, 0, 0, *last)) if any((*first, *last)) else w
        count, channels = w.shape[:2]
        apart = reshape(op, filters, (count, channels, kernel[0], s, kernel[1], s))
        deep = reshape(op, op.Transpose(apart, perm=(0, 3, 5, 1, 2, 4)), (count, s * s * channels, *kernel))
        pads = (*before, *(max(pad, 0) for pad in after))
        result = op.Conv(op.SpaceToDepth(x, blocksize=s), deep, b, kernel_shape=tuple(kernel), pads=pads)
        return take(op, result, {2: range(shape[2]), 3: range(shape[3])})


RULES = (DilatedConvAsBatch, DilatedConvReluAsBatch, BatchOfSpace, StridedConvAsDepth)
