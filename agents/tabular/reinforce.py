"""REINFORCE with a learnt baseline (Williams 1992, Machine Learning 8, 229-256)."""

from __future__ import annotations

import torch

from agents.tabular.run import LearningRun

EPISODES = 64
"""Episodes of an update."""
VALUE_WEIGHT = 0.5
"""Weight of the value's error in the loss."""


def reinforce(run: LearningRun) -> None:
    """Make actions that saved more than expected likelier, by one step along the gradient of all episodes of a batch.

    The value head predicts what a state still saves, and is the baseline.
    """
    while run.left:
        steps = run.sample(run.draw_windows(EPISODES))
        values, likelihoods, entropies = run.policy.assess(steps.states, steps.actions)
        returns = torch.from_numpy(steps.returns).float()
        advantages = returns - values.detach()
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        errors = (returns - values) ** 2
        entropy = run.settings.entropy * entropies
        run.policy.descend((VALUE_WEIGHT * errors - advantages * likelihoods - entropy).mean())
        run.took(len(steps.states))
