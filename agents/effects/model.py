"""Trained models of effects: what they predict, and how they are stored. Loading one executes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from agents.core.config import EncoderConfig
from agents.effects.networks import GraphNetwork, PlainNetwork
from agents.effects.plain import FORECAST
from agents.effects.samples import StateSample
from envs.feature_sets import family_vocabulary, feature_widths
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import replace_file

FORMAT, VERSION = "rewritegym.effects", 1
WEIGHTS, DESCRIPTION = "effects.safetensors", "effects.json"


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
    def predict(self, samples: Sequence[StateSample]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return means and standard deviations of the effects of all steps of these states, one state after another;
        what was measured is not read."""
        means, variances = [], []
        for member in self.members:
            out = member(member.prepare(samples)).double().numpy()
            means.append(out[:, 0])
            variances.append(np.exp(2.0 * out[:, 1]))
        mean = np.mean(means, axis=0)
        return mean, self.scale * np.sqrt(np.mean(variances, axis=0) + np.var(means, axis=0))

    def save(self, folder: Path) -> None:
        """Write the model into a folder: `effects.safetensors` and `effects.json`.

        Raises:
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{number}.{name}": tensor.half() if tensor.is_floating_point() else tensor
            for number, member in enumerate(self.members)
            for name, tensor in member.state_dict().items()
        }
        replace_file(folder / WEIGHTS, save_tensors(tensors))
        values = {
            "format": FORMAT, "version": VERSION, "kind": self.kind, "encoder": asdict(self.encoder),
            "members": len(self.members), "scale": self.scale, **_vocabularies(),
        }  # fmt: skip
        replace_file(folder / DESCRIPTION, json.dumps(values, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model. Rules, families and operators are found by their names; unknown ones have untrained embeddings.

        Raises:
            UserError: there is none, it is damaged, or of other features.
        """
        try:
            values = json.loads((folder / DESCRIPTION).read_text("utf-8"))
            tensors = load_tensors((folder / WEIGHTS).read_bytes())
            if values["format"] != FORMAT or values["version"] > VERSION or values["widths"] != feature_widths_read():
                raise UserError(f"{folder}: this model of effects is of another version: train it anew")
            encoder = EncoderConfig(**values["encoder"])
            members: list[PlainNetwork | GraphNetwork] = []
            for number in range(values["members"]):
                network = PlainNetwork() if values["kind"] == "plain" else GraphNetwork(encoder)
                _restore(network, number, tensors, values)
                members.append(network.eval())
            return cls(values["kind"], encoder, members, float(values["scale"]))
        except OSError as error:
            raise UserError(f"{folder}: no model of effects can be read there: {error.strerror}") from error
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            raise UserError(f"{folder}: this is no model of effects: {error!r}") from error


def feature_widths_read() -> dict[str, int]:
    """Return the widths of the features that a model reads."""
    widths = {**feature_widths("full"), "forecast": FORECAST}
    return {name: width for name, width in widths.items() if name != "families"}


def _vocabularies() -> dict[str, Any]:
    return {
        "widths": feature_widths_read(), "rules": list(rule_vocabulary()), "families": list(family_vocabulary()),
        "operators": list(operator_vocabulary()),
    }  # fmt: skip


def _restore(
    network: PlainNetwork | GraphNetwork, number: int, tensors: Mapping[str, torch.Tensor], values: Mapping[str, Any]
) -> None:
    """Fill a network with stored weights; rows of embeddings are found by name."""
    now = _vocabularies()
    state = network.state_dict()
    for name, tensor in state.items():
        stored = tensors[f"{number}.{name}"].to(tensor.dtype)
        kind = {"rule": "rules", "family": "families", "operator": "operators", "operators": "operators"}.get(
            name.removeprefix("encoder.").partition(".")[0], ""
        )
        if kind:
            row = {one: index for index, one in enumerate(values[kind])}
            known = [(index, row[one]) for index, one in enumerate(now[kind]) if one in row]
            tensor.zero_()
            tensor[[index for index, _ in known]] = stored[[index for _, index in known]]
        else:
            tensor.copy_(stored)
    network.load_state_dict(state)
