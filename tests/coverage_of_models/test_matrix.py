"""Each model of the matrix is loaded, normalised, rewritten in up to twenty ways, and compared in ONNX Runtime."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from graph_rewrite import load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import SymbolicShapeError, normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.rules import Rewriter, rule_set
from graph_rewrite.runtime.ort_worker.comparison import compare_values
from graph_rewrite.runtime.ort_worker.feeds import Feeds, FeedSpec, ModelInput, make_feeds
from graph_rewrite.runtime.ort_worker.narrow_floats import run
from graph_rewrite.task.models import Shapes
from tests.coverage_of_models.matrix import MATRIX, REFUSED, UNRUNNABLE
from tests.graph_rewrite import custom_ops

CANDIDATES = 20
TOLERANCE = {"float16": 2e-2, "float8": 0.2}
_REWRITER = Rewriter(rule_set("default"), "site")


def opened(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if any(node.domain == custom_ops.DOMAIN for node in model.graph.node):
        options.register_custom_ops_library(custom_ops.library())
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def feeds_of(session: ort.InferenceSession, graph: Graph, shapes: Shapes = MappingProxyType({})) -> Feeds:
    inputs = [
        ModelInput(item.name, item.type, shapes.get(item.name, tuple(item.shape))) for item in session.get_inputs()
    ]
    return make_feeds(inputs, FeedSpec(0, index_ranges(graph), element_shapes=element_shapes(graph)))


def outputs_of(session: ort.InferenceSession, feeds: Feeds) -> list[Any]:
    return run(session, [output.name for output in session.get_outputs()], feeds)


def rewritten(normal: Graph) -> list[tuple[str, Graph]]:
    found = [("normalised", normal)]
    found += [(candidate.rule, candidate.apply()) for candidate in _REWRITER.candidates(normal)[:CANDIDATES]]
    return found


def assert_same(expected: list[Any], found: list[Any], where: str, tolerance: float) -> None:
    for wanted, given in zip(expected, found, strict=True):
        error, problem = compare_values(wanted, given)
        assert not problem, f"{where}: {problem}"
        assert error <= tolerance, where


@pytest.mark.parametrize("feature", sorted(MATRIX))
def test_every_rewrite_computes_the_same(feature: str) -> None:
    model = MATRIX[feature]()
    original = load(model)
    if feature in REFUSED:
        with pytest.raises(SymbolicShapeError) as refusal:
            normalise(original)
        assert REFUSED[feature] in str(refusal.value)
        return
    graphs = rewritten(normalise(original)[0])
    if feature in UNRUNNABLE:
        assert all(load(to_proto(graph)).hash == graph.hash for _, graph in graphs)
        return
    session = opened(model)
    feeds = feeds_of(session, original)
    expected = outputs_of(session, feeds)
    types = " ".join(item.type for item in session.get_inputs())
    tolerance = max((allowed for name, allowed in TOLERANCE.items() if name in types), default=1e-4)
    for rule, graph in graphs:
        assert_same(expected, outputs_of(opened(to_proto(graph)), feeds), rule, tolerance)


def test_the_matrix_covers_at_least_sixty_features() -> None:
    assert len(MATRIX) >= 60
    assert REFUSED.keys() | UNRUNNABLE <= MATRIX.keys()
    assert np.unique(list(MATRIX)).size == len(MATRIX)
