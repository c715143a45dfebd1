"""The benchmark of lists of rules: each rule everywhere, in order, and an interval around what it gains."""

import numpy as np
import pytest

from benchmarks.rules.rule_lists import Arguments, compare, rewritten
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators.evaluation import run_graph
from tests.graph_rewrite.rules.checking import ops, random_feeds, weights

TEXT = "(float[2,4,16] x) => (y) { p = MatMul(x, v) h = Add(p, a) r = Relu(h) q = MatMul(r, w) y = Add(q, a) }"


def layers():
    return model(TEXT, v=weights(16, 16), a=weights(16), w=weights(16, 16, seed=1))


def test_rules_are_applied_in_order_at_all_their_sites():
    graph = layers()
    after = rewritten(graph, "LinearToPointwiseConv,PointwiseConvToLinear")
    assert ops(after) == ops(graph)
    assert ops(rewritten(graph, "LinearToPointwiseConv")).count("Conv") == 2
    feeds = random_feeds(graph)
    assert np.allclose(run_graph(after, feeds)[0], run_graph(graph, feeds)[0])


def test_a_name_or_an_order_that_leads_nowhere():
    with pytest.raises(ValueError, match="there is no rule 'Fast'"):
        rewritten(layers(), "Fast")
    with pytest.raises(ValueError, match="PointwiseConvToLinear has no site"):
        rewritten(layers(), "PointwiseConvToLinear")


def test_an_interval_around_the_gain(tmp_path):
    graph = layers()
    options = Arguments(lists=("LinearToGemm",), refuse=("MatMulAddFusion",), instances=2, budget=0.02)
    found, baseline_ms = compare(graph, rewritten(graph, "LinearToGemm"), options, tmp_path)
    assert 0.0 < found.low < found.speedup < found.high
    assert baseline_ms > 0.0
