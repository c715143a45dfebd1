"""Imitation of one's own best episodes, the idea of self-imitation learning (Oh et al., ICML 2018)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from agents.ppo.best_path import PathStep
from agents.ppo.policy import CandidatePolicy


def imitate(
    policy: CandidatePolicy, path: tuple[PathStep, ...], steps: int, max_grad_norm: float, batch_size: int = 16
) -> float:
    """Take gradient steps towards the actions of a path, each on at most `batch_size` of its decisions, drawn anew;
    return the last loss, the mean negative log-likelihood in nats."""
    policy.set_training_mode(True)
    loss = torch.zeros(())
    for _ in range(steps):
        drawn = [path[i] for i in torch.randperm(len(path))[:batch_size].tolist()]
        observations = {key: np.stack([step.observation[key] for step in drawn]) for key in drawn[0].observation}
        masks: Any = np.stack([step.mask for step in drawn])
        actions = torch.as_tensor([step.action for step in drawn], device=policy.device)
        tensors: Any = policy.obs_to_tensor(observations)[0]
        _, log_likelihood, _ = policy.evaluate_actions(tensors, actions, action_masks=masks)
        loss = -log_likelihood.mean()
        policy.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), max_grad_norm)
        policy.optimizer.step()
    return float(loss.detach())
