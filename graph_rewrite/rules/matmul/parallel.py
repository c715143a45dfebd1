"""Parallel MatMuls: several products that share an operand become one product and a Split, and back.

On a GPU this saves launches (TASO's merge of the query, key and value projections); on one CPU thread the separate
products are often as fast, and a Split costs a copy: hence both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import split
from graph_rewrite.rules.helpers.constants import as_vector, parts, varies_along
from graph_rewrite.rules.helpers.operands import has_bias
from graph_rewrite.rules.matmul.algebra import vectors_refused


class _Parallel(Rule):
    family = "matmul"


class _Merge(_Parallel):
    symmetric = True


def _plain_refused(m: Match, weights: Sequence[Ref]) -> Refusal | None:
    if all(has_bias(m, m.root(i)) for i in range(len(weights))):
        return Refusal("all products have constant biases, which merge as well")
    return _unequal_weights(weights)


def _unequal_weights(weights: Sequence[Ref]) -> Refusal | None:
    if any(weight.shape[:-1] != weights[0].shape[:-1] for weight in weights):
        return Refusal("the weights differ in more than their columns")
    return vectors_refused(*weights)


def _unequal_biases(weights: Sequence[Ref], biases: Sequence[Ref]) -> Refusal | None:
    if not all(varies_along(b, 1, w.shape[-1]) for w, b in zip(weights, biases, strict=True)):
        return Refusal("a bias varies along more than the columns")
    return _unequal_weights(weights)


def _merged(op: ReplacementBuilder, x: Ref, weights: Sequence[Ref], biases: Sequence[Ref] = ()) -> tuple[Ref, ...]:
    widths = [weight.shape[-1] for weight in weights]
    y = op.MatMul(x, op.Concat(*weights, axis=weights[0].rank - 1))
    if biases:
        vectors = [as_vector(op, bias, width) for bias, width in zip(biases, widths, strict=True)]
        y = op.Add(y, op.Concat(*vectors, axis=0))
    return split(op, y, widths, axis=y.rank - 1)


class MergeTwoMatMuls(_Merge):
    """MatMul(x, w1), MatMul(x, w2) = Split(MatMul(x, Concat(w1, w2))), weights constant"""

    def source(self, op: PatternBuilder, x: Any, w1: Const, w2: Const) -> Any:
        return op.MatMul(x, w1), op.MatMul(x, w2)

    def check(self, m: Match, x: Ref, w1: Ref, w2: Ref) -> Refusal | None:
        return _plain_refused(m, (w1, w2))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w1: Ref, w2: Ref) -> Any:
        return _merged(op, x, (w1, w2))


class MergeThreeMatMuls(_Merge):
    """MatMul(x, w1), MatMul(x, w2), MatMul(x, w3) = Split(MatMul(x, Concat(w1, w2, w3))), weights constant"""

    def source(self, op: PatternBuilder, x: Any, w1: Const, w2: Const, w3: Const) -> Any:
        return op.MatMul(x, w1), op.MatMul(x, w2), op.MatMul(x, w3)

    def check(self, m: Match, x: Ref, w1: Ref, w2: Ref, w3: Ref) -> Refusal | None:
        return _plain_refused(m, (w1, w2, w3))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w1: Ref, w2: Ref, w3: Ref) -> Any:
        return _merged(op, x, (w1, w2, w3))


class MergeTwoBiasedMatMuls(_Merge):
    """Add(MatMul(x, w1), b1), Add(MatMul(x, w2), b2) = Split(Add(MatMul(x, Concat(w1, w2)), Concat(b1, b2))),
    weights and biases constant"""

    def source(self, op: PatternBuilder, x: Any, w1: Const, w2: Const, b1: Const, b2: Const) -> Any:
        return op.Add(op.MatMul(x, w1), b1), op.Add(op.MatMul(x, w2), b2)

    def check(self, m: Match, x: Ref, w1: Ref, w2: Ref, b1: Ref, b2: Ref) -> Refusal | None:
        return _unequal_biases((w1, w2), (b1, b2))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w1: Ref, w2: Ref, b1: Ref, b2: Ref) -> Any:
        return _merged(op, x, (w1, w2), (b1, b2))


class MergeThreeBiasedMatMuls(_Merge):
    """Add(MatMul(x, w1), b1), Add(MatMul(x, w2), b2), Add(MatMul(x, w3), b3) =
    Split(Add(MatMul(x, Concat(w1, w2, w3)), Concat(b1, b2, b3))), weights and biases constant

    The query, key and value projections of an attention layer.
    """

    def source(
        self, op: PatternBuilder, x: Any, w1: Const, w2: Const, w3: Const, b1: Const, b2: Const, b3: Const
    ) -> Any:
        return op.Add(op.MatMul(x, w1), b1), op.Add(op.MatMul(x, w2), b2), op.Add(op.MatMul(x, w3), b3)

    def check(self, m: Match, x: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, b3: Ref) -> Refusal | None:
        return _unequal_biases((w1, w2, w3), (b1, b2, b3))

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, w1: Ref, w2: Ref, w3: Ref, b1: Ref, b2: Ref, b3: Ref
    ) -> Any:
        return _merged(op, x, (w1, w2, w3), (b1, b2, b3))


class MergeMatMulsSharedRight(_Merge):
    """MatMul(a, w), MatMul(b, w) = Split(MatMul(Concat(a, b, axis of rows), w), axis of rows)"""

    def source(self, op: PatternBuilder, w: Any, a: Any, b: Any) -> Any:
        return op.MatMul(a, w), op.MatMul(b, w)

    def check(self, m: Match, w: Ref, a: Ref, b: Ref) -> Refusal | None:
        if a.is_const or b.is_const:
            return Refusal("a left operand is constant")
        if a.rank < 2 or (*a.shape[:-2], a.shape[-1]) != (*b.shape[:-2], b.shape[-1]):
            return Refusal("the left operands differ in more than their rows")
        return vectors_refused(w)

    def target(self, op: ReplacementBuilder, m: Match, w: Ref, a: Ref, b: Ref) -> Any:
        y = op.MatMul(op.Concat(a, b, axis=a.rank - 2), w)
        return split(op, y, (a.shape[-2], b.shape[-2]), axis=y.rank - 2)


class _Separate(_Parallel):
    """Split a product with a constant weight along its columns."""

    def check(self, m: Match, x: Ref, w: Ref, *others: Ref | None) -> Refusal | None:
        rank = m.root().rank
        if m.attr("axis") % rank != rank - 1:
            return Refusal("the Split is not along columns")
        for bias in others[1:]:
            if bias is not None and not varies_along(bias, 1, w.shape[-1]):
                return Refusal("the bias varies along more than the columns")
        return vectors_refused(x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, *others: Ref | None) -> Any:
        widths = [m.root(i).shape[-1] for i in range(len(m.root_values))]
        products = [op.MatMul(x, weight) for weight in parts(op, w, widths, axis=-1)]
        if len(others) < 2 or others[1] is None:
            return tuple(products)
        biases = parts(op, as_vector(op, others[1], sum(widths)), widths, axis=0)
        return tuple(op.Add(product, bias) for product, bias in zip(products, biases, strict=True))


class SeparateTwoMatMuls(_Separate):
    """Split(MatMul(x, Concat(w1, w2))) = MatMul(x, w1), MatMul(x, w2), weights constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, sizes: Maybe) -> Any:
        return op.Split(op.MatMul(x, w), sizes, axis=op.attr("axis", 0), _outputs=2)


class SeparateThreeMatMuls(_Separate):
    """Split(MatMul(x, Concat(w1, w2, w3))) = MatMul(x, w1), MatMul(x, w2), MatMul(x, w3), weights constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, sizes: Maybe) -> Any:
        return op.Split(op.MatMul(x, w), sizes, axis=op.attr("axis", 0), _outputs=3)


class SeparateTwoBiasedMatMuls(_Separate):
    """Split(Add(MatMul(x, Concat(w1, w2)), Concat(b1, b2))) = Add(MatMul(x, w1), b1), Add(MatMul(x, w2), b2),
    weights and biases constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, sizes: Maybe, b: Const) -> Any:
        return op.Split(op.Add(op.MatMul(x, w), b), sizes, axis=op.attr("axis", 0), _outputs=2)


class SeparateThreeBiasedMatMuls(_Separate):
    """Split(Add(MatMul(x, Concat(w1, w2, w3)), Concat(b1, b2, b3))) =
    Add(MatMul(x, w1), b1), Add(MatMul(x, w2), b2), Add(MatMul(x, w3), b3), weights and biases constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, sizes: Maybe, b: Const) -> Any:
        return op.Split(op.Add(op.MatMul(x, w), b), sizes, axis=op.attr("axis", 0), _outputs=3)


RULES = (
    MergeTwoMatMuls, MergeThreeMatMuls, MergeTwoBiasedMatMuls, MergeThreeBiasedMatMuls, MergeMatMulsSharedRight,
    SeparateTwoMatMuls, SeparateThreeMatMuls, SeparateTwoBiasedMatMuls, SeparateThreeBiasedMatMuls,
)  # fmt: skip
