"""Layers behind embeddings looked up in tables instead of computed: what depends on a token alone is a row of a table.

A function of each row commutes with Gather, and a linear one with the sum of token, segment and position embeddings
too. A normalisation in between takes the mean, which is linear, and divides by the standard deviation, a number per row
that ONNX's LayerNormalization gives as its third output. So the first linear layers behind the embeddings of a
transformer need no product. With diag(g) the scale, s the shift and C = 1 - 11'/n, which takes the mean of a row,

    LayerNormalization(e; g, s) w + b = (e C diag(g) w) / deviation(e) + (s w + b)

Tables have a row per token of the vocabulary: the model grows by as many columns as the layers have.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, ClassVar

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, split
from graph_rewrite.rules.helpers.constants import as_scale, as_vector, varies_along
from graph_rewrite.rules.helpers.element_types import is_float
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.operands import in_order, refuse_broadcast_scale


class _Embedding(Rule):
    family = "embedding"
    shared_interior = True


class _OfLookup(_Embedding):
    def of_rows(self, m: Match, t: Ref) -> Refusal | None:
        """Refuse a value that is not rows looked up in a table of numbers."""
        return None if t.rank == 2 and is_float(t) else Refusal("what is looked up in is not a table of numbers")


def _lookup(op: Any, table: Any, tokens: Any, **more: Any) -> Any:
    return op.Gather(table, tokens, axis=0, **more)


class MatMulOfLookup(_OfLookup):
    """MatMul(Gather(t, i), w) = Gather(MatMul(t, w), i), rows of t looked up; t and w constant matrices"""

    def source(self, op: PatternBuilder, t: Const, i: Any, w: Const) -> Any:
        return op.MatMul(_lookup(op, t, i), w)

    def check(self, m: Match, t: Ref, i: Ref, w: Ref) -> Refusal | None:
        return self.of_rows(m, t) or (None if w.rank == 2 else Refusal("the weight is not a matrix"))

    def target(self, op: ReplacementBuilder, m: Match, t: Ref, i: Ref, w: Ref) -> Any:
        return _lookup(op, op.MatMul(t, w), i)


class NormOfLookup(_OfLookup):
    """f(Gather(t, i)) = Gather(f(t), i) for f in LayerNormalization, RMSNormalization over the last axis, rows of t
    looked up; all but i constant"""

    def source(self, op: PatternBuilder, t: Const, i: Any, g: Const, s: Maybe) -> Any:
        norms = op.any_of(("LayerNormalization", "RMSNormalization"))
        return norms(_lookup(op, t, i, _label="rows"), g, s, axis=op.attr("axis", -1), _label="norm")

    def check(self, m: Match, t: Ref, i: Ref, g: Ref, s: Ref | None) -> Refusal | None:
        if s is not None and not s.is_const:
            return Refusal("the shift is not constant")
        if m.attr("axis") not in (-1, m.value("rows").rank - 1):
            return Refusal("the normalisation runs over more than the last axis")
        return refuse_broadcast_scale((g, s), 1) or self.of_rows(m, t)

    def target(self, op: ReplacementBuilder, m: Match, t: Ref, i: Ref, g: Ref, s: Ref | None) -> Any:
        node = m.node("norm")
        parameters = (t, g) if s is None else (t, g, s)
        return _lookup(op, op.apply(node.op, node.domain, {**node.attrs, "axis": -1}, parameters, 1)[0], i)


class ArithmeticOfLookup(_OfLookup):
    """f(Gather(t, i), c) = Gather(f(t, c), i) for f in Add, Sub, Mul, Div with the operands in either order, rows of t
    looked up; t constant and c a constant number or one per column"""

    def source(self, op: PatternBuilder, t: Const, i: Any, c: Const) -> Any:
        return op.any_of(("Add", "Sub", "Mul", "Div"))(_lookup(op, t, i, _label="rows"), c, _label="f", _any_order=True)

    def check(self, m: Match, t: Ref, i: Ref, c: Ref) -> Refusal | None:
        refused = self.of_rows(m, t)
        if refused is not None:
            return refused
        if c.rank > m.value("rows").rank or not varies_along(c, 1, t.shape[1]):
            return Refusal("the constant varies along more than the columns")
        return None

    def target(self, op: ReplacementBuilder, m: Match, t: Ref, i: Ref, c: Ref) -> Any:
        return _lookup(op, apply_like(op, m, "f", *in_order(m, "f", m.value("rows"), t, as_scale(op, c))), i)


class _OfEmbedding(_Embedding):
    """Linear layers of a normalised sum of embeddings. Linear(x; w, b) is Add(MatMul(x, w), b), w a matrix and b
    constant per column."""

    error_growth: ClassVar[float] = 7e-7
    """Largest difference to the direct product measured in float32 (`benchmarks.families`), relative to the largest
    magnitude of the output."""

    def refuse(self, m: Match, e: Ref, g: Ref, s: Ref | None, *layers: tuple[Ref, Ref]) -> Refusal | None:
        """Refuse linear layers (weight, bias) of e normalised that cannot be looked up."""
        if e.dtype != TensorProto.FLOAT or m.attr("axis") not in (-1, e.rank - 1):
            return Refusal("no normalisation of float32 over the last axis")
        if g.shape != e.shape[-1:] or (s is not None and (not s.is_const or s.shape != g.shape)):
            return Refusal("scale and shift are not one constant per channel")
        readers = [node for node in m.consumers(m.value("norm")) if node.op == "MatMul"]
        if len(readers) > len(layers):
            return Refusal(f"{len(readers)} products read the normalised rows, more than this rule replaces")
        for w, b in layers:
            if w.rank != 2 or not varies_along(b, 1, w.shape[1]):
                return Refusal("a weight is not a matrix, or a bias varies along more than the columns")
        terms = _terms(m, e)
        if terms is None:
            return Refusal("what is normalised is not a sum of constants and of rows looked up in constant tables")
        return None if any(not ref.is_const for _, ref in terms) else Refusal("nothing is looked up")

    def looked_up(
        self, op: ReplacementBuilder, m: Match, e: Ref, g: Ref, s: Ref | None, *layers: tuple[Ref, Ref]
    ) -> tuple[Ref, ...]:
        """Return the linear layers of the normalised rows, and these rows."""
        widths = [w.shape[1] for w, _ in layers]
        w = concat(op, [w for w, _ in layers], 1)
        b = concat(op, [as_vector(op, b, width) for (_, b), width in zip(layers, widths, strict=True)], 0)
        x, _, scale = op.LayerNormalization(e, g, s, **m.attrs("norm"), _outputs=3)
        weighted = op.Mul(op.Reshape(g, op.ints(g.type.size, 1)), w)
        weighted = op.Sub(weighted, op.ReduceMean(weighted, op.ints(0), keepdims=1))
        shares = [
            op.MatMul(ref, weighted) if table is None else _lookup(op, op.MatMul(table, weighted), ref)
            for table, ref in _terms(m, e) or ()
        ]
        # Constants first among themselves, so that they fold into one.
        kinds = [[r for r in shares if r.is_const is constant] for constant in (False, True)]
        total = reduce(op.Add, [reduce(op.Add, refs) for refs in kinds if refs])
        shift = b if s is None else op.Add(op.MatMul(s, w), b)
        y = op.Add(op.Mul(total, scale), shift)
        return *((y,) if len(layers) == 1 else split(op, y, widths, y.rank - 1)), x


def _terms(m: Match, e: Ref) -> list[tuple[Ref | None, Ref]] | None:
    """Return the summands of e: (None, constant), or (table, tokens) for rows that are looked up; None where another
    operator computes a summand."""
    if e.is_const:
        return [(None, e)] if e.rank and e.shape[-1] > 1 else None
    node = m.producer(e)
    if node is None or node.domain or any(v is None or m.graph.types[v] is None for v in node.inputs):
        return None
    inputs = [m.ref(v) for v in node.inputs if v is not None]
    if node.op in ("Add", "Sum"):
        found: list[tuple[Ref | None, Ref]] = []
        for ref in inputs:
            terms = _terms(m, ref)
            if terms is None or ref.shape[-1] != e.shape[-1]:
                return None
            found += terms
        return found
    if node.op == "Gather" and node.attrs.get("axis", 0) == 0 and inputs[0].is_const and inputs[0].rank == 2:
        return [(inputs[0], inputs[1])]
    return None


class LinearOfEmbedding(_OfEmbedding):
    """Linear(x; w, b), x = (Sum(MatMul(c, v)) + Sum(Gather(MatMul(t, v), i))) / deviation(e) + (MatMul(s, w) + b), x,
    where x = LayerNormalization(e; g, s), e = Sum(c) + Sum(Gather(t, i)) and v is diag(g) w less the mean of its rows;
    all but i constant"""

    def source(self, op: PatternBuilder, e: Any, g: Const, s: Maybe, w: Const, b: Const) -> Any:
        x = op.LayerNormalization(e, g, s, axis=op.attr("axis", -1), _label="norm")
        return op.Add(op.MatMul(x, w), b), x

    def check(self, m: Match, e: Ref, g: Ref, s: Ref | None, w: Ref, b: Ref) -> Refusal | None:
        return self.refuse(m, e, g, s, (w, b))

    def target(self, op: ReplacementBuilder, m: Match, e: Ref, g: Ref, s: Ref | None, w: Ref, b: Ref) -> Any:
        return self.looked_up(op, m, e, g, s, (w, b))


class ThreeLinearsOfEmbedding(_OfEmbedding):
    """Linear(x; q), Linear(x; k), Linear(x; v), x = Split(y), x, where y is Linear(x; Concat(q, k, v)) as
    LinearOfEmbedding has it, x = LayerNormalization(e; g, s) and e is a sum of constants and of rows looked up in
    constant tables: the query, key and value projections of the first layer"""

    symmetric = True

    def source(
        self, op: PatternBuilder, e: Any, g: Const, s: Maybe, wq: Const, bq: Const, wk: Const, bk: Const, wv: Const,
        bv: Const,
    ) -> Any:  # fmt: skip
        x = op.LayerNormalization(e, g, s, axis=op.attr("axis", -1), _label="norm")
        return *(op.Add(op.MatMul(x, w), b) for w, b in ((wq, bq), (wk, bk), (wv, bv))), x

    def check(self, m: Match, e: Ref, g: Ref, s: Ref | None, *w: Ref) -> Refusal | None:
        return self.refuse(m, e, g, s, *zip(w[::2], w[1::2], strict=True))

    def target(self, op: ReplacementBuilder, m: Match, e: Ref, g: Ref, s: Ref | None, *w: Ref) -> Any:
        return self.looked_up(op, m, e, g, s, *zip(w[::2], w[1::2], strict=True))


RULES = (LinearOfEmbedding, ThreeLinearsOfEmbedding, MatMulOfLookup, NormOfLookup, ArithmeticOfLookup)
