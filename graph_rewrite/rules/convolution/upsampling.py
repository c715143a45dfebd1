"""Convolutions that make images larger: of images with repeated or interpolated elements, and transposed ones.

An image that is s times as large because its elements are repeated has each of them in several taps of a filter. A
transposed convolution adds up these taps once and reads the small image (Odena et al., "Deconvolution and Checkerboard
Artifacts", 2016, has both).

A transposed convolution with stride s computes an image for every remainder of positions by s. A plain convolution
computes them all as channels, and DepthToSpace puts them in order (Shi et al., "Is the deconvolution layer the same as
a convolutional layer?", arXiv:1609.07009).
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape, transpose
from graph_rewrite.rules.helpers.geometry import conv_geometry
from graph_rewrite.rules.helpers.slices import take


class _Upsampling(Rule):
    family = "dilation"


class RepeatedConvAsConvTranspose(_Upsampling):
    """Conv(Resize(x), w, b) = ConvTranspose(x, sums of taps of w, b, strides s) for a Resize that repeats every element
    s times, w constant"""

    def source(
        self, op: PatternBuilder, x: Any, roi: Maybe, scales: MaybeConst, sizes: MaybeConst, w: Const, b: MaybeConst
    ) -> Any:
        return op.Conv(op.Resize(x, roi, scales, sizes, _label="resize"), w, b, _label="conv")

    def check(
        self, m: Match, x: Ref, roi: Ref | None, scales: Ref | None, sizes: Ref | None, w: Ref, b: Ref | None
    ) -> Refusal | None:
        if x.dtype != TensorProto.FLOAT:
            return Refusal("not an image in float32")
        own = conv_geometry(m.node("conv"), m.value("resize"), w)
        if not own.is_plain:
            return Refusal("the convolution has groups, strides or dilations")
        if any(pad >= size for pad, size in zip(own.pads, own.kernel * 2, strict=True)):
            return Refusal("a filter may see nothing but padding")
        return None

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, roi: Ref | None, scales: Ref | None, sizes: Ref | None, w: Ref,
        b: Ref | None,
    ) -> Any:  # fmt: skip
        own, times = conv_geometry(m.node("conv"), m.value("resize"), w), _times(m, x, scales)
        if isinstance(times, Refusal):
            return times
        for axis, (taps, count) in enumerate(zip(own.kernel, times, strict=True), start=2):
            w = _sums(op, w, axis, taps, count)
        filters = op.Transpose(w, perm=(1, 0, *range(2, w.rank)))
        pads = tuple(size - 1 - pad for size, pad in zip(own.kernel * 2, own.pads, strict=True))
        return op.ConvTranspose(x, filters, b, kernel_shape=w.shape[2:], strides=times, pads=pads)


def _times(m: Match, x: Ref, scales: Ref | None) -> tuple[int, ...] | Refusal:
    """Return how many times the matched Resize repeats every element along each spatial axis."""
    attrs, shape = m.attrs("resize"), m.value("resize").shape
    if attrs.get("mode", "nearest") != "nearest":
        return Refusal("the image is interpolated")
    sizes = list(zip(shape, x.shape, strict=True))
    if shape[:2] != x.shape[:2] or any(small == 0 or large % small for large, small in sizes):
        return Refusal("the image does not become a whole number of times as large")
    if scales is not None and any(float(scale) != int(scale) for scale in scales.numpy().reshape(-1)):
        return Refusal("the scales are no whole numbers")
    times = tuple(large // small for large, small in sizes[2:])
    places = attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = str(attrs.get("nearest_mode", "round_prefer_floor"))
    if places == "asymmetric" and (rounding == "floor" or (rounding == "round_prefer_floor" and max(times) <= 2)):
        return times
    if places in ("half_pixel", "pytorch_half_pixel") and rounding.startswith("round"):
        return times
    return Refusal("elements are not repeated equally often, in their order")


def _sums(op: ReplacementBuilder, w: Ref, axis: int, taps: int, times: int) -> Ref:
    """Return filters of which each tap along an axis is the sum of those that see the same element, which is there so
    many times: `taps + times - 1` in place of `taps`, from the last element seen to the first."""
    matrix = np.zeros((taps, taps + times - 1), np.float32)
    for tap in range(taps):
        matrix[tap, taps - 1 - tap : taps - 1 - tap + times] = 1
    swap = [*range(w.rank)]
    swap[axis], swap[-1] = swap[-1], swap[axis]
    return transpose(op, op.MatMul(transpose(op, w, swap), op.constant(matrix)), swap)


class ConvTransposeAsConv(_Upsampling):
    """ConvTranspose(x, w, b, strides s) = DepthToSpace(Conv(x, taps of w by remainders, b), s) without its border, w
    constant"""

    by_structure = True
    relu: ClassVar[bool] = False

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        conv = op.ConvTranspose(x, w, b, _label="conv")
        return op.Relu(conv) if self.relu else conv

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return Refusal("not a convolution of two-dimensional images in float32")
        if m.attrs("conv").get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in m.attrs("conv"):
            return Refusal("the size of the result decides on the padding")
        own = conv_geometry(m.node("conv"), x, w)
        if own.group != 1 or not own.is_undilated:
            return Refusal("the convolution has groups or dilations")
        if own.strides[0] != own.strides[1]:
            return Refusal("the strides differ")
        if any(pad >= size for pad, size in zip(own.pads, own.kernel * 2, strict=True)):
            return Refusal("more is cut off than one filter writes")
        result = m.value("conv")
        if not self.relu and not m.is_output(result) and [node.op for node in m.consumers(result)] == ["Relu"]:
            return Refusal("a Relu follows, which belongs to the convolution")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        s, (channels, filters) = own.strides[0], w.shape[:2]
        taps = tuple(-(-size // s) for size in own.kernel)
        missing = [n * s - size for n, size in zip(taps, own.kernel, strict=True)]
        if any(missing):
            w = op.Pad(w, op.ints(0, 0, 0, 0, 0, 0, *missing))
        apart = reshape(op, w, (channels, filters, taps[0], s, taps[1], s))
        # What a position of the small image writes last, a plain convolution reads first.
        apart = take(op, apart, {axis: range(n)[::-1] for axis, n in zip((2, 4), taps, strict=True)})
        deep = reshape(op, op.Transpose(apart, perm=(3, 5, 1, 0, 2, 4)), (s * s * filters, channels, *taps))
        bias = None if b is None else reshape(op, op.Expand(b, op.ints(s * s, filters)), (s * s * filters,))
        cut = [pad % s for pad in own.pads[:2]]
        counts = [-(-(first + size) // s) for first, size in zip(cut, shape[2:], strict=True)]
        before = [n - 1 - pad // s for n, pad in zip(taps, own.pads[:2], strict=True)]
        after = [
            max(0, count - size - first + n - 1)
            for count, size, first, n in zip(counts, x.shape[2:], before, taps, strict=True)
        ]
        result = op.Conv(x, deep, bias, kernel_shape=taps, pads=(*before, *after))
        result = op.Relu(result) if self.relu else result
        result = op.DepthToSpace(result, blocksize=s) if s > 1 else result
        ranges = [range(first, first + size) for first, size in zip(cut, shape[2:], strict=True)]
        return take(op, result, dict(enumerate(ranges, start=2)))


class ConvTransposeReluAsConv(ConvTransposeAsConv):
    """Relu(ConvTranspose(x, w, b, strides s)) = DepthToSpace(Relu(Conv(x, taps of w by remainders, b)), s) without its
    border, w constant"""

    relu = True


def _order_matters(m: Match, convolved: Ref, resized: Ref, w: Ref) -> Refusal | None:
    """Refuse a convolution of `convolved` and a Resize of `resized` of which it matters which comes first."""
    own, attrs = conv_geometry(m.node("conv"), convolved, w), m.attrs("resize")
    if m.value("resize").shape[:2] != resized.shape[:2]:
        return Refusal("channels are resized, or elements averaged")
    if convolved.dtype != TensorProto.FLOAT:
        return Refusal("not an image in float32")
    if not (own.is_pointwise and own.is_unstrided):
        return Refusal("a filter sees more than one position, or skips some")
    if attrs.get("mode", "nearest") not in ("nearest", "linear"):
        return Refusal("the weights of elements need not add up to 1")
    if attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        return Refusal("the image is cropped")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        return Refusal("the size of the result depends on that of the image")
    if {axis % convolved.rank for axis in attrs.get("axes", ())} & {0, 1} or attrs.get("antialias", 0):
        return Refusal("channels are resized, or elements averaged")
    return None


def _resized(op: ReplacementBuilder, m: Match, x: Ref, roi: Ref | None, scales: Ref | None, sizes: Ref | None) -> Ref:
    """Return what the matched Resize makes of an image of other channels."""
    attrs, shape = m.attrs("resize"), m.value("resize").shape
    if sizes is not None and "axes" not in attrs:
        sizes = op.ints(shape[0], x.shape[1], *shape[2:])
    result: Ref = op.Resize(x, roi, scales, sizes, **attrs)
    return result


class PointwiseConvBeforeResize(_Upsampling):
    """Conv(Resize(x), w, b) = Resize(Conv(x, w, b)) for filters of one tap, and nearest or linear interpolation along
    spatial axes"""

    def source(
        self, op: PatternBuilder, x: Any, roi: Maybe, scales: MaybeConst, sizes: MaybeConst, w: Any, b: Maybe
    ) -> Any:
        return op.Conv(op.Resize(x, roi, scales, sizes, _label="resize"), w, b, _label="conv")

    def check(
        self, m: Match, x: Ref, roi: Ref | None, scales: Ref | None, sizes: Ref | None, w: Ref, b: Ref | None
    ) -> Refusal | None:
        return _order_matters(m, m.value("resize"), x, w)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, roi: Ref | None, scales: Ref | None, sizes: Ref | None, w: Ref,
        b: Ref | None,
    ) -> Any:  # fmt: skip
        own = conv_geometry(m.node("conv"), m.value("resize"), w)
        return _resized(op, m, op.Conv(x, w, b, **own.attrs()), roi, scales, sizes)


class PointwiseConvAfterResize(_Upsampling):
    """Resize(Conv(x, w, b)) = Conv(Resize(x), w, b) for filters of one tap, and nearest or linear interpolation along
    spatial axes"""

    def source(
        self, op: PatternBuilder, x: Any, w: Any, b: Maybe, roi: Maybe, scales: MaybeConst, sizes: MaybeConst
    ) -> Any:
        return op.Resize(op.Conv(x, w, b, _label="conv"), roi, scales, sizes, _label="resize")

    def check(
        self, m: Match, x: Ref, w: Ref, b: Ref | None, roi: Ref | None, scales: Ref | None, sizes: Ref | None
    ) -> Refusal | None:
        return _order_matters(m, x, m.value("conv"), w)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, roi: Ref | None, scales: Ref | None,
        sizes: Ref | None,
    ) -> Any:  # fmt: skip
        own = conv_geometry(m.node("conv"), x, w)
        return op.Conv(_resized(op, m, x, roi, scales, sizes), w, b, **own.attrs())


RULES = (
    RepeatedConvAsConvTranspose, ConvTransposeAsConv, ConvTransposeReluAsConv, PointwiseConvBeforeResize,
    PointwiseConvAfterResize,
)  # fmt: skip
