"""Random searches: recorded rewrites without measurements."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Deployment
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.symbolic.bindings import DimensionBindings, bind
from graph_rewrite.task.models import open_model
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import OperatorCountMeter


@dataclass(frozen=True)
class Step:
    """A recorded rewrite."""

    key: str
    rule: str
    description: str = ""


def open_dynamic(path: Path, *shapes: str, rules: tuple[Rule, ...] | None = None) -> tuple[Problem, DimensionBindings]:
    """A model with symbolic dimensions as a problem at the bindings that `--shape` would give."""
    bindings = bind(path, shapes)
    model = open_model(f"file:{path}", bindings.shapes)
    rewriter = Rewriter(rules) if rules is not None else Rewriter()
    return Problem(model, rewriter, OperatorCountMeter(model.original), Deployment(), path.parent / "work"), bindings


def take(problem: Problem, graph: Graph, rule: str) -> tuple[Graph, Step]:
    """Apply a rule at most of its sites."""
    offered = [c for c in problem.rewriter.candidates(graph) if c.rule == rule]
    return _take(max(offered, key=lambda candidate: candidate.count))


def walk(problem: Problem, seed: int, steps: int) -> list[Step]:
    """Random rewrites, classes rather than single sites."""
    rng, graph, found = random.Random(seed), problem.model.graph, list[Step]()
    while len(found) < steps:
        offered = [c for c in problem.rewriter.candidates(graph) if c.kind != "site" or rng.random() < 0.3]
        graph, step = _take(rng.choice(offered))
        found.append(step)
    return found


def _take(candidate: Candidate) -> tuple[Graph, Step]:
    return candidate.apply(), Step(candidate.key, candidate.rule, candidate.description)
