"""Training of models of effects: robust regression of the mean, then likelihood of its deviations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from agents.core.config import EncoderConfig
from agents.effects.model import EffectPredictor
from agents.effects.networks import GraphNetwork, PlainNetwork
from agents.effects.samples import StateSample
from agents.effects.stored import BEST, OWN
from graph_rewrite.errors import UserError

Kind = Literal["plain", "graph"]
LEAST_ERROR = 0.03
"""Standard deviation that counts as a label's at least: effects differ by more than what timing is wrong by."""


@dataclass(frozen=True, slots=True)
class EffectTraining:
    """Settings of training."""

    kind: Kind = "plain"
    """`plain`: a perceptron over plain features; `graph`: graph attention over window and step."""
    members: int = 1
    """Networks that are trained from different seeds; their mean is predicted."""
    epochs: int = 20
    """Passes over the samples."""
    states: int = 32
    """States of a batch."""
    learning_rate: float = 2e-3
    weight_decay: float = 1e-3
    seed: int = 0
    encoder: EncoderConfig = field(default_factory=lambda: EncoderConfig(hidden=32, layers=2))
    """Of the kind `graph`."""


def train(
    samples: Sequence[StateSample], settings: EffectTraining, progress: Callable[[int, float], None] | None = None
) -> EffectPredictor:
    """Return networks trained on samples; the same for the same samples and settings on one machine.

    Args:
        progress: told of the epochs that are done, over all members, and of the mean loss of the last one.

    Raises:
        UserError: there is nothing to learn from.
    """
    known = [sample for sample in samples if np.isfinite(sample.effects).any()]
    if not known:
        raise UserError("there is no step to learn from: collect experience first")
    members, done = [], 0
    for number in range(settings.members):
        torch.manual_seed(settings.seed + number)
        network: PlainNetwork | GraphNetwork
        if settings.kind == "plain":
            network = PlainNetwork()
            network.standardise(network.prepare(known))
        else:
            network = GraphNetwork(settings.encoder)
        for loss in _epochs(network, known, settings, settings.seed + number):
            done += 1
            if progress is not None:
                progress(done, loss)
        members.append(network.eval())
    return EffectPredictor(settings.kind, settings.encoder, members)


def _epochs(
    network: PlainNetwork | GraphNetwork, samples: Sequence[StateSample], settings: EffectTraining, seed: int
) -> Iterator[float]:
    """Train a network, and yield the mean loss after each epoch."""
    random = np.random.default_rng(seed)
    batches = -(-len(samples) // settings.states)
    optimizer = torch.optim.AdamW(network.parameters(), lr=settings.learning_rate, weight_decay=settings.weight_decay)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, settings.learning_rate, total_steps=settings.epochs * batches
    )
    for _ in range(settings.epochs):
        network.train()
        order, total = random.permutation(len(samples)), 0.0
        for batch in np.array_split(order, batches):
            drawn = [samples[number] for number in batch]
            out, errors = network(network.prepare(drawn)), _joined(drawn, "errors")
            loss = effect_loss(out[:, OWN], _joined(drawn, "effects"), errors)
            loss = loss + effect_loss(out[:, BEST], _joined(drawn, "best"), errors)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            total += float(loss.detach()) / batches
        yield total


def effect_loss(out: Tensor, effects: NDArray[np.float64], errors: NDArray[np.float64]) -> Tensor:
    """Return the loss of a batch: the mean is drawn towards precise labels, whatever the deviation that is predicted;
    the deviation is that of labels, measuring errors included, from the mean. Without any label it is 0.

    Args:
        out: [steps, 2], the mean of the effect and the log of its standard deviation.
        effects: [steps], NaN where there is no label.
        errors: [steps], standard deviations of measuring them.
    """
    labels, wrong = torch.from_numpy(effects).float(), torch.from_numpy(errors).float()
    known = torch.isfinite(labels)
    if not bool(known.any()):
        return out.sum() * 0.0
    mean, log_deviation, labels, wrong = out[known, 0], out[known, 1], labels[known], wrong[known]
    weight = LEAST_ERROR**2 / (LEAST_ERROR**2 + wrong**2)
    robust = nn.functional.huber_loss(mean, labels, reduction="none", delta=0.1) / 0.1
    surprise = (labels - mean.detach()).abs() / log_deviation.exp()
    # Laplace's distribution: a few labels are far from what others of their kind are.
    likelihood = log_deviation + 1.4142 * surprise
    loss: Tensor = (weight * robust * 10.0).sum() / weight.sum() + likelihood.mean()
    return loss


def _joined(samples: Sequence[StateSample], name: str) -> NDArray[np.float64]:
    return np.concatenate([getattr(sample, name) for sample in samples])
