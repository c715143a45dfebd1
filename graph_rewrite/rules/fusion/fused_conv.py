"""A convolution and the activation behind it as one operator of ONNX Runtime, FusedConv, and back."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.fusion.kernels import refuse_kernel


class _Fusion(Rule):
    family = "fusion"


class _FuseConv(_Fusion):
    activation: ClassVar[str]

    def check(self, m: Match, *inputs: Ref) -> Refusal | None:
        return refuse_kernel(inputs[0])

    def fuse(self, op: ReplacementBuilder, m: Match, *inputs: Ref | None, params: tuple[float, ...] = ()) -> Any:
        return op.ms.FusedConv(*inputs, **m.attrs("conv"), activation=self.activation, activation_params=params or None)


class FuseConvRelu(_FuseConv):
    """Relu(Conv(x, w, b)) = FusedConv(x, w, b; Relu)"""

    activation = "Relu"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return op.Relu(op.Conv(x, w, b, _label="conv"))

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return self.fuse(op, m, *inputs)


class FuseConvSigmoid(_FuseConv):
    """Sigmoid(Conv(x, w, b)) = FusedConv(x, w, b; Sigmoid)"""

    activation = "Sigmoid"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return op.Sigmoid(op.Conv(x, w, b, _label="conv"))

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return self.fuse(op, m, *inputs)


class FuseConvTanh(_FuseConv):
    """Tanh(Conv(x, w, b)) = FusedConv(x, w, b; Tanh)"""

    activation = "Tanh"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return op.Tanh(op.Conv(x, w, b, _label="conv"))

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return self.fuse(op, m, *inputs)


class FuseConvLeakyRelu(_FuseConv):
    """LeakyRelu(Conv(x, w, b); alpha) = FusedConv(x, w, b; LeakyRelu, alpha)"""

    activation = "LeakyRelu"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return op.LeakyRelu(op.Conv(x, w, b, _label="conv"), alpha=op.attr("alpha", 0.01))

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return self.fuse(op, m, *inputs, params=(m.attr("alpha"),))


class FuseConvClip(_FuseConv):
    """Clip(Conv(x, w, b), low, high) = FusedConv(x, w, b; Clip, low, high)"""

    activation = "Clip"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe, low: Scalar, high: Scalar) -> Any:
        return op.Clip(op.Conv(x, w, b, _label="conv"), low, high)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, low: Ref, high: Ref) -> Any:
        return self.fuse(op, m, x, w, b, params=(low.scalar(), high.scalar()))


class FuseConvAddRelu(_FuseConv):
    """Relu(Conv(x, w, b) + z) = FusedConv(x, w, b, z; Relu)"""

    activation = "Relu"

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe, z: Any) -> Any:
        return op.Relu(op.Add(op.Conv(x, w, b, _label="conv"), z))

    def check(self, m: Match, *inputs: Ref) -> Refusal | None:
        same = inputs[3].shape == m.value("conv").shape
        return refuse_kernel(inputs[0]) if same else Refusal("what is added is broadcast")

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return self.fuse(op, m, *inputs)


class SplitFusedConv(_Fusion):
    """FusedConv(x, w, b, z; f) = f(Conv(x, w, b) + z)"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe, z: Maybe) -> Any:
        return op.ms.FusedConv(x, w, b, z, _label="conv")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, z: Ref | None) -> Any:
        attrs = m.attrs("conv")
        activation, params = attrs.pop("activation", ""), attrs.pop("activation_params", ())
        result = op.Conv(x, w, b, **attrs)
        result = result if z is None else op.Add(result, z)
        if activation in ("Relu", "Sigmoid", "Tanh"):
            return op.apply(activation, "", {}, (result,), 1)[0]
        if activation == "LeakyRelu" and len(params) == 1:
            return op.LeakyRelu(result, alpha=params[0])
        if activation == "Clip" and len(params) == 2:
            return op.Clip(result, *(op.constant(np.array(bound, np.float32)) for bound in params))
        return result if not activation else Refusal(f"no rule for the activation {activation}")


RULES = (
    FuseConvRelu,
    FuseConvSigmoid,
    FuseConvTanh,
    FuseConvLeakyRelu,
    FuseConvClip,
    FuseConvAddRelu,
    SplitFusedConv,
)
