"""A small closed world for searches: every reachable graph can be listed, and the way to the best one leads uphill."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from onnx import helper

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Deployment, Effort, Latency
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.models import open_model
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import OperatorCountMeter, _write

FORMS = ("Relu", "ThresholdedRelu", "LeakyRelu", "Clip")
"""Four ways to write max(x, 0); the rules lead from each to its neighbours."""
WEIGHTS = {"Relu": 5.0, "ThresholdedRelu": 6.0, "LeakyRelu": 7.0, "Clip": 1.0}
"""Milliseconds: a valley lies between the first form and the last, which is best."""
OTHERS_MS = 1.0


class _Change(Rule):
    """max(x, 0) written otherwise"""

    before, after = "", ""

    def source(self, op: Any, x: Any) -> Any:
        if self.before in ("ThresholdedRelu", "LeakyRelu"):
            return getattr(op, self.before)(x, alpha=op.attr("alpha"))
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        if self.after == "Relu":
            return op.Relu(x)
        if self.after == "Clip":
            return op.Clip(x, op.constant(np.zeros((), np.float32)))
        return getattr(op, self.after)(x, alpha=0.0)


class ReluAsThresholded(_Change):
    """Relu(x) = ThresholdedRelu(x, alpha=0)"""

    before, after = FORMS[0:2]


class ThresholdedAsRelu(_Change):
    """ThresholdedRelu(x, alpha=0) = Relu(x)"""

    before, after = FORMS[1], FORMS[0]


class ThresholdedAsLeaky(_Change):
    """ThresholdedRelu(x, alpha=0) = LeakyRelu(x, alpha=0)"""

    before, after = FORMS[1:3]


class LeakyAsClip(_Change):
    """LeakyRelu(x, alpha=0) = Clip(x, 0)"""

    before, after = FORMS[2:4]


RULES = (ReluAsThresholded(), ThresholdedAsRelu(), ThresholdedAsLeaky(), LeakyAsClip())


def graph_cost(graph: Graph) -> float:
    """Milliseconds of a graph, exactly."""
    return 1.0 + sum(WEIGHTS.get(node.op, OTHERS_MS) for node in graph.nodes.values())


def costs_of_all(sites: int) -> list[float]:
    """Return the costs of all graphs reachable from a chain, by enumeration of forms: 4 ** sites values, sorted."""
    return sorted(
        1.0 + sites * OTHERS_MS + sum(WEIGHTS[form] for form in forms) for forms in product(FORMS, repeat=sites)
    )


@dataclass
class ExactMeter(OperatorCountMeter):
    """Latency is `cost`, times a factor per refused optimiser."""

    cost: Callable[[Graph], float] = graph_cost
    refused: Mapping[str, float] = field(default_factory=dict)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        for node in graph.nodes.values():
            if node.op in self.failing:
                return Latency.failed(self.failing[node.op], f"{node.op} fails")
        ms, baseline_ms = self.cost(graph), self.cost(self.baseline)
        for name in graph.disabled_optimizers:
            ms *= self.refused.get(name, 1.0)
        speedup = baseline_ms / ms
        return Latency(ms, speedup, (speedup, speedup), 1, baseline_ms)


def chain_problem(folder: Path, sites: int = 2, granularity: str = "site") -> Problem:
    """A chain of Relu and Tanh, `sites` of each, under the four rules."""
    nodes, x = [], "x"
    for i in range(sites):
        nodes.append(helper.make_node("Relu", [x], [f"r{i}"], f"relu{i}"))
        nodes.append(helper.make_node("Tanh", [f"r{i}"], [f"n{i}"], f"tanh{i}"))
        x = f"n{i}"
    path = _write(folder / f"chain{sites}.onnx", nodes, [], (2, 3), x)
    return problem_on(path, folder, Rewriter(RULES, granularity=granularity, deployment=False))  # type: ignore[arg-type]


def problem_on(path: Path, folder: Path, rewriter: Rewriter, **meter: Any) -> Problem:
    """A file as a problem with an exact meter."""
    model = open_model(f"file:{path}")
    return Problem(model, rewriter, ExactMeter(model.original, **meter), Deployment(), folder / "work")
