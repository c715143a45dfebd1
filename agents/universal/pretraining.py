"""Gradient steps on the decisions of a table: its best chains are imitated, and effects are predicted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.core.config import PretrainingConfig
from agents.effects.training import effect_loss
from agents.ppo.batches import batch_of
from agents.universal.decisions import TableDecision
from agents.universal.policy import PolicyOutputs, WindowPolicy

VALUE_WEIGHT = 0.5
"""Weight of the critic's loss beside that of imitation, as in PPO."""


class Lessons:
    """Teaches a policy the decisions of a table, in batches drawn by a seed.

    Args:
        policy: the policy; its own optimiser takes the steps.
        decisions: of the windows to learn from.
        config: settings.
        max_grad_norm: gradients are scaled down to this norm.
        seed: of the order of the decisions.
    """

    def __init__(
        self,
        policy: WindowPolicy,
        decisions: Sequence[TableDecision],
        config: PretrainingConfig,
        max_grad_norm: float,
        seed: int,
    ) -> None:
        self.policy, self.decisions, self.config = policy, list(decisions), config
        self._max_grad_norm, self._seed = max_grad_norm, seed

    def epoch(self, number: int) -> Iterator[float]:
        """Pass over all decisions once, the same for the same number, and yield the mean negative log-likelihood of the
        imitated actions after each batch, in nats."""
        order = np.random.default_rng([self._seed, number]).permutation(len(self.decisions))
        rate = self.config.learning_rate * (1.0 - 0.9 * number / max(1, self.config.epochs - 1))
        for batch in np.array_split(order, -(-len(order) // self.config.states)):
            yield self._learn([self.decisions[i] for i in batch], rate)

    def revise(self, steps: int, number: int, learning_rate: float) -> float:
        """Take some gradient steps, the same for the same number; return the last loss of imitation."""
        random, loss = np.random.default_rng([self._seed, 1, number]), 0.0
        for _ in range(steps):
            drawn = random.choice(len(self.decisions), min(self.config.states, len(self.decisions)), replace=False)
            loss = self._learn([self.decisions[i] for i in drawn], learning_rate)
        return loss

    def _learn(self, drawn: Sequence[TableDecision], learning_rate: float) -> float:
        policy, optimizer = self.policy, self.policy.optimizer
        policy.set_training_mode(True)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        batch = batch_of([decision.sample.observation for decision in drawn])
        outputs = policy.outputs({name: tensor.to(policy.device) for name, tensor in batch.items()})
        imitation, value = self._losses(outputs, drawn)
        loss = imitation + VALUE_WEIGHT * value + self.config.effect_weight * _effects(outputs, drawn)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(policy.parameters(), self._max_grad_norm)
        optimizer.step()
        return float(imitation.detach())

    def _losses(self, outputs: PolicyOutputs, drawn: Sequence[TableDecision]) -> tuple[Tensor, Tensor]:
        """Return the losses of actor and critic; the critic learns what the imitated actions gain."""
        shape = outputs.log_probabilities.shape
        targets, gained = np.zeros(shape, dtype=np.float32), np.zeros(len(drawn), dtype=np.float32)
        for row, decision in enumerate(drawn):
            target = decision.target(self.config.temperature, self.config.least_saved)
            targets[row, : len(decision.gains)], targets[row, -1] = target[:-1], target[-1]
            gained[row] = float(target[:-1] @ decision.gains)
        device = outputs.values.device
        wanted = torch.from_numpy(targets).to(device)
        # Padding has a logit far below: 0 times that is 0, and never nan.
        imitation = -(wanted * outputs.log_probabilities).sum(dim=-1).mean()
        return imitation, nn.functional.mse_loss(outputs.values, torch.from_numpy(gained).to(device))


def _effects(outputs: PolicyOutputs, drawn: Sequence[TableDecision]) -> Tensor:
    """Return the loss of predicted effects; 0 where none is known."""
    samples = [decision.sample for decision in drawn]
    rows = [outputs.effects[row, : len(sample.effects)] for row, sample in enumerate(samples)]
    effects, errors = (np.concatenate([getattr(one, name) for one in samples]) for name in ("effects", "errors"))
    return effect_loss(torch.cat(rows), effects, errors)
