"""The operators of a graph, and the cost model over them."""

from pathlib import Path

import numpy as np
import pytest
from onnx import numpy_helper

from graph_rewrite import load
from graph_rewrite.latency import OperatorCostMeter
from graph_rewrite.latency.graph_operators import operators_of
from graph_rewrite.onnx_files.loading import load as load_model
from graph_rewrite.rules.rewriter import Rewriter
from tests.envs.fakes import write_tower
from tests.graph_rewrite.sample_models import parsed, weights


def test_one_spec_per_operator_and_equal_ones_have_equal_keys(tmp_path: Path) -> None:
    graph = load(write_tower(tmp_path / "tower.onnx", 3))
    specs = list(operators_of(graph))
    assert [spec.op for spec in specs] == [node.op for node in graph.order()]
    assert len({spec.key for spec in specs}) == len({node.op for node in graph.nodes.values()})
    product = specs[0]
    assert (product.input_types, product.output_types) == (((1, (4, 4)), (1, (4, 4))), ((1, (4, 4)),))
    assert product.constant_inputs == {1: None}


def test_many_constant_indices_are_timed_where_they_lie() -> None:
    indices = np.random.default_rng(0).integers(0, 512, 100)
    text = "(float[512,8] x) => (float[100,8] y) { a = Gather(x, i) y = Add(a, w) }"
    graph = load(parsed(text, numpy_helper.from_array(indices, "i"), weights("w", 100, 8)))
    gather, add = operators_of(graph)
    found = gather.constant_inputs[1]
    assert found is not None
    assert found.tolist() == indices.tolist()
    assert add.constant_inputs == {1: None}


def test_the_sum_of_operators_falls_when_operators_go(tmp_path: Path) -> None:
    graph = load_model(write_tower(tmp_path / "tower.onnx", 3, 64))
    drop = next(
        c for c in Rewriter(deployment=False).candidates(graph) if c.rule == "ComposeTransposes" and c.kind == "class"
    )
    with OperatorCostMeter(graph, operators_of, workspace=tmp_path) as meter:
        latency = meter.measure(drop.apply())
        assert latency.ok
        assert latency.ms < latency.baseline_ms
        assert meter.measure(graph).speedup == pytest.approx(1.0)


def test_only_graphs_have_operators() -> None:
    class Other:
        hash, disabled_optimizers, session_settings = "", frozenset[str](), ()

    with pytest.raises(TypeError, match="not those of Other"):
        list(operators_of(Other()))
