"""Rewrites whose gains are planted: one holds for all shapes, one for a batch of 1 alone, one for a length alone."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from agents.optimization import run
from agents.optimization.outcome import Optimization
from agents.optimization.specialising import ShapeBundle, specialise
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.latency import Deployment, Effort, Latency, Plan
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.task.models import Model
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import OperatorCountMeter


class DivideAsMultiply(Rule):
    """Div(x, c) = Mul(x, 1 / c)"""

    def source(self, op: Any, x: Any, c: Any) -> Any:
        return op.Div(x, c)

    def check(self, m: Any, x: Any, c: Any) -> Any:
        return None if c.is_const else Refusal("not a constant")

    def target(self, op: Any, m: Any, x: Any, c: Any) -> Any:
        return op.Mul(x, op.Div(op.constant(np.float32(1.0)), c))


class SqueezedRelu(Rule):
    """Relu(x) = Unsqueeze(Relu(Squeeze(x, 0)), 0) for a batch of 1"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def check(self, m: Any, x: Any) -> Any:
        return None if x.shape[0] == 1 and x.rank == 3 else Refusal("the batch is not 1")

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Unsqueeze(op.Relu(op.Squeeze(x, op.ints(0))), op.ints(0))


RULES = (DivideAsMultiply(), SqueezedRelu())
COSTS = {"Div": 8.0, "Mul": 2.0}
RELU = 6.0


class PlantedMeter(OperatorCountMeter):
    """Milliseconds by operator: divisions are dear, and Relu is where its input has three axes."""

    noise = 0.001
    threads = 1
    squeezed = MappingProxyType({1: 1.0, 2: 20.0})
    """Milliseconds of a Relu on two axes, by the number of threads."""

    def ms(self, graph: Graph) -> float:
        return 10.0 + sum(self._cost(graph, node) for node in graph.nodes.values())

    def _cost(self, graph: Graph, node: Node) -> float:
        if node.op != "Relu":
            return COSTS.get(node.op, 0.0)
        type = None if node.inputs[0] is None else graph.types.get(node.inputs[0])
        return self.squeezed[self.threads] if type is not None and type.rank == 2 else RELU

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        return self.compare(self.baseline, graph)

    def compare(self, reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
        before, after = self.ms(reference), self.ms(candidate)
        speedup = before / after
        return Latency(after, speedup, (speedup - self.noise, speedup + self.noise), 9, before)


def planted(model: Model, deployment: Deployment, workspace: Path) -> PlantedMeter:
    """A `meter` argument of `open_problem`."""
    meter = PlantedMeter(model.original)
    meter.threads = deployment.threads
    return meter


def rewriter() -> Rewriter:
    return Rewriter(RULES, deployment=False)


def plant(patch: pytest.MonkeyPatch) -> None:
    """Give every problem of an optimisation the planted rules and meter."""
    open_problem = run.open_problem

    def opened(*args: Any, **options: Any) -> Problem:
        return replace(open_problem(*args, **options, meter=planted), rewriter=rewriter())

    patch.setattr(run, "open_problem", opened)


@dataclass
class Run:
    """A run of an optimisation, and what `specialise` was called with."""

    outcome: Optimization
    arguments: tuple[Any, ...]

    def again(self, problem: Problem | None = None) -> ShapeBundle:
        """Make the bundle anew, for the first shape alone."""
        first, general, recording, found, bindings, _ = self.arguments
        found = [found[0] if problem is None else replace(found[0], problem=problem)]
        return specialise(problem or first, general, recording, found, bindings, time.monotonic() + 100.0)
