"""Graphs become e-graphs and come back: nothing is lost."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
from hypothesis import given, settings

from graph_rewrite import load
from graph_rewrite.egraph import EGraph, from_graph, to_graph
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.patterns import COMMUTATIVE
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.sample_models import parsed, weights
from tests.invariants import assert_same_outputs, assert_well_formed
from tests.strategies import feeds_for, varied_models

SAMPLES: list[Callable[[], onnx.ModelProto]] = [
    getattr(sample_models, name)
    for name in (
        "several_outputs", "overridable", "old", "conditional", "loop", "functions", "strings", "sequences",
        "optionals", "omitted", "sparse", "documented", "spare_initializer", "half_precision", "packed_integers",
        "domain_alias", "contrib_only", "custom",
    )
]  # fmt: skip


def there_and_back(graph: Graph) -> Graph:
    egraph = from_graph(graph)
    return to_graph(egraph, {cls: egraph.members(cls)[0] for cls in egraph.classes()})


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: str(sample.__name__))
def test_every_kind_of_model_comes_back(sample: Callable[[], onnx.ModelProto]) -> None:
    graph = load(sample())
    back = there_and_back(graph)
    assert_well_formed(back)
    assert back.hash == graph.hash
    before, after = to_proto(graph), to_proto(back)
    for field in ("node", "initializer", "sparse_initializer", "input", "output"):
        entries = [sorted(e.SerializeToString() for e in getattr(m.graph, field)) for m in (before, after)]
        assert entries[0] == entries[1], field


@given(varied_models(max_blocks=6))
@settings(max_examples=25, deadline=None)
def test_random_models_come_back(model: onnx.ModelProto) -> None:
    graph, _ = normalise(load(model))
    back = there_and_back(graph)
    assert_well_formed(back)
    # Add(a, b) and Add(b, a) in one graph become one.
    assert back.hash == graph.hash or (len(back.nodes) < len(graph.nodes) and has_both_orders(graph))
    feeds = feeds_for(model)
    assert_same_outputs(run_graph(graph, feeds), back, feeds, 0.0, "there and back")


def has_both_orders(graph: Graph) -> bool:
    pairs = {(node.signature, node.inputs) for node in graph.nodes.values() if node.op in COMMUTATIVE}
    return any(a != b and (signature, (b, a)) in pairs for signature, (a, b) in pairs)


def test_equal_nodes_become_one_and_random_ones_do_not() -> None:
    graph = load(
        parsed(
            "(float[2] x) => (float[2] y) { a = Neg(x)  b = Neg(x)  c = Add(a, b)"
            "  r = RandomUniformLike(x)  s = RandomUniformLike(x)  d = Sub(r, s)  y = Add(c, d) }"
        )
    )
    ops = [node.op for node in there_and_back(graph).order()]
    assert ops.count("Neg") == 1
    assert ops.count("RandomUniformLike") == 2


def test_operators_of_one_signature_keep_the_attributes_that_their_operands_imply() -> None:
    """An attribute that says what the operands imply is no part of a signature, and is another for other operands."""
    graph = load(
        parsed(
            "(float[1,3,8,8] x, float[1,3,9] z) => (u, v, w) {"
            "  u = Conv<kernel_shape = [3, 3], strides = [1, 1], pads = [0, 0, 0, 0]>(x, a)"
            "  v = Conv<kernel_shape = [1, 1]>(x, b)  w = Conv<kernel_shape = [2], strides = [1]>(z, c) }",
            weights("a", 2, 3, 3, 3), weights("b", 2, 3, 1, 1), weights("c", 2, 3, 2),
        )
    )  # fmt: skip
    back = there_and_back(graph)
    assert_well_formed(back)
    onnx.checker.check_model(to_proto(back), full_check=True)
    assert back.hash == graph.hash


def test_a_name_that_a_subgraph_reads_survives_a_merge() -> None:
    model = parsed(
        "(float[2] x, bool c) => (float[2] y, float[2] z) {"
        "  t = Neg(x)  u = Abs(x)  z = Relu(u)"
        "  y = If(c) <then_branch = g1 () => (float[2] p) { p = Add(t, t) },"
        " else_branch = g2 () => (float[2] q) { q = Add(u, u) }> }"
    )
    graph = load(model)
    egraph = from_graph(graph)
    values = {graph.names[v]: cls for cls, v in egraph.values.items() if v in graph.names}
    egraph.union(values["t"], values["u"])  # as if a rule had found them equal
    egraph.rebuild()
    cls = egraph.find(values["t"])
    for chosen in egraph.members(cls):
        choice = {c: egraph.members(c)[0] for c in egraph.classes()} | {cls: chosen}
        back = to_graph(egraph, choice)
        assert_well_formed(back)
        onnx.checker.check_model(to_proto(back), full_check=True)


def test_a_choice_that_is_none_is_refused() -> None:
    graph = load(parsed("(float[2] x) => (float[2] y) { a = Neg(x)  y = Abs(a) }"))
    egraph = from_graph(graph)
    choice = {cls: egraph.members(cls)[0] for cls in egraph.classes()}
    with pytest.raises(ValueError, match="has no member for class"):
        to_graph(egraph, {egraph.roots[0]: choice[egraph.roots[0]]})
    egraph.union(egraph.roots[0], egraph.args(choice[egraph.roots[0]])[0])
    egraph.rebuild()
    cls = egraph.find(egraph.roots[0])
    looping = next(node for node in egraph.members(cls) if cls in egraph.args(node))
    with pytest.raises(ValueError, match="the choice has a cycle"):
        to_graph(egraph, {**{c: egraph.members(c)[0] for c in egraph.classes()}, cls: looping})
    with pytest.raises(ValueError, match="not made from a graph"):
        to_graph(EGraph(), {})
