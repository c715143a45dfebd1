"""The network: the policy of whole graphs, with a head that predicts what each step saves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from agents.effects.networks import bounded
from agents.ppo.policy import CandidatePolicy

_ILLEGAL = -1e8
"""Logit of an illegal action, as in sb3-contrib's masked distributions."""


@dataclass(frozen=True, slots=True)
class PolicyOutputs:
    """The outputs for a batch of B states that are padded to A steps each."""

    log_probabilities: Tensor
    """[B, A + 1], of the steps and the stop; that of padding is far below all others."""
    values: Tensor
    """[B], the share of the window's time that is expected to be saved from here on."""
    effects: Tensor
    """[B, A, 2], mean and log of the standard deviation of each step's effect."""


class WindowPolicy(CandidatePolicy):
    """MaskablePPO's policy for windows. Actor, critic and the head of effects share one encoder."""

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        self.effects = nn.Sequential(nn.Linear(self.features_dim, 64), nn.ReLU(), nn.Linear(64, 2))

    def outputs(self, batch: Mapping[str, Tensor]) -> PolicyOutputs:
        """Return all outputs for a batch of observations, padded to any size (`agents.ppo.batches.batch_of`)."""
        rows = self.features_extractor(batch)
        logits = self.heads.forward_actor(rows)
        steps = torch.arange(logits.shape[1], device=logits.device)
        legal = (steps < batch["sizes"][:, 2:3]) | (steps == logits.shape[1] - 1)
        masked = torch.where(legal, logits, torch.full_like(logits, _ILLEGAL))
        values = self.value_net(self.heads.forward_critic(rows)).squeeze(-1)
        return PolicyOutputs(masked.log_softmax(dim=-1), values, bounded(self.effects(rows[:, :-1])))
