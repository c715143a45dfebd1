"""Algorithms by name, what each of them sees, and the training of one with one seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Literal

import numpy as np
import torch

from agents.core.config import EncoderConfig
from agents.tabular.cloning import clone
from agents.tabular.expert_iteration import expert_iteration
from agents.tabular.game import WindowGame
from agents.tabular.policy import new_policy
from agents.tabular.ppo import PPOVariant
from agents.tabular.reinforce import reinforce
from agents.tabular.run import LearningRun, LearningSettings
from agents.tabular.splits import FamilySplit
from agents.tabular.states import StateObservations
from agents.tabular.untrained import best_first_actor, random_actor
from envs.window.table import WindowTable
from graph_rewrite.errors import UserError

Learn = Callable[[LearningRun], None]
View = Literal["graph", "nodes", "candidates"]
"""What a policy sees: the `graph` by graph attention; its `nodes` alone, each by itself; or the features of the
`candidates` and of the whole, without any node."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A learning algorithm as the benchmark runs it."""

    learn: Learn
    """Improves the policy of a run, or sets its actor."""
    about: str
    view: View = "graph"


@dataclass(frozen=True, slots=True)
class Component:
    """A part of an algorithm, and the two algorithms whose scores say what it is worth."""

    name: str
    with_it: str
    without_it: str


def act_at_random(run: LearningRun) -> None:
    """Take random actions."""
    run.actor = random_actor(run.game, run.random)


def act_best_first(run: LearningRun) -> None:
    """Take the step that saved most in the windows of training."""
    run.actor = best_first_actor(run.game, run.train)


ALGORITHMS = MappingProxyType(
    {
        "random": Algorithm(act_at_random, "any legal action, the stop included"),
        "best-first": Algorithm(act_best_first, "the step whose rule saved most on its class elsewhere"),
        "cloning": Algorithm(clone, "imitation of the best chain of every window of training"),
        "reinforce": Algorithm(reinforce, "REINFORCE with a learnt baseline"),
        "expert-iteration": Algorithm(expert_iteration, "a tree search guided by the policy, which imitates it"),
        "ppo": Algorithm(PPOVariant(), "MaskablePPO with imitation of its best episodes"),
        "ppo-no-imitation": Algorithm(PPOVariant(imitation=0), "MaskablePPO alone"),
        "ppo-no-attention": Algorithm(PPOVariant(), "nodes without graph attention", "nodes"),
        "ppo-no-graph": Algorithm(PPOVariant(), "features of candidates without any node", "candidates"),
        "ppo-end-reward": Algorithm(PPOVariant(reward="end"), "the whole saving as the reward of the last step"),
        "ppo-model-reward": Algorithm(PPOVariant(reward="model"), "savings as shares of the whole model's time"),
        "ppo-restarts": Algorithm(PPOVariant(restarts=0.5), "half of the episodes begin on the best path so far"),
        "ppo-effects": Algorithm(PPOVariant(effects=4), "a head that predicts what each step saves"),
    }
)  # fmt: skip

COMPONENTS = (
    Component("graph attention", "ppo", "ppo-no-attention"),
    Component("nodes of the graph", "ppo-no-attention", "ppo-no-graph"),
    Component("graph attention and nodes", "ppo", "ppo-no-graph"),
    Component("imitation of the best episodes", "ppo", "ppo-no-imitation"),
    Component("reward after every step", "ppo", "ppo-end-reward"),
    Component("reward in shares of the window", "ppo", "ppo-model-reward"),
    Component("restarts on the best path", "ppo-restarts", "ppo"),
    Component("head of effects", "ppo-effects", "ppo"),
    Component("learning by reward, beyond cloning", "ppo", "cloning"),
)
"""Parts that are claimed to help only where the interval of the difference lies above 0."""


def algorithm_of(name: str) -> Algorithm:
    """Return an algorithm by its name, or the function of a module: `my_module:my_algorithm`.

    Raises:
        UserError: there is none.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise UserError(f"there is no algorithm {name!r}; there are {', '.join(ALGORITHMS)}, and MODULE:FUNCTION")
    try:
        learn = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise UserError(f"{name}: no such algorithm can be imported: {error}") from error
    return Algorithm(learn, (learn.__doc__ or "").partition("\n")[0])


class TabularBenchmark:
    """Trains algorithms in the windows of one table.

    Args:
        table: the table.
        settings: shared by all algorithms.

    Raises:
        UserError: a setting out of range.
    """

    def __init__(self, table: WindowTable, settings: LearningSettings) -> None:
        settings.check()
        self.table, self.settings, self.game = table, settings, WindowGame(table)
        # One thread: the batches are small, and the same seed gives the same policy.
        torch.set_num_threads(1)

    @cached_property
    def graphs(self) -> StateObservations:
        """Observations with nodes and edges."""
        return StateObservations(self.table)

    @cached_property
    def candidates(self) -> StateObservations:
        """Observations without them."""
        return StateObservations(self.table, graphs=False)

    def run(self, algorithm: Algorithm, split: FamilySplit, seed: int) -> LearningRun:
        """Train an algorithm from the beginning, and return the finished run; the same one for the same seed."""
        settings, seen = self.settings, algorithm.view
        encoder = EncoderConfig(hidden=settings.hidden, layers=settings.layers if seen == "graph" else 0)
        states = self.candidates if seen == "candidates" else self.graphs
        policy = new_policy(self.game, states, encoder, settings.learning_rate, seed)
        train, held_out = (np.array(windows, dtype=np.int64) for windows in (split.train, split.held_out))
        run = LearningRun(self.game, policy, train, held_out, settings, seed)
        algorithm.learn(run)
        if not run.taken:
            run.curve.clear()  # there was no training
        return run
