"""ONNX Runtime's fused operators as explicit targets, and back: some are slower than what they replace.

Here those around Add, MatMul and Conv; `activations` and `normalization` hold the decomposed forms of single operators.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.operands import ordered


class _Fusion(Rule):
    family = "fusion"


def refuse_kernel(ref: Ref) -> Refusal | None:
    """ONNX Runtime's fused kernels for the CPU exist in float32 alone."""
    return None if ref.dtype == TensorProto.FLOAT else Refusal("the fused operator runs in float32 only")


def _refuse_skip(m: Match, label: str, x: Ref, skip: Ref) -> Refusal | None:
    total, rank = m.value(label).shape, max(x.rank, skip.rank)
    if m.attr("axis") not in (-1, rank - 1):
        return Refusal("the normalisation runs over more than the last axis")
    if rank not in (2, 3):
        return Refusal(f"SkipLayerNormalization takes 2 or 3 axes, not {rank}")
    if total not in (x.shape, skip.shape):
        return Refusal("neither operand of the Add has the shape of the sum")
    other = skip.shape if x.shape == total else x.shape
    if other not in (total, total[-2:]) and not (rank == 3 and other == (1, *total[1:])):
        return Refusal("one operand of the Add is broadcast over more than the batch")
    return refuse_kernel(x)


def _in_order(total: tuple[int, ...], x: Ref, skip: Ref) -> tuple[Ref, Ref]:
    """The operand of full shape first; of two such the one that was made first, so that a site has one rewrite."""
    if x.shape != total or (skip.shape == total and not ordered(x, skip)):
        return skip, x
    return x, skip


class FuseSkipLayerNormalization(_Fusion):
    """LayerNormalization(x + skip, gamma, beta) = SkipLayerNormalization(x, skip, gamma, beta)"""

    def source(self, op: PatternBuilder, x: Any, skip: Any, gamma: Any, beta: Maybe) -> Any:
        total = op.Add(x, skip, _label="sum")
        return op.LayerNormalization(total, gamma, beta, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))

    def check(self, m: Match, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Refusal | None:
        return _refuse_skip(m, "sum", x, skip)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Any:
        x, skip = _in_order(m.value("sum").shape, x, skip)
        return op.ms.SkipLayerNormalization(x, skip, gamma, beta, epsilon=m.attr("epsilon"))


class FuseSkipLayerNormalizationWithSum(_Fusion):
    """LayerNormalization(s, gamma, beta), s = SkipLayerNormalization(x, skip, gamma, beta), where s = x + skip"""

    def source(self, op: PatternBuilder, x: Any, skip: Any, gamma: Any, beta: Maybe) -> Any:
        total = op.Add(x, skip, _label="sum")
        normal = op.LayerNormalization(total, gamma, beta, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))
        return normal, total

    def check(self, m: Match, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Refusal | None:
        refusal = _refuse_skip(m, "sum", x, skip)
        if refusal is None and len(m.consumers(m.root(1))) < 2 and not m.is_output(m.root(1)):
            return Refusal("nothing else needs the sum")
        return refusal

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Any:
        x, skip = _in_order(m.value("sum").shape, x, skip)
        results = op.ms.SkipLayerNormalization(x, skip, gamma, beta, epsilon=m.attr("epsilon"), _outputs=4)
        return results[0], results[3]


class FuseSkipLayerNormalizationWithBias(_Fusion):
    """LayerNormalization((x + bias) + skip, gamma, beta) = SkipLayerNormalization(x, skip, gamma, beta, bias)"""

    def source(self, op: PatternBuilder, x: Any, bias: Const, skip: Any, gamma: Any, beta: Maybe) -> Any:
        total = op.Add(op.Add(x, bias), skip, _label="sum")
        return op.LayerNormalization(total, gamma, beta, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))

    def check(self, m: Match, x: Ref, bias: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Refusal | None:
        if bias.shape != x.shape[-1:]:
            return Refusal("the bias is not one number per channel")
        return _refuse_skip(m, "sum", x, skip)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, bias: Ref, skip: Ref, gamma: Ref, beta: Ref | None
    ) -> Any:
        if x.shape != m.value("sum").shape:
            x, skip = skip, x
        return op.ms.SkipLayerNormalization(x, skip, gamma, beta, bias, epsilon=m.attr("epsilon"))


def _skip_layer_normalization(
    op: ReplacementBuilder, m: Match, x: Ref, skip: Ref, *rest: Ref | None
) -> tuple[Ref, Ref]:
    gamma, beta, bias = rest
    total = op.Add(x if bias is None else op.Add(x, bias), skip)
    return op.LayerNormalization(total, gamma, beta, axis=-1, epsilon=m.attr("epsilon")), total


class SplitSkipLayerNormalization(_Fusion):
    """SkipLayerNormalization(x, skip, gamma, beta, bias) = LayerNormalization((x + bias) + skip, gamma, beta)"""

    def source(self, op: PatternBuilder, x: Any, skip: Any, gamma: Any, beta: Maybe, bias: Maybe) -> Any:
        return op.ms.SkipLayerNormalization(x, skip, gamma, beta, bias, epsilon=op.attr("epsilon", 1e-12))

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return _skip_layer_normalization(op, m, *inputs)[0]


class SplitSkipLayerNormalizationWithSum(_Fusion):
    """SkipLayerNormalization(x, skip, gamma, beta, bias) = LayerNormalization(s, gamma, beta), s = (x + bias) + skip"""

    def source(self, op: PatternBuilder, x: Any, skip: Any, gamma: Any, beta: Maybe, bias: Maybe) -> Any:
        results = op.ms.SkipLayerNormalization(
            x, skip, gamma, beta, bias, epsilon=op.attr("epsilon", 1e-12), _outputs=4
        )
        return results[0], results[3]

    def target(self, op: ReplacementBuilder, m: Match, *inputs: Ref) -> Any:
        return _skip_layer_normalization(op, m, *inputs)


class FuseBiasGelu(_Fusion):
    """Gelu(x + bias) = BiasGelu(x, bias)"""

    def source(self, op: PatternBuilder, x: Any, bias: Const) -> Any:
        return op.Gelu(op.Add(x, bias), approximate="none")

    def check(self, m: Match, x: Ref, bias: Ref) -> Refusal | None:
        if x.rank == 0 or bias.shape != x.shape[-1:]:
            return Refusal("the bias is not one number per channel")
        return refuse_kernel(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bias: Ref) -> Any:
        return op.ms.BiasGelu(x, bias)


class SplitBiasGelu(_Fusion):
    """BiasGelu(x, bias) = Gelu(x + bias)"""

    def source(self, op: PatternBuilder, x: Any, bias: Any) -> Any:
        return op.ms.BiasGelu(x, bias)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bias: Ref) -> Any:
        return op.Gelu(op.Add(x, bias))


class FuseBiasFastGelu(_Fusion):
    """Gelu(x + bias; tanh) = FastGelu(x, bias)"""

    def source(self, op: PatternBuilder, x: Any, bias: Const) -> Any:
        return op.Gelu(op.Add(x, bias), approximate="tanh")

    def check(self, m: Match, x: Ref, bias: Ref) -> Refusal | None:
        if x.rank == 0 or bias.shape != x.shape[-1:]:
            return Refusal("the bias is not one number per channel")
        return refuse_kernel(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bias: Ref) -> Any:
        return op.ms.FastGelu(x, bias)


class SplitFastGelu(_Fusion):
    """FastGelu(x, bias) = Gelu(x + bias; tanh)"""

    def source(self, op: PatternBuilder, x: Any, bias: Maybe) -> Any:
        return op.ms.FastGelu(x, bias)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bias: Ref | None) -> Any:
        return op.Gelu(x if bias is None else op.Add(x, bias), approximate="tanh")


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
    FuseSkipLayerNormalization,
    FuseSkipLayerNormalizationWithSum,
    FuseSkipLayerNormalizationWithBias,
    SplitSkipLayerNormalization,
    SplitSkipLayerNormalizationWithSum,
    FuseBiasGelu,
    SplitBiasGelu,
    FuseBiasFastGelu,
    SplitFastGelu,
    FuseConvRelu,
    FuseConvSigmoid,
    FuseConvTanh,
    FuseConvLeakyRelu,
    FuseConvClip,
    FuseConvAddRelu,
    SplitFusedConv,
)
