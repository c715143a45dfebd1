"""Rules that are refused for a border, as mutants with a box."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite import Refusal, Rewriter, Rule
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.optimizing.optimizer import Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices
from graph_rewrite.mutate.optimizing.seeds import seeds_of
from graph_rewrite.mutate.search import Limits
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rules import all_rules, find_rule
from graph_rewrite.soundness.floating.comparison import compare


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def two_convolutions() -> Graph:
    """A pointwise convolution with a bias, and one that pads with zeros where that bias is."""
    text = "(float[1,2,8,8] x) => (z) { y = Conv(x, v, a) q = Conv<pads=[1,1,1,1]>(y, w, b) z = Relu(q) }"
    return model(text, v=weights(4, 2, 1, 1), a=weights(4), w=weights(4, 4, 3, 3), b=weights(4))


def test_a_rule_that_is_refused_for_a_border_is_a_mutant_with_boxes_at_the_border() -> None:
    graph = two_convolutions()
    rule = find_rule("ComposePointwiseThenConv")
    assert not Rewriter([rule], deployment=False).candidates(graph)
    ((key, programs),) = seeds_of(graph, [rule]).items()
    original, shapes = key
    finding = prove(RandomTrials(original, shapes), programs[0])
    assert finding is not None
    assert finding.share_wrong == 1 - (6 / 8) ** 2
    assert all(0 in (side[0] for side in box[2:]) or 8 in (side[1] for side in box[2:]) for box in finding.wrong[0])


def test_a_repaired_seed_becomes_a_rule_where_it_costs_less() -> None:
    def by_convolutions(spec: OperatorSpec) -> float:
        return 10.0 if spec.op == "Conv" else 0.0

    graph = two_convolutions()
    limits = Limits(seconds=1e6, depth=1, keep=0.5)
    found = Optimizer(
        Prices(by_convolutions), limits, rounds=1, rules=[find_rule("ComposePointwiseThenConv")]
    ).rules_of(graph)
    pairs = [each for each in found.rules if len(each.rule.operators.nodes) == 2]
    assert pairs
    best = min(pairs, key=lambda each: each.ms)
    assert best.ms < 20.0
    (candidate,) = Rewriter([best.rule], deployment=False).candidates(graph)
    after = candidate.apply()
    assert sum(node.op == "Conv" for node in after.nodes.values()) == 1
    assert compare(graph, after, seed=0, lossy=best.rule.lossy).worst_error < 1e-5


def test_rules_that_apply_or_are_refused_for_something_else_are_no_seeds() -> None:
    graph = two_convolutions()
    assert len(seeds_of(graph, all_rules())) >= 1
    bare = model("(float[1,2,8,8] x) => (z) { y = Conv(x, v) q = Conv<pads=[1,1,1,1]>(y, w) z = Relu(q) }",
                 v=weights(4, 2, 1, 1), w=weights(4, 4, 3, 3))  # fmt: skip
    assert not seeds_of(bare, [find_rule("ComposePointwiseThenConv")])


class JoinHalves(Rule):
    """MatMul(x, w) = Concat(halves of MatMul(x, w))"""

    def source(self, op: Any, x: Any, w: Const) -> Any:
        return op.MatMul(x, w)

    def check(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        return Refusal("refused for its border")

    def target(self, op: Any, m: Match, x: Ref, w: Ref) -> Any:
        first, second = op.Split(op.MatMul(x, w), axis=1, num_outputs=2, _outputs=2)
        return op.Concat(second, first, axis=1)


def test_a_target_with_several_results_of_one_operator_is_read_by_its_results() -> None:
    graph = model("(float[3,4] x) => (z) { y = MatMul(x, w) z = Relu(y) }", w=weights(4, 6))
    ((key, programs),) = seeds_of(graph, [JoinHalves()]).items()
    (made,) = programs
    assert [each.op for each in made.steps] == ["matmul", "layout", "layout", "concat"]
    assert made.steps[-1].inputs == (4, 3)
    finding = prove(RandomTrials(*key), made)
    assert finding is not None
    assert finding.share_wrong == 1, "the halves are exchanged"
