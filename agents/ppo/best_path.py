"""Learning from the best path found so far: some episodes begin on it, and the policy imitates it.

Good sequences are rare among many measured steps, and a gain of 4% after one of 40% hardly moves a policy gradient.
Returning to what was reached and exploring from there is the idea of Go-Explore (Ecoffet et al., Nature 2021);
imitating one's own best episodes that of self-imitation learning (Oh et al., ICML 2018).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
import torch
from numpy.typing import NDArray

from agents.ppo.policy import CandidatePolicy
from envs import GraphRewriteEnv
from envs.observation import Observation
from graph_rewrite.errors import UserError

CLEAR = 0.01
"""A difference in speed-up that is more than noise, in training and in rollouts of the trained policy."""
FRONTIER = 0.75
"""Share of the restarts that go on from the end of the best path; the others begin somewhere on the way."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """A decision on the best path."""

    observation: Observation
    mask: NDArray[np.bool_]
    """bool [A + 1], the legal actions."""
    action: int
    key: str
    """Finds the candidate again."""


class BestPath(gymnasium.Wrapper[Observation, int, Observation, int]):
    """Keeps the actions that led to the fastest graph so far, and begins a share of the episodes on that path.

    A new best is measured again before it counts: the fastest of many quick measurements is partly luck, and what is
    found so stands from then on. `info["confirmed_speedup"]` is that of the best path's end. An episode that goes on
    from the path's end first takes an action that was not tried there, and ends with the first that gains nothing: a
    look at the neighbours of the best graph, one by one. The others go on as ever.

    Args:
        env: a GraphRewriteEnv.
        restarts: probability that an episode begins on the best path, 0 to 1.
    """

    def __init__(self, env: GraphRewriteEnv, restarts: float) -> None:
        super().__init__(env)
        if not 0.0 <= restarts <= 1.0:
            raise UserError(f"restarts must be a probability, 0 to 1, got {restarts}")
        self._rewriting, self.restarts = env, restarts
        self.path: tuple[PathStep, ...] = ()
        self.speedup = 1.0
        """Confirmed speed-up of the best path's end."""
        self._steps: list[PathStep] = []
        self._tried: dict[str, set[str]] = {}
        self._frontier = False
        self._observation: Observation | None = None

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [A + 1]: what is legal, and at the end of the best path what was not tried there before."""
        mask = self._rewriting.action_masks()
        if self._frontier and len(self._steps) == len(self.path):
            tried = self._tried.get(self._rewriting.graph.hash, set())
            fresh = mask.copy()
            for k in np.flatnonzero(mask[:-1]):
                fresh[k] = self._rewriting.candidates[int(k)].key not in tried
            fresh[-1] = False
            if fresh.any():
                return fresh
        return mask

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, perhaps on the best path."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._steps, self._frontier, self._observation = [], False, observation
        random = self._rewriting.np_random
        if self.path and random.random() < self.restarts:
            self._frontier = bool(random.random() < FRONTIER)
            length = len(self.path) if self._frontier else int(random.integers(1, len(self.path) + 1))
            if length < self._rewriting.settings.horizon:
                for step in self.path[:length]:
                    keys = [candidate.key for candidate in self._rewriting.candidates]
                    observation, _, _, _, info = self.env.step(keys.index(step.key))
                self._steps, self._observation = list(self.path[:length]), observation
        return observation, info

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action; a fruitless one beyond the best path's end truncates the episode."""
        rewriting = self._rewriting
        assert self._observation is not None
        if action != rewriting.no_op and rewriting.action_masks()[action]:
            key = rewriting.candidates[int(action)].key
            if self._frontier and len(self._steps) == len(self.path):
                self._tried.setdefault(rewriting.graph.hash, set()).add(key)
            self._steps.append(PathStep(self._observation, rewriting.action_masks(), int(action), key))
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = observation
        gained = bool(info["measured"]) and not info["failure"] and self._keep(float(info["speedup"]))
        info["confirmed_speedup"] = self.speedup
        fruitless = self._frontier and bool(info["measured"]) and not gained
        return observation, reward, terminated, truncated or (fruitless and not terminated), info

    def _keep(self, speedup: float) -> bool:
        """Return whether the episode stands at a new best; its path is then the one to follow."""
        if speedup <= self.speedup * (1.0 + CLEAR):
            return False
        confirmed = self._rewriting.problem.settle(self._rewriting.graph).speedup
        if confirmed <= self.speedup * (1.0 + CLEAR / 2):
            return False
        self.path, self.speedup = tuple(self._steps), confirmed
        return True


def imitate(policy: CandidatePolicy, path: tuple[PathStep, ...], steps: int, max_grad_norm: float) -> float:
    """Gradient steps towards the actions of a path; the last loss, the mean negative log-likelihood in nats."""
    observations = {key: np.stack([step.observation[key] for step in path]) for key in path[0].observation}
    masks: Any = np.stack([step.mask for step in path])
    actions = torch.as_tensor([step.action for step in path], device=policy.device)
    tensors: Any = policy.obs_to_tensor(observations)[0]
    policy.set_training_mode(True)
    loss = torch.zeros(())
    for _ in range(steps):
        _, log_likelihood, _ = policy.evaluate_actions(tensors, actions, action_masks=masks)
        loss = -log_likelihood.mean()
        policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
        policy.optimizer.step()
    return float(loss.detach())
