"""Simulations of a tree search on a made-up game."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import numpy as np

from agents.mcts import tree as mcts
from agents.mcts.simulations import TreeSearch
from graph_rewrite.latency import Latency


@dataclass(frozen=True)
class State:
    """A number; two actions lead to larger ones, until it has two digits."""

    number: int

    @property
    def key(self) -> str:
        return str(self.number)

    @property
    def over(self) -> bool:
        return self.number > 9

    def measured(self, latency: Latency) -> State:
        return self


@dataclass
class FailingGame:
    """Multiples of three cannot be timed; any other number is the faster the larger it is."""

    measured: list[int] = field(default_factory=list)
    can_step: bool = True

    @property
    def can_measure(self) -> bool:
        return len(self.measured) < 40

    def step(self, state: State, action: int) -> State | None:
        return None if state.over else State(2 * state.number + action)

    def measure(self, state: State) -> Latency:
        self.measured.append(state.number)
        if state.number % 3 == 0:
            return Latency.failed("crash", "it crashed")
        speedup = 1.0 + state.number / 100
        return Latency(1.0, speedup, (speedup, speedup), 1, speedup)


class EvenGuide:
    """Knows nothing, and expects nothing."""

    def priors(self, state: State, rng: np.random.Generator) -> dict[int, float]:
        return {0: 0.5, 1: 0.5}

    def gain(self, state: State, speedup: float) -> float:
        return 0.0


def test_what_cannot_be_timed_is_no_node_and_does_not_set_the_scale() -> None:
    game, guide = FailingGame(), EvenGuide()
    search = TreeSearch(game, State(1), guide, "none", 3, np.random.default_rng(0), guide)
    score = mcts.uct(exploration=0.5, best_share=0.5)
    tree = search.run(partial(mcts.select, score=score, allowed=lambda visits: 2, depth=8))
    assert sorted(tree.nodes, key=int) == ["1", "2", "4", "5", "8", "10", "11", "16", "17"]
    assert tree.low == 1.01
    assert tree.high == 1.17
    assert len(game.measured) == len(set(game.measured)) == 11  # 3 and 9 failed, once each
