"""A timer of windows that knows what they take, and chains made up for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.core.base import Budget, Search
from agents.regional.agent import RegionalAgent
from agents.regional.chains import RewriteChain
from agents.regional.options import RegionalOptions
from agents.regional.sites import RewriteStep
from graph_rewrite import Rewriter, save
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules import find_rule
from graph_rewrite.rules.attention.projections import FOLLOWING
from graph_rewrite.task.problem import Problem
from tests.agents.toys import graph_cost, problem_on

BUDGET = Budget(measurements=200, seconds=60.0)
OPTIONS = RegionalOptions()


@dataclass
class ExactTimer:
    """A region takes what `graph_cost` says, within `half` seconds."""

    half: float = 0.0
    asked: list[WindowPair] = field(default_factory=list)
    closed: int = 0

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        self.asked.append(cut)
        before, after = graph_cost(cut.before) / 1e3, graph_cost(cut.after) / 1e3
        saved = cut.count * (before - after)
        return Difference(saved, (saved - self.half, saved + self.half), cut.count, 1, 1, before)

    def close(self) -> None:
        self.closed += 1


def agent_with(timer: ExactTimer, **options: Any) -> RegionalAgent:
    """Make an agent without the climb at the end, which finds what the windows should."""
    return RegionalAgent(RegionalOptions(**{"climb": False, **options}, cache=False), timer=lambda _: timer)


def packed_layers(folder: Path) -> Problem:
    """Two layers of attention, each of which gets queries, keys and values out of one product; the second adds a mask.
    The problem has the rule that cuts them apart, and those that follow it."""
    layer = """{0}l = MatMul({0}, w) {0}r = Reshape({0}l, s) {0}h = Transpose<perm=[2,0,3,1,4]>({0}r)
        {0}q = Gather<axis=0>({0}h, g0) {0}k = Gather<axis=0>({0}h, g1) {0}v = Gather<axis=0>({0}h, g2)
        {0}t = Transpose<perm=[0,1,3,2]>({0}k) {0}s = MatMul({0}q, {0}t) {2} {0}p = Softmax<axis=-1>({3})
        {0}c = MatMul({0}p, {0}v) {0}m = Transpose<perm=[0,2,1,3]>({0}c) {1} = Reshape({0}m, o)"""
    layers = (layer.format("x", "y", "", "xs"), layer.format("y", "z", "yb = Add(ys, b)", "yb"))
    rng = np.random.default_rng(0)
    graph = model(
        f"(float[1,4,6] x) => (z) {{ {' '.join(layers)} }}", w=rng.standard_normal((6, 18)), s=[1, 4, 3, 2, 3],
        o=[1, 4, 6], b=rng.standard_normal((4, 4)), g0=0, g1=1, g2=2,
    )  # fmt: skip
    save(graph, folder / "packed.onnx")
    rules = [find_rule(name) for name in ("HeadsOfGathers", *FOLLOWING)]
    return problem_on(folder / "packed.onnx", folder, Rewriter(rules, "site", deployment=False))


def watched_rounds(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that gets the operators of the best graph as each round begins; rounds do nothing else."""
    begun = list[list[str]]()

    def of_round(agent: RegionalAgent, search: Search, *others: Any) -> bool:
        assert search.best is not None
        begun.append([node.op for node in search.best.graph.order()])
        return False

    monkeypatch.setattr(RegionalAgent, "_round", of_round)
    return begun


def chain(
    saved: float, nodes: set[int], half: float = 0.0, rules: tuple[str, ...] = ("R",), growth: int = 0
) -> RewriteChain:
    steps = tuple(RewriteStep(f"{rule}{sorted(nodes)}", rule, "family") for rule in rules)
    empty: Any = None
    return RewriteChain(
        steps, frozenset(nodes), frozenset(nodes), saved, half, growth, 0.0, WindowPair(empty, empty, 1, str(saved))
    )
