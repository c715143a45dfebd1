"""One training as an algorithm sees it: a policy, windows to train it in, a budget of steps, and scoring meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from agents.core.config import EncoderConfig
from agents.tabular.game import Actor, Floats, IntArray, WindowGame
from agents.tabular.policy import StatePolicy
from graph_rewrite.errors import UserError


@dataclass(frozen=True, slots=True)
class LearningSettings:
    """Settings that all algorithms share."""

    steps: int = 50_000
    """Steps of training."""
    evaluations: int = 10
    """Times that the policy is scored in the held-out windows, at equal distances; once more before training."""
    hidden: int = 32
    """Width of the encoder."""
    layers: int = 2
    """Graph attention layers of the encoder."""
    learning_rate: float = 1e-3
    entropy: float = 0.03
    """Weight of the policy's entropy in the loss, where an algorithm explores."""

    def check(self) -> None:
        """Refuse what no training can have.

        Raises:
            UserError: a number out of range.
        """
        for name in ("steps", "evaluations", "hidden"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.layers < 0:
            raise UserError(f"layers must be 0 or more, got {self.layers}")
        heads = EncoderConfig().attention_heads
        if self.hidden % heads:
            raise UserError(f"hidden must be a multiple of the {heads} attention heads, got {self.hidden}")
        if not self.learning_rate > 0.0:
            raise UserError(f"learning_rate must be above 0, got {self.learning_rate}")


class CurvePoint(NamedTuple):
    """The policy after some steps and seconds of training: its return in each held-out window."""

    steps: int
    seconds: float
    returns: Floats


class EpisodeSteps(NamedTuple):
    """The steps of some episodes, in arrays of equal length."""

    episode: IntArray
    states: IntArray
    actions: IntArray
    returns: Floats
    """What the episode saved from this step on."""


@dataclass
class LearningRun:
    """One training of one algorithm on one split with one seed.

    An algorithm is a function of it. It improves `policy`, or sets `actor` to something else that chooses actions; it
    draws from `random` alone, calls `took` after each update, and ends when `left` is 0.
    """

    game: WindowGame
    policy: StatePolicy
    train: IntArray
    """Windows that it may learn from."""
    held_out: IntArray
    """Windows that it is scored in, and may not look at."""
    settings: LearningSettings = field(default_factory=LearningSettings)
    seed: int = 0
    clock: Callable[[], float] = time.process_time
    """CPU seconds of this process by default, which other programs disturb less."""
    actor: Actor | None = None
    """Chooses the actions that are scored; by default the likeliest ones of `policy`."""

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.taken, self.seconds = 0, 0.0
        self.curve: list[CurvePoint] = []
        """Scores from before training to its end; empty where an algorithm has taken no step."""
        points = max(1, self.settings.evaluations)
        self._marks = [round(self.settings.steps * number / points) for number in range(points + 1)]
        self._score()
        self._began = self.clock()

    @property
    def left(self) -> int:
        """Steps that may still be taken."""
        return max(0, self.settings.steps - self.taken)

    def took(self, steps: int) -> None:
        """Count steps after the policy has learnt from them, and score it where a part of the budget is spent.

        A step is one of the environment, or a decision that is imitated.
        """
        self.seconds += self.clock() - self._began
        self.taken += steps
        self._score()
        self._began = self.clock()

    def returns(self) -> Floats:
        """Return what the policy saves in each held-out window now, float64."""
        return self.game.play(self.actor or self.policy.likeliest, self.held_out)

    def draw_windows(self, count: int) -> IntArray:
        """Return windows to train in, each drawn from all of them."""
        return self.random.choice(self.train, size=count)

    def sample(self, windows: IntArray) -> EpisodeSteps:
        """Play an episode in each of some windows, with actions drawn by the policy."""
        game, states = self.game, self.game.roots[windows]
        running, found = np.arange(len(windows)), list[tuple[IntArray, ...]]()
        rewards, to_go = list[Floats](), np.zeros(len(windows))
        while len(running):
            here = states[running]
            actions = self.policy.sample(here, self.random)
            found.append((running, here, actions))
            rewards.append(game.rewards[here, actions])
            states[running] = game.after[here, actions]
            running = running[~game.over[here, actions]]
        returns = list[Floats]()
        for (episode, _, _), reward in zip(reversed(found), reversed(rewards), strict=True):
            to_go[episode] += reward
            returns.insert(0, to_go[episode])
        episodes, visited, actions = (np.concatenate(column) for column in zip(*found, strict=True))
        return EpisodeSteps(episodes, visited, actions, np.concatenate(returns))

    def _score(self) -> None:
        """Add a point of the curve for each mark that was reached. Scoring is no part of the training's time."""
        reached = [mark for mark in self._marks if mark <= self.taken]
        new = reached[len(self.curve) :]
        if new:
            returns = self.returns()
            self.curve += [CurvePoint(mark, self.seconds, returns) for mark in new]
