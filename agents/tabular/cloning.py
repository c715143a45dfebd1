"""Imitation of chains that are known to be good, and behaviour cloning of the best ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agents.tabular.game import IntArray, WindowGame
from agents.tabular.policy import StatePolicy
from agents.tabular.run import LearningRun

BATCH = 128
"""Decisions of an update."""


class Decisions(NamedTuple):
    """States and the actions to take in them, int64 [D] each."""

    states: IntArray
    actions: IntArray


def best_chains(game: WindowGame, windows: IntArray) -> Decisions:
    """Return the decisions along the best chain of each of some windows, the stop at its end included."""
    states, actions, here = list[IntArray](), list[IntArray](), game.roots[windows]
    while len(here):
        chosen = game.best_actions(here)
        states.append(here)
        actions.append(chosen)
        here = game.after[here, chosen][~game.over[here, chosen]]
    return Decisions(np.concatenate(states), np.concatenate(actions))


def imitate(policy: StatePolicy, decisions: Decisions) -> float:
    """Take a step towards some decisions, and return their mean negative log-likelihood in nats."""
    _, likelihoods, _ = policy.assess(*decisions)
    loss = -likelihoods.mean()
    policy.descend(loss)
    return float(loss.detach())


def drawn(decisions: Decisions, count: int, random: np.random.Generator) -> Decisions:
    """Return some of the decisions, at most `count`, each at most once."""
    chosen = random.permutation(len(decisions.states))[:count]
    return Decisions(decisions.states[chosen], decisions.actions[chosen])


def clone(run: LearningRun) -> None:
    """Imitate the best chain of every window of training. It takes no step of the environment: each decision that is
    imitated counts as one."""
    decisions = best_chains(run.game, run.train)
    while run.left:
        batch = drawn(decisions, min(BATCH, run.left), run.random)
        imitate(run.policy, batch)
        run.took(len(batch.states))
