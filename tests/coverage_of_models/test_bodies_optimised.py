"""Searches with a planted clock go into the bodies of If, Loop and Scan, and what they write computes the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import onnx
import pytest

import rewritegym
from graph_rewrite import load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from tests.coverage_of_models import planted_meter
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains
from tests.coverage_of_models.test_matrix import assert_same, feeds_of, opened, outputs_of
from tests.envs.fakes import OperatorCountMeter
from tests.graph_rewrite.body_models import TEXTS, body_model


class InnerMeter(OperatorCountMeter):
    """A millisecond for each operator, those in bodies included."""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        ms, before = _operators(graph), _operators(self.baseline)
        return Latency(ms, before / ms, (before / ms, before / ms), 1, before)


def _operators(graph: Graph) -> float:
    protos = [node.proto for node in graph.nodes.values() if node.opaque and node.proto is not None]
    return float(len(graph.nodes) + sum(1 for proto in protos for _ in _inside(proto)))


def _inside(proto: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for body in attribute_graphs(proto):
        yield from inner_nodes(body)


def operators(model: onnx.ModelProto) -> int:
    return len(list(inner_nodes(model.graph)))


@pytest.mark.parametrize("agent", ["greedy", "taso"])
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_bodies_are_rewritten(name: str, agent: str, tmp_path: Path) -> None:
    model = body_model(name)
    meter = mock.patch.object(planted_meter, "PlantedMeter", InnerMeter)
    with meter, planted_gains(in_process=True):
        found = rewritegym.optimize(model, threads=1, time_limit=60, **{**OPTIONS, "agent": agent})
    written = found.save(tmp_path / "result.onnx")
    assert not found.result.is_original, found.message
    assert operators(onnx.load(written)) < operators(model)
    session, result = opened(model), rewritegym.session(written)
    for shapes in [found.problem.model.shapes, *([{"x": (7, 4)}] if "symbolic" in name else [])]:
        feeds = feeds_of(session, load(model, shapes), shapes)
        for choice in (True, False):
            given = {name: value if value.dtype != bool else np.array(choice) for name, value in feeds.items()}
            assert_same(outputs_of(session, given), outputs_of(result, given), "result", 1e-4)
