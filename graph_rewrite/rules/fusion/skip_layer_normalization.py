"""A sum and the LayerNormalization behind it as one operator, SkipLayerNormalization, and back.

ONNX Runtime's fused operator is often slower than what it replaces.
"""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.fusion.kernels import refuse_kernel
from graph_rewrite.rules.helpers.operands import ordered


class _Fusion(Rule):
    family = "fusion"


def _refuse_skip(m: Match, label: str, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Refusal | None:
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
    if any(parameter is not None and parameter.shape != total[-1:] for parameter in (gamma, beta)):
        return Refusal("scale and shift are not one number per channel")
    return refuse_kernel(x)


def _in_order(total: tuple[int, ...], x: Ref, skip: Ref) -> tuple[Ref, Ref]:
    """Return the operand of full shape first; of two such the one that was made first, so that a site has one
    rewrite."""
    if x.shape != total or (skip.shape == total and not ordered(x, skip)):
        return skip, x
    return x, skip


class FuseSkipLayerNormalization(_Fusion):
    """LayerNormalization(x + skip, gamma, beta) = SkipLayerNormalization(x, skip, gamma, beta)"""

    def source(self, op: PatternBuilder, x: Any, skip: Any, gamma: Any, beta: Maybe) -> Any:
        total = op.Add(x, skip, _label="sum")
        return op.LayerNormalization(total, gamma, beta, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))

    def check(self, m: Match, x: Ref, skip: Ref, gamma: Ref, beta: Ref | None) -> Refusal | None:
        return _refuse_skip(m, "sum", x, skip, gamma, beta)

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
        refusal = _refuse_skip(m, "sum", x, skip, gamma, beta)
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
        return _refuse_skip(m, "sum", x, skip, gamma, beta)

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


RULES = (
    FuseSkipLayerNormalization,
    FuseSkipLayerNormalizationWithSum,
    FuseSkipLayerNormalizationWithBias,
    SplitSkipLayerNormalization,
    SplitSkipLayerNormalizationWithSum,
)
