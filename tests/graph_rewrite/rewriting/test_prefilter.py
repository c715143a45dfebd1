"""The prefilter rules out only patterns that would not have matched: a search without it gives the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Graph, Rewriter, Rule, load
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rewriting.patterns import Const, Values, build_pattern
from graph_rewrite.rewriting.prefilter import PatternIndex
from graph_rewrite.rulebook.catalogue import all_sets
from tests.graph_rewrite.rules.checking import model
from tests.invariants import keys
from tests.strategies import models, varied_models

RULES = all_sets()


class Naive(Rewriter):
    """Tries every rule at every node."""

    def _plausible(self, graph: Graph, anchor: Node, reads: set[int]) -> Iterator[tuple[int, Rule]]:
        yield from enumerate(self.rules)


INDEXED, NAIVE = Rewriter(RULES), Naive(RULES)


class TestAgainstSearchWithoutIndex:
    @settings(max_examples=20)
    @given(model=st.one_of(models(), varied_models()))
    def test_candidates_and_refusals_are_the_same(self, model: onnx.ModelProto) -> None:
        graph, _ = normalise(load(model))
        assert keys(INDEXED.candidates(graph)) == keys(NAIVE.candidates(graph))
        assert INDEXED.explain(graph) == NAIVE.explain(graph)

    @settings(max_examples=4)
    @given(model=varied_models(), seed=st.integers(0, 2**16))
    def test_they_stay_the_same_along_rewrites(self, model: onnx.ModelProto, seed: int) -> None:
        """The index looks at values that a match without it would not have read, or not at those that it would."""
        graph, _ = normalise(load(model))
        rng = np.random.default_rng(seed)
        for _ in range(4):
            found = INDEXED.candidates(graph)
            assert keys(found) == keys(Naive(RULES).candidates(graph))
            if not found:
                return
            graph = found[int(rng.integers(len(found)))].apply()


def plausible(graph: Graph, *sources: Any) -> list[list[int]]:
    """Return, per node, the numbers of the patterns that the index lets through."""
    index = PatternIndex([build_pattern(source) for source in sources])
    return [index.plausible(graph, node, set()) for node in graph.order()]


class TestWhatIsRuledOut:
    def test_by_operators_two_levels_up(self) -> None:
        graph = model("(float[2,3] x) => (y, z) { a = Exp(x) b = Neg(a) y = Abs(b) c = Neg(x) z = Abs(c) }")
        found = plausible(graph, lambda op, x: op.Abs(op.Neg(op.Exp(x))), lambda op, x: op.Abs(op.Neg(x)))
        assert sorted(found) == [[], [], [], [0, 1], [1]]

    def test_by_constants(self) -> None:
        graph = model("(float[3] x, float[3] v) => (y, z) { y = Mul(x, c) z = Mul(x, v) }", c=[1.0, 2.0, 3.0])

        def scaled(op: Any, x: Any, c: Const) -> Any:
            return op.Mul(x, c)

        assert sorted(plausible(graph, scaled)) == [[], [0]]

    def test_by_two_operands_where_the_pattern_wants_two(self) -> None:
        graph = model("(float[3] x) => (y, z) { a = Exp(x) b = Exp(x) y = Add(a, x) z = Add(a, b) }")
        sums = [found for found in plausible(graph, lambda op, x, y: op.Add(op.Exp(x), op.Exp(y))) if found]
        assert sums == [[0]]

    def test_by_the_first_operand_of_many(self) -> None:
        def after(op: Any, x: Any, rest: Values) -> Any:
            return op.any_of({"Concat", "Sum"})(op.Exp(x), rest)

        graph = model("(float[3] x) => (y, z) { a = Exp(x) y = Sum(x, a) z = Sum(a, x) }")
        assert plausible(graph, after)[1:] == [[], [0]]

    def test_by_the_number_of_outputs(self) -> None:
        graph = model("(float[6] x) => (a, b) { a, b = Split<num_outputs = 2>(x) }")
        found = plausible(graph, lambda op, x: op.Split(x, _outputs=3), lambda op, x: op.Split(x, _outputs=2))
        assert found == [[1]]

    def test_commuted_operands_are_looked_at_both_ways(self) -> None:
        graph = model("(float[3] x, float[3] v) => (y) { a = Exp(x) b = Mul(v, a) y = Add(v, b) }")
        found = plausible(graph, lambda op, x, y, z: op.Add(op.Mul(op.Exp(x), y), z))
        assert found[-1] == [0]


def test_what_is_looked_at_is_remembered() -> None:
    """After an edit above, the anchor must be matched again."""
    graph = model("(float[3] x) => (y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    index = PatternIndex([build_pattern(lambda op, x: op.Abs(op.Neg(op.Sin(x))))])
    anchor = graph.order()[-1]
    reads: set[int] = set()
    assert index.plausible(graph, anchor, reads) == []
    inner = graph.node_of(anchor.inputs[0])  # type: ignore[arg-type]
    assert inner is not None
    assert reads == {anchor.inputs[0], inner.inputs[0]}


def test_patterns_come_in_their_order_whatever_they_share() -> None:
    graph = model("(float[3] x) => (y) { a = Exp(x) b = Neg(a) y = Abs(b) }")
    sources = [
        lambda op, x: op.Abs(op.Neg(op.Exp(x))), lambda op, x: op.Abs(x), lambda op, x: op.Abs(op.Neg(x)),
        lambda op, x: op.any_of({"Abs", "Exp"})(x), lambda op, x: op.Abs(op.Neg(op.Exp(x))),
    ]  # fmt: skip
    assert plausible(graph, *sources)[-1] == [0, 1, 2, 3, 4]
