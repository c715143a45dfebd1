"""A timer of windows that knows what they take, and chains made up for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from agents.core.base import Budget, Search
from agents.regional.agent import RegionalAgent
from agents.regional.chains import RewriteChain
from agents.regional.options import RegionalOptions
from agents.regional.sites import RewriteStep
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from tests.agents.toys import graph_cost

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
