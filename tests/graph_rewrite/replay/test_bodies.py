"""Recorded rewrites inside the bodies of If, Loop and Scan, found again in other files."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.replay import Recording, record, replay
from graph_rewrite.rewriting.body_sites import BodySite
from graph_rewrite.rewriting.candidates import Candidate
from tests.graph_rewrite.body_models import TEXTS, body_model

NAMES = sorted(name for name in TEXTS if "symbolic" not in name)


def opened(model: onnx.ModelProto) -> Graph:
    return normalise(load(model))[0]


def walked(graph: Graph, seed: int) -> tuple[Graph, Recording]:
    rewriter, rng, taken = Rewriter(deployment=False), np.random.default_rng(seed), list[Candidate]()
    start = graph
    for _ in range(4):
        offered = [c for c in rewriter.candidates(graph) if isinstance(c.site, BodySite)]
        if not offered:
            break
        taken.append(offered[int(rng.integers(len(offered)))])
        graph = taken[-1].apply()
    text = json.dumps(record(start, Rewriter(deployment=False), taken, end=graph).to_json())
    return graph, Recording.from_json(json.loads(text))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(2))
def test_the_same_model(name: str, seed: int) -> None:
    graph, recording = walked(opened(body_model(name)), seed)
    assert recording.steps
    found = replay(recording, opened(body_model(name)), Rewriter(deployment=False))
    assert found.complete
    assert found.graph.hash == graph.hash
    assert all(step.exact for step in found.applied)


@pytest.mark.parametrize("name", NAMES)
def test_other_weights(name: str) -> None:
    graph, recording = walked(opened(body_model(name)), 0)
    model = body_model(name)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT and tensor.raw_data:
            tensor.raw_data = (2 * onnx.numpy_helper.to_array(tensor)).tobytes()
    found = replay(recording, opened(model), Rewriter(deployment=False))
    assert found.complete
    operators = [sorted(node.op for node in one.nodes.values()) for one in (found.graph, graph)]
    assert operators[0] == operators[1]
