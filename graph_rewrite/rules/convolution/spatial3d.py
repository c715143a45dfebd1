"""Convolutions over three axes as convolutions of images: the frames of a clip are a batch, and the taps along time
become convolutions of shifted frames, which are summed or stacked, or products by Toom-Cook's algorithm.

ONNX Runtime unfolds the input of a Conv with three spatial axes. It keeps images in its blocked layout, and the rules
of images (`winograd`) apply to the new convolutions. Frames [N, T, C, H, W] are a Transpose of clips [N, C, T, H, W].
Between two convolutions neither Transpose is needed: a rule here reads frames directly where its input is their
Transpose.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.convolution.toom_cook import LARGEST_TILE, toom_cook
from graph_rewrite.rules.convolution.winograd_steps import filter_tiles, result_images, times
from graph_rewrite.rules.helpers.axes import concat, reshape
from graph_rewrite.rules.helpers.blocks import BLOCK
from graph_rewrite.rules.helpers.geometry import Geometry, conv_geometry
from graph_rewrite.rules.helpers.slices import take

TIME_FIRST = (0, 2, 1, 3, 4)
"""The permutation between clips [N, C, T, H, W] and frames [N, T, C, H, W], either way."""


class _Conv3d(Rule):
    family = "convolution_nd"
    relu: ClassVar[bool] = False

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        conv = op.Conv(x, w, b, _label="conv")
        return op.Relu(conv) if self.relu else conv

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 5 or x.dtype != TensorProto.FLOAT:
            return Refusal("not a convolution over time and space in float32")
        own = conv_geometry(m.node("conv"), x, w)
        if own.group != 1:
            return Refusal("the convolution has groups")
        refusal = self.unsuited(own, w, m.value("conv").shape)
        if refusal is not None or self.relu or m.is_output(m.value("conv")):
            return refusal
        alone = [node.op for node in m.consumers(m.value("conv"))] == ["Relu"]
        return Refusal("a Relu follows, which belongs to the frames") if alone else None

    def unsuited(self, own: Geometry, w: Ref, shape: tuple[int, ...]) -> Refusal | None:
        """Refuse a geometry that this form does not suit."""
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        frames = _frames(op, m, x)
        result = self.frames(op, frames, own, w, b, shape)
        return op.Transpose(result, perm=TIME_FIRST)

    def frames(
        self, op: ReplacementBuilder, x: Ref, own: Geometry, w: Ref, b: Ref | None, shape: tuple[int, ...]
    ) -> Ref:
        """Return the result as frames [N, T', K, H', W'], of frames x; `shape` is that of the result as a clip."""
        raise NotImplementedError


def _frames(op: ReplacementBuilder, m: Match, x: Ref) -> Ref:
    """Return a clip [N, C, T, H, W] as frames [N, T, C, H, W]: the operand of the Transpose that makes it, or a
    Transpose of it."""
    node = m.producer(x)
    if node is not None and node.op == "Transpose" and tuple(node.attrs.get("perm", ())) == TIME_FIRST:
        source = node.inputs[0]
        if source is not None and m.graph.types[source] is not None:
            return m.ref(source)
    frames: Ref = op.Transpose(x, perm=TIME_FIRST)
    return frames


def _extended(op: ReplacementBuilder, frames: Ref, before: int, after: int) -> Ref:
    """Return frames with frames of zeros before and after."""
    if before == after == 0:
        return frames
    padded: Ref = op.Pad(frames, op.ints(0, before, 0, 0, 0, 0, after, 0, 0, 0))
    return padded


def _images(op: ReplacementBuilder, frames: Ref, chosen: range) -> Ref:
    """Return some frames as a batch of images [N * count, C, H, W]."""
    some = take(op, frames, {1: chosen})
    return reshape(op, some, (some.shape[0] * some.shape[1], *some.shape[2:]))


def _spatial(own: Geometry) -> dict[str, Any]:
    """Return the attributes of the convolutions of images."""
    pads = (*own.pads[1:3], *own.pads[4:6])
    return {"kernel_shape": own.kernel[1:], "strides": own.strides[1:], "dilations": own.dilations[1:], "pads": pads}


def _taps(op: ReplacementBuilder, w: Ref) -> list[Ref]:
    """Return filters [K, C, T, R, S] as T filters of images."""
    return [reshape(op, take(op, w, {2: range(k, k + 1)}), (*w.shape[:2], *w.shape[3:])) for k in range(w.shape[2])]


def _shifted(op: ReplacementBuilder, x: Ref, own: Geometry, count: int) -> list[Ref]:
    """Return, per tap along time, the images it sees for `count` frames of the result."""
    padded = _extended(op, x, own.pads[0], own.pads[3])
    stride, step = own.strides[0], own.dilations[0]
    starts = [k * step for k in range(own.kernel[0])]
    return [_images(op, padded, range(start, start + (count - 1) * stride + 1, stride)) for start in starts]


class Conv3dAsSum(_Conv3d):
    """Conv(x, w, b) of clips = the sum over taps k along time of Conv(x shifted by k frames, w[k]), of frames as
    images, w constant"""

    def frames(
        self, op: ReplacementBuilder, x: Ref, own: Geometry, w: Ref, b: Ref | None, shape: tuple[int, ...]
    ) -> Ref:
        attrs, images, filters = _spatial(own), _shifted(op, x, own, shape[2]), _taps(op, w)
        total = op.Conv(images[0], filters[0], b, **attrs)
        for image, part in zip(images[1:], filters[1:], strict=True):
            total = op.Add(op.Conv(image, part, **attrs), total)
        total = op.Relu(total) if self.relu else total
        return reshape(op, total, tuple(shape[axis] for axis in TIME_FIRST))


class Conv3dReluAsSum(Conv3dAsSum):
    """Relu(Conv(x, w, b)) of clips = Relu of the sum over taps k along time of Conv(x shifted by k frames, w[k]), of
    frames as images, w constant"""

    relu = True


class Conv3dAsStack(_Conv3d):
    """Conv(x, w, b) of clips = Conv(Concat of x shifted by k frames, Concat of w[k], b) for the taps k along time, of
    frames as images, w constant"""

    def frames(
        self, op: ReplacementBuilder, x: Ref, own: Geometry, w: Ref, b: Ref | None, shape: tuple[int, ...]
    ) -> Ref:
        image = concat(op, _shifted(op, x, own, shape[2]), axis=1)
        result = op.Conv(image, concat(op, _taps(op, w), axis=1), b, **_spatial(own))
        result = op.Relu(result) if self.relu else result
        return reshape(op, result, tuple(shape[axis] for axis in TIME_FIRST))


class Conv3dReluAsStack(Conv3dAsStack):
    """Relu(Conv(x, w, b)) of clips = Relu(Conv(Concat of x shifted by k frames, Concat of w[k], b)) for the taps k
    along time, of frames as images, w constant"""

    relu = True


class _TemporalWinograd(_Conv3d):
    outputs: ClassVar[int]

    def unsuited(self, own: Geometry, w: Ref, shape: tuple[int, ...]) -> Refusal | None:
        taps = own.kernel[0]
        if taps < 3 or (self.outputs + taps) % 2 == 0 or self.outputs + taps - 1 > LARGEST_TILE:
            return Refusal(f"there is no transform for {taps} taps along time")
        if own.strides[0] != 1 or own.dilations[0] != 1:
            return Refusal("strides or dilations along time")
        if w.shape[0] % BLOCK or w.shape[1] % BLOCK:
            return Refusal(f"the channels do not fill blocks of {BLOCK}: the transforms would leave the blocked layout")
        return Refusal(f"fewer than {self.outputs} frames") if shape[2] < self.outputs else None

    def frames(
        self, op: ReplacementBuilder, x: Ref, own: Geometry, w: Ref, b: Ref | None, shape: tuple[int, ...]
    ) -> Ref:
        transform, m, time = toom_cook(self.outputs, own.kernel[0]), self.outputs, shape[2]
        count = -(-time // m)
        missing = m * count + own.kernel[0] - 1 - x.shape[1] - own.pads[0]
        padded = _extended(op, x, own.pads[0], max(missing, 0))
        images = [_images(op, padded, range(k, k + (count - 1) * m + 1, m)) for k in range(transform.tile)]
        flat = reshape(op, w, (*w.shape[:3], w.shape[3] * w.shape[4]))
        products = []
        for j, (line, (u,)) in enumerate(zip(transform.data, filter_tiles(op, flat, transform, None), strict=True)):
            data = _combination(op, images, line)
            filters = reshape(op, u, (*w.shape[:2], *w.shape[3:]))
            products.append(op.Conv(data, filters, b if j == 1 else None, **_spatial(own)))
        results = result_images(op, products, transform, self.relu)
        # Frame p of a tile, for all tiles: side by side, they are frames in order.
        tiles = [reshape(op, y, (shape[0], count, 1, *y.shape[1:])) for y in results]
        joined = reshape(op, op.Concat(*tiles, axis=2), (shape[0], count * m, *results[0].shape[1:]))
        return take(op, joined, {1: range(time)})


def _combination(op: ReplacementBuilder, images: list[Ref], row: tuple[Fraction, ...]) -> Ref:
    """Return the sum of images with these factors."""
    terms = sorted(((c != 1, k) for k, c in enumerate(row) if c), key=lambda term: term)
    total: Ref | None = None
    for scaled, k in terms:
        part = times(op, images[k], row[k]) if scaled else images[k]
        total = part if total is None else op.Add(part, total)
    assert total is not None
    return total


class TemporalWinograd2(_TemporalWinograd):
    """Conv(x, w, b) of clips = pairs of frames of A (B^T x * G w), F(2, t) along time, the products convolutions of
    images, w constant"""

    outputs = 2


class TemporalWinograd2Relu(TemporalWinograd2):
    """Relu(Conv(x, w, b)) of clips = Relu of pairs of frames of A (B^T x * G w), F(2, t) along time, the products
    convolutions of images, w constant"""

    relu = True


class TemporalWinograd4(_TemporalWinograd):
    """Conv(x, w, b) of clips = fours of frames of A (B^T x * G w), F(4, t) along time, the products convolutions of
    images, w constant"""

    outputs = 4


class TemporalWinograd4Relu(TemporalWinograd4):
    """Relu(Conv(x, w, b)) of clips = Relu of fours of frames of A (B^T x * G w), F(4, t) along time, the products
    convolutions of images, w constant"""

    relu = True


RULES = (
    Conv3dAsSum, Conv3dReluAsSum, Conv3dAsStack, Conv3dReluAsStack, TemporalWinograd2, TemporalWinograd2Relu,
    TemporalWinograd4, TemporalWinograd4Relu,
)  # fmt: skip
