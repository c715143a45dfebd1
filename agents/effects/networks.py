"""Networks that predict the effects of the steps of a window, with their uncertainty."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from agents.core.config import EncoderConfig
from agents.effects.plain import WIDTH, PlainSteps
from agents.effects.samples import StateSample
from agents.effects.stored import LEAST_LOG, MOST_LOG, MOST_SCALED
from agents.ppo.batches import batch_of
from agents.ppo.encoder import GraphEncoder
from envs.feature_sets import family_vocabulary, observation_space
from envs.observation import ObservationLimits
from envs.vocabulary import operator_vocabulary, rule_vocabulary

Prepared = list[PlainSteps] | dict[str, Tensor]


_NEVER_DIFFERS = 6e4
"""Scale of features that are the same in all of training; the largest that half of the digits hold."""


class PlainNetwork(nn.Module):
    """A perceptron over plain features, with embeddings of the rule, its family, and the operators that are removed and
    inserted.

    Args:
        hidden: width of the layers.
        dropout: share of the units that training leaves out.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, hidden: int = 96, dropout: float = 0.1) -> None:
        super().__init__()
        self.rule = nn.Embedding(len(rule_vocabulary()), 16)
        self.family = nn.Embedding(len(family_vocabulary()), 8)
        self.operators = nn.EmbeddingBag(len(operator_vocabulary()), 12, mode="mean")
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("scale", torch.ones(WIDTH))
        width = WIDTH + 16 + 8 + 24
        self.layers = nn.Sequential(
            nn.Linear(width, hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, hidden), nn.ReLU(),
            nn.Dropout(dropout), nn.Linear(hidden, 4),
        )  # fmt: skip
        nn.init.normal_(self.rule.weight, std=0.1)
        nn.init.normal_(self.family.weight, std=0.1)

    def prepare(self, samples: Sequence[StateSample]) -> list[PlainSteps]:
        """Return what `forward` takes, of the states of a batch."""
        return [sample.plain for sample in samples]

    def standardise(self, prepared: Sequence[PlainSteps]) -> None:
        """Set mean and scale of the plain features by those of training."""
        numbers = torch.from_numpy(np.concatenate([one.numbers for one in prepared]))
        self.mean.copy_(numbers.mean(dim=0))
        if len(numbers) > 1:
            deviation = numbers.std(dim=0)
            # Where training saw no difference nothing is learnt: on another machine the feature must not count.
            self.scale.copy_(torch.where(deviation > 1e-6, deviation.clamp(min=1e-3), _NEVER_DIFFERS))

    def forward(self, prepared: Sequence[PlainSteps]) -> Tensor:
        """Return [steps of all states, 2, 2]: of each step by itself, and of the best chain that begins with it, the
        mean of the effect and the log of its standard deviation."""
        numbers = torch.from_numpy(np.concatenate([one.numbers for one in prepared]))
        rules, families = (
            torch.from_numpy(np.concatenate([getattr(one, name) for one in prepared])) for name in ("rules", "families")
        )
        bags = [bag for one in prepared for bag in one.operators]
        starts = torch.from_numpy(np.cumsum([0, *map(len, bags)])[:-1].astype(np.int64))
        operators = self.operators(torch.from_numpy(np.concatenate(bags)), starts).view(len(numbers), -1)
        scaled = ((numbers - self.mean) / self.scale).clamp(-MOST_SCALED, MOST_SCALED)
        joined = torch.cat([scaled, self.rule(rules), self.family(families), operators], dim=1)
        return bounded(self.layers(joined).unflatten(-1, (2, 2)))


class GraphNetwork(nn.Module):
    """The policy's encoder over window and steps, graph attention layers included, with a head for each step.

    Args:
        config: of the encoder.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        space = observation_space(ObservationLimits(1, 1, 1), "full")
        self.encoder = GraphEncoder(space, len(operator_vocabulary()), len(rule_vocabulary()), config)
        self.head = nn.Sequential(nn.Linear(3 * config.hidden + 2, 64), nn.ReLU(), nn.Linear(64, 4))

    def prepare(self, samples: Sequence[StateSample]) -> dict[str, Tensor]:
        """Return what `forward` takes: a batch of observations, padded to its largest."""
        batch = batch_of([sample.observation for sample in samples])
        batch["before"] = torch.tensor([[max(s.share, -2.0), s.depth / 3.0] for s in samples], dtype=torch.float32)
        return batch

    def forward(self, prepared: dict[str, Tensor]) -> Tensor:
        """Return [steps of all states, 2, 2]: of each step by itself, and of the best chain that begins with it, the
        mean of the effect and the log of its standard deviation."""
        before = prepared["before"]
        observations = {name: tensor for name, tensor in prepared.items() if name != "before"}
        rows = self.encoder(observations)[:, :-1]
        rows = torch.cat([rows, before[:, None, :].expand(-1, rows.shape[1], -1)], dim=-1)
        real = torch.arange(rows.shape[1])[None, :] < observations["sizes"][:, 2:3]
        return bounded(self.head(rows[real]).unflatten(-1, (2, 2)))


def bounded(out: Tensor) -> Tensor:
    """Return predictions [..., 2], mean and log of the standard deviation of effects, with standard deviations kept
    between 0.3% and three times the time."""
    return torch.stack([out[..., 0], out[..., 1].clamp(LEAST_LOG, MOST_LOG)], dim=-1)
