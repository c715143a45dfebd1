"""Trained models of effects in PyTorch: those in training, and those of graph attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from agents.core.config import EncoderConfig
from agents.effects.networks import GraphNetwork, PlainNetwork
from agents.effects.samples import StateSample
from agents.effects.stored import OWN, Predictions, StoredEffects, combined
from graph_rewrite.errors import UserError


class EffectPredictor:
    """Predicts the effects of the steps of states: the mean over trained networks, and a standard deviation.

    Args:
        kind: `plain` or `graph`.
        encoder: of the kind `graph`.
        members: the networks.
        scale: factor of the standard deviations.
    """

    def __init__(
        self, kind: str, encoder: EncoderConfig, members: Sequence[PlainNetwork | GraphNetwork], scale: float = 1.0
    ) -> None:
        self.kind, self.encoder, self.members, self.scale = kind, encoder, list(members), scale

    @torch.no_grad()
    def predict_both(self, samples: Sequence[StateSample]) -> Predictions:
        """Return what is predicted of all steps of these states, one state after another; what was measured is not
        read."""
        return combined([member(member.prepare(samples)).double().numpy() for member in self.members], self.scale)

    def predict(self, samples: Sequence[StateSample]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return means and standard deviations, [steps of all states] each, of what each step saves by itself."""
        means, deviations = self.predict_both(samples)
        return means[:, OWN], deviations[:, OWN]

    def stored(self) -> StoredEffects:
        """Return the model as it is stored."""
        members = [{name: one.numpy() for name, one in member.state_dict().items()} for member in self.members]
        return StoredEffects(self.kind, asdict(self.encoder), self.scale, members)

    def save(self, folder: Path) -> None:
        """Write the model into a folder.

        Raises:
            OSError: it cannot be written.
        """
        self.stored().save(folder)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model.

        Raises:
            UserError: there is none, it is damaged, or of other features.
        """
        stored = StoredEffects.load(folder)
        try:
            encoder = EncoderConfig(**stored.encoder)
            members: list[PlainNetwork | GraphNetwork] = []
            for arrays in stored.members:
                network = PlainNetwork() if stored.kind == "plain" else GraphNetwork(encoder)
                network.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
                members.append(network.eval())
        except (TypeError, RuntimeError) as error:
            raise UserError(f"{folder}: this is no model of effects: {error!r}") from error
        return cls(stored.kind, encoder, members, stored.scale)
