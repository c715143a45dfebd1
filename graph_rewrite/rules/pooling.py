"""Pooling: averages as reductions and back, Relu past MaxPool."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto

from graph_rewrite.matching import Match
from graph_rewrite.patterns import MaybeConst, PatternBuilder
from graph_rewrite.region import Ref, RegionBuilder
from graph_rewrite.rule import Refusal, Rule
from graph_rewrite.rules.common import ints, is_float, reshape
from graph_rewrite.rules.conv_attributes import geometry


class _Pooling(Rule):
    family = "pooling"


class GlobalAveragePoolToReduceMean(_Pooling):
    """GlobalAveragePool(x) = ReduceMean(x, spatial axes)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.GlobalAveragePool(x)

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        return op.ReduceMean(x, op.ints(*range(2, x.rank)), keepdims=1)


class ReduceMeanToGlobalAveragePool(_Pooling):
    """ReduceMean(x, spatial axes) = Reshape(GlobalAveragePool(x)), without the Reshape where the axes are kept"""

    def source(self, op: PatternBuilder, x: Any, axes: MaybeConst) -> Any:
        return op.ReduceMean(x, axes, _label="mean")

    def check(self, m: Match, x: Ref, axes: Ref | None) -> Refusal | None:
        # Before opset 18 the axes were an attribute.
        named = m.attrs("mean").get("axes") if axes is None else ints(axes)
        spatial = list(range(2, x.rank))
        if not is_float(x) or not spatial or sorted(axis % x.rank for axis in named or ()) != spatial:
            return Refusal("the mean is not over all spatial axes of an image")
        return Refusal("ONNX Runtime pools no doubles on the CPU") if x.dtype == TensorProto.DOUBLE else None

    def target(self, op: RegionBuilder, m: Match, x: Ref, axes: Ref | None) -> Any:
        return reshape(op, op.GlobalAveragePool(x), m.root().shape)


class AveragePoolToGlobal(_Pooling):
    """AveragePool(x) = GlobalAveragePool(x), where the one window covers the image"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.AveragePool(x, kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        own = geometry(m.node("pool"), x, m.attr("kernel"))
        if own.kernel != x.shape[2:] or any(own.pads) or any(dilation != 1 for dilation in own.dilations):
            return Refusal("the window does not cover the image exactly")
        return None

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        return op.GlobalAveragePool(x)


def _border_windows(m: Match, x: Ref) -> Refusal | None:
    """A window that sees padding alone gives the least number, which Relu would change."""
    own = geometry(m.node("pool"), x, m.attr("kernel"))
    gaps = any(own.pads) and any(dilation != 1 for dilation in own.dilations)
    leaps = m.attrs("pool").get("ceil_mode", 0) and any(s > k for s, k in zip(own.strides, own.kernel, strict=True))
    if gaps or leaps:
        return Refusal("a window may see nothing but padding")
    return None


class ReluAfterMaxPool(_Pooling):
    """MaxPool(Relu(x)) = Relu(MaxPool(x))"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.MaxPool(op.Relu(x), kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return _border_windows(m, x)

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        return op.Relu(op.MaxPool(x, **m.attrs("pool")))


class ReluBeforeMaxPool(_Pooling):
    """Relu(MaxPool(x)) = MaxPool(Relu(x))"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Relu(op.MaxPool(x, kernel_shape=op.attr("kernel"), _label="pool"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return _border_windows(m, x)

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        return op.MaxPool(op.Relu(x), **m.attrs("pool"))


RULES = (
    GlobalAveragePoolToReduceMean, ReduceMeanToGlobalAveragePool, AveragePoolToGlobal, ReluAfterMaxPool,
    ReluBeforeMaxPool,
)  # fmt: skip
