"""A bias and the Gelu behind it as one operator of ONNX Runtime, and back."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.fusion.kernels import refuse_kernel


class _Fusion(Rule):
    family = "fusion"


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


RULES = (FuseBiasGelu, SplitBiasGelu, FuseBiasFastGelu, SplitFastGelu)
