"""Trained models of effects as they are stored, and the kind `plain` at work; needs no PyTorch."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from agents.effects.plain import WIDTH, PlainSteps
from agents.effects.samples import StateSample
from envs.feature_sets import family_vocabulary, feature_widths
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import replace_file

FORMAT, VERSION = "rewritegym.effects", 2
WEIGHTS, DESCRIPTION = "effects.safetensors", "effects.json"
OWN, BEST = 0, 1
"""Columns of predictions: what a step saves by itself, and what the best chain does that begins with it."""
MOST_SCALED = 6.0
"""Standard deviations from the mean beyond which a feature counts as this."""
LEAST_LOG, MOST_LOG = -5.8, 1.1
"""Bounds of the log of the standard deviation of effects: between 0.3% and three times the time."""
_EMBEDDINGS = {"rule": "rules", "family": "families", "operator": "operators", "operators": "operators"}
"""Vocabularies of embeddings, by the names of these."""

Arrays = Mapping[str, NDArray[Any]]
Predictions = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Means and standard deviations of effects, [steps of all states, 2] each, with columns `OWN` and `BEST`."""


class ChainPredictor(Protocol):
    """A model of effects that predicts steps and the chains that begin with them, such as `PlainPredictor`."""

    def predict_both(self, samples: Sequence[StateSample]) -> Predictions:
        """Return what is predicted of all steps of these states, one state after another."""
        ...


@dataclass(frozen=True, slots=True)
class StoredEffects:
    """A model of effects as its files hold it."""

    kind: str
    """`plain` or `graph`."""
    encoder: Mapping[str, Any]
    """Settings of the encoder of the kind `graph`."""
    scale: float
    """Factor of the standard deviations."""
    members: Sequence[Arrays]
    """Weights of each network by their names, float32 where they are numbers with fractions."""

    def save(self, folder: Path) -> None:
        """Write the model into a folder: `effects.safetensors`, with half the digits, and `effects.json`.

        Raises:
            OSError: it cannot be written.
        """
        folder.mkdir(parents=True, exist_ok=True)
        tensors = {
            f"{number}.{name}": array.astype(np.float16) if array.dtype.kind == "f" else array
            for number, member in enumerate(self.members)
            for name, array in member.items()
        }
        replace_file(folder / WEIGHTS, save_arrays(tensors))
        values = {
            "format": FORMAT, "version": VERSION, "kind": self.kind, "encoder": dict(self.encoder),
            "members": len(self.members), "scale": self.scale, "widths": feature_widths_read(), **_vocabularies(),
        }  # fmt: skip
        replace_file(folder / DESCRIPTION, json.dumps(values, indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model; that executes nothing. Rules, families and operators are found by their names; the embeddings
        of unknown ones are 0.

        Raises:
            UserError: there is none, it is damaged, or of other features.
        """
        try:
            values = json.loads((folder / DESCRIPTION).read_text("utf-8"))
            arrays = load_arrays((folder / WEIGHTS).read_bytes())
            if (values["format"], values["version"]) != (FORMAT, VERSION) or values["widths"] != feature_widths_read():
                raise UserError(f"{folder}: this model of effects is of another version: train it anew")
            members: list[dict[str, NDArray[Any]]] = [{} for _ in range(values["members"])]
            for name, array in arrays.items():
                number, _, weight = name.partition(".")
                found = array.astype(np.float32) if array.dtype.kind == "f" else array
                members[int(number)][weight] = _named_anew(weight, found, values)
            return cls(str(values["kind"]), values["encoder"], float(values["scale"]), members)
        except OSError as error:
            raise UserError(f"{folder}: no model of effects can be read there: {error.strerror}") from error
        except (IndexError, KeyError, TypeError, ValueError, SafetensorError) as error:
            if isinstance(error, UserError):
                raise
            raise UserError(f"{folder}: this is no model of effects: {error!r}") from error


class PlainPredictor:
    """Predicts effects by perceptrons over plain features, as `agents.effects.networks.PlainNetwork` does.

    Args:
        stored: a model of the kind `plain`.

    Raises:
        UserError: it is of another kind.
    """

    def __init__(self, stored: StoredEffects) -> None:
        if stored.kind != "plain":
            raise UserError(f"a model of effects of the kind {stored.kind} needs PyTorch: train one of the kind plain")
        self.stored = stored

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model.

        Raises:
            UserError: there is none, it is damaged, of other features, or of another kind.
        """
        return cls(StoredEffects.load(folder))

    def predict_both(self, samples: Sequence[StateSample]) -> Predictions:
        """Return what is predicted of all steps of these states, one state after another."""
        steps = [sample.plain for sample in samples]
        return combined([_perceptron(member, steps) for member in self.stored.members], self.stored.scale)


def combined(outs: Sequence[NDArray[np.float64]], scale: float) -> Predictions:
    """Return what several networks predict together.

    Args:
        outs: what each says, [steps, 2, 2]: for `OWN` and `BEST` the mean, and the log of the standard deviation.
        scale: factor of the standard deviations.
    """
    means = np.stack([out[:, :, 0] for out in outs])
    variances = np.exp(2.0 * np.stack([out[:, :, 1] for out in outs]))
    return means.mean(axis=0), scale * np.sqrt(variances.mean(axis=0) + means.var(axis=0))


def feature_widths_read() -> dict[str, int]:
    """Return the widths of the features that a model reads."""
    widths = {name: width for name, width in feature_widths("full").items() if name != "families"}
    return widths | {"plain": WIDTH}


def _perceptron(weights: Arrays, steps: Sequence[PlainSteps]) -> NDArray[np.float64]:
    """Return [steps of all states, 2, 2], as `PlainNetwork.forward` does."""
    numbers = np.concatenate([one.numbers for one in steps])
    rules, families = (np.concatenate([getattr(one, name) for one in steps]) for name in ("rules", "families"))
    bags = [bag for one in steps for bag in one.operators]
    width = weights["operators.weight"].shape[1]
    operators = np.array(
        [weights["operators.weight"][bag].mean(axis=0) if len(bag) else np.zeros(width, np.float32) for bag in bags],
        dtype=np.float32,
    ).reshape(len(numbers), -1)
    scaled = np.clip((numbers - weights["mean"]) / weights["scale"], -MOST_SCALED, MOST_SCALED)
    found = np.concatenate(
        [scaled, weights["rule.weight"][rules], weights["family.weight"][families], operators], axis=1
    )
    layers = sorted({int(name.split(".")[1]) for name in weights if name.startswith("layers.")})
    for number in layers:
        found = found @ weights[f"layers.{number}.weight"].T + weights[f"layers.{number}.bias"]
        if number != layers[-1]:
            found = np.maximum(found, 0.0)
    out: NDArray[np.float64] = found.reshape(-1, 2, 2).astype(np.float64)
    out[:, :, 1] = np.clip(out[:, :, 1], LEAST_LOG, MOST_LOG)
    return out


def _vocabularies() -> dict[str, Sequence[str]]:
    return {
        "rules": list(rule_vocabulary()), "families": list(family_vocabulary()),
        "operators": list(operator_vocabulary()),
    }  # fmt: skip


def _named_anew(weight: str, array: NDArray[Any], values: Mapping[str, Any]) -> NDArray[Any]:
    """Return a weight; of an embedding the rows in the order of today's vocabulary."""
    kind = _EMBEDDINGS.get(weight.removeprefix("encoder.").partition(".")[0])
    if kind is None:
        return array
    row, names = {one: index for index, one in enumerate(values[kind])}, _vocabularies()[kind]
    found = np.zeros((len(names), *array.shape[1:]), dtype=array.dtype)
    known = [(index, row[one]) for index, one in enumerate(names) if one in row]
    found[[index for index, _ in known]] = array[[index for _, index in known]]
    return found
