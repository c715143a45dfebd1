"""The agent `regional` rewrites inside loops and branches: it times windows that hold the whole node."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest

from agents.core.base import Budget
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import Difference, WindowPair
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.rules import rule_set
from graph_rewrite.task.replay import replay
from tests.agents.regional.exact_timer import ExactTimer, agent_with
from tests.agents.toys import problem_on
from tests.graph_rewrite.body_models import body_model


def cost(graph: Graph) -> float:
    """A millisecond for each operator, those in bodies included."""
    protos = [node.proto for node in graph.nodes.values() if node.opaque and node.proto is not None]
    inner = sum(1 for proto in protos for body in attribute_graphs(proto) for _ in inner_nodes(body))
    return float(1 + len(graph.nodes) + inner)


@dataclass
class InnerTimer(ExactTimer):
    """A window takes a millisecond for each operator, those in bodies included."""

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        before, after = cost(cut.before) / 1e3, cost(cut.after) / 1e3
        saved = cut.count * (before - after)
        return Difference(saved, (saved, saved), cut.count, 1, 1, before)


@pytest.mark.parametrize("name", ["chains within If", "a chain within Scan", "a chain within If within Scan"])
def test_finds_gains_inside(name: str, tmp_path: Path) -> None:
    model = body_model(name)
    known = model.graph.output[0]
    model.graph.node.append(onnx.helper.make_node("Exp", [known.name], ["behind"]))
    model.graph.output.append(onnx.ValueInfoProto(name="behind", type=known.type))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    rules = rule_set("DropRepeated,ComposeTransposes,FoldScaleAfterMatMul")
    problem = problem_on(path, tmp_path, Rewriter(rules, "site", deployment=False), cost=cost)
    timer = InnerTimer()
    result = agent_with(timer).optimize(problem, Budget(measurements=200, seconds=60.0))
    assert timer.asked
    assert not result.is_original, result.message
    assert cost(result.graph) < cost(problem.model.graph)
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash
