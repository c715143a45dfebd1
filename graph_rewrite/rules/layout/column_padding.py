"""Depthwise convolutions on images with their columns of zeros written out.

ONNX Runtime's kernel for the blocked layout computes several columns of a row at once where all taps lie inside of the
image. At columns that reach into the padding it computes one at a time, and each tap waits for the one before
(onnxruntime's core/mlas/lib/snchwc.cpp). Large kernels over small images have few other columns. Rows of padding cost
nothing: their taps are left out.
"""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import TO_CHANNELS
from graph_rewrite.rules.helpers.geometry import Geometry, conv_geometry, with_pads
from graph_rewrite.rules.layout.blocked_image import image_of, of_image, padded

FEWEST_TAPS = 5
"""Taps along a row from which it pays. Measured on a Zen 3, a convolution is 1.1 to 1.7 times as fast with 7x7 taps at
7 to 28 columns, 1.1 to 1.35 times with 5x5 at 7 to 21, and 0.6 to 0.8 times with 3x3: the copy costs too much there.
It costs too much as well where the channels are neither blocked nor last, as it copies row by row."""
LEAST_PADDING = 1 / 6
"""Columns of zeros by columns of the result from which it pays: 5x5 taps at 28 columns gain 2% to 3%."""


class _Columns(Rule):
    """A rule of a convolution labelled `conv`."""

    def refusal(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        own = conv_geometry(m.node("conv"), x, w)
        if own.group == 1 or own.group != w.shape[0] or w.shape[1] != 1:
            return Refusal("not a depthwise convolution")
        if len(own.kernel) != 2 or own.kernel[1] < FEWEST_TAPS:
            return Refusal(f"fewer than {FEWEST_TAPS} taps along a row")
        if not own.is_unstrided or min(own.pads) < 0:
            return Refusal("the convolution has strides, or cuts its image")
        if own.pads[1] + own.pads[3] < LEAST_PADDING * m.root().shape[3]:
            return Refusal("few columns of the result reach into the padding")
        return None

    def attrs(self, m: Match, own: Geometry) -> dict[str, Any]:
        """Return the attributes of the convolution once its columns are padded before it."""
        top, _, bottom, _ = own.pads
        return with_pads(m.attrs("conv"), (top, 0, bottom, 0))


class PadBeforeTransposeAndDepthwise(_Columns):
    """Conv(Transpose(x), w, b) = Conv(Transpose(Pad(x)), w, b) for a depthwise convolution with zeros beside the rows
    of its image, x with the channels last"""

    family = "convolution"
    shared_interior = True

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Transpose(x, perm=TO_CHANNELS, _label="image"), w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return self.refusal(m, m.value("image"), w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own = conv_geometry(m.node("conv"), m.value("image"), w)
        _, left, _, right = own.pads
        image = op.Transpose(op.Pad(x, op.ints(0, 0, left, 0, 0, 0, right, 0)), perm=TO_CHANNELS)
        return op.Conv(image, w, b, **self.attrs(m, own))


class PadBeforeBlockedDepthwise(_Columns):
    """Conv'(x, w, b) = Conv'(Pad(x), w, b) for a depthwise convolution of the blocked layout with zeros beside the rows
    of its image"""

    family = "blocked_layout"

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.nchwc.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return self.refusal(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own = conv_geometry(m.node("conv"), x, w)
        _, left, _, right = own.pads
        wider = padded(op, of_image(x, x.shape, 1), 3, left, right, None)
        assert wider is not None  # columns are not channels
        return op.nchwc.Conv(image_of(op, wider), w, b, **self.attrs(m, own))


RULES = (PadBeforeTransposeAndDepthwise, PadBeforeBlockedDepthwise)
