"""Checkpoints: weights as safetensors, everything else as JSON. Loading one executes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agents.ppo.description import (
    DESCRIPTION,
    FORMAT,
    WEIGHTS,
    CheckpointError,
    Episodes,
    PolicyDescription,
    read_description,
    unreadable,
)

OPTIMIZER = "optimizer.safetensors"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A loaded checkpoint: description and weights (a PyTorch state dict)."""

    path: Path
    description: PolicyDescription
    weights: Mapping[str, torch.Tensor]


def save_checkpoint(
    folder: Path,
    description: PolicyDescription,
    weights: Mapping[str, torch.Tensor],
    optimizer: Mapping[str, Any] | None = None,
) -> None:
    """Write a checkpoint; each file is replaced as a whole, the description last."""
    folder.mkdir(parents=True, exist_ok=True)
    _replace(
        folder / WEIGHTS, lambda path: save_file({k: v.detach().cpu().contiguous() for k, v in weights.items()}, path)
    )
    if optimizer is not None:
        tensors = {
            f"{index}.{name}": torch.as_tensor(value).clone()
            for index, state in optimizer["state"].items()
            for name, value in state.items()
        }
        _replace(folder / OPTIMIZER, lambda path: save_file(tensors, path))
    text = json.dumps({"format": FORMAT, **dataclasses.asdict(description)}, indent=2)
    _replace(folder / DESCRIPTION, lambda path: path.write_text(text + "\n"))


def load_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint folder, or that of a run.

    Raises:
        CheckpointError: a file is missing, truncated or of another format, or describes what nobody trains.
    """
    path, description = read_description(folder)
    return Checkpoint(path, description, _tensors(path / WEIGHTS))


def check_episodes(checkpoint: Checkpoint, wanted: Episodes) -> None:
    """Refuse a policy that was trained in episodes of another kind: it would choose among what it never saw.

    Raises:
        CheckpointError: it was.
    """
    described = checkpoint.description
    if described.trained_in == wanted:
        return
    if wanted == "models":
        raise CheckpointError(
            f"{checkpoint.path}: this policy was trained on windows, not on whole graphs: agent ppo acts with it, and "
            "train.py goes on with it, without --whole-graph and numbers of steps or environments; here, name one that "
            "train.py --whole-graph has trained"
        )
    raise CheckpointError(
        f"{checkpoint.path}: this policy was trained on {described.trained_on or 'a model'}, not on windows: name one "
        "that train.py --windows has trained"
    )


def load_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> bool:
    """Restore an optimiser's moments; False where the checkpoint has none."""
    if not (folder / OPTIMIZER).is_file():
        return False
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in _tensors(folder / OPTIMIZER).items():
        index, name = key.split(".", 1)
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return True


def adapt_weights(
    checkpoint: Checkpoint, rules: tuple[str, ...], operators: tuple[str, ...]
) -> dict[str, torch.Tensor]:
    """The policy's weights with its embeddings reordered to the vocabularies of now, found by name; rows of new names
    are zero."""
    weights = dict(checkpoint.weights)
    described = checkpoint.description
    for table, then, now in (("rule", described.rules, rules), ("operator", described.operators, operators)):
        for key in [k for k in weights if k == f"features_extractor.{table}.weight"]:
            old = weights[key]
            new = torch.zeros(len(now), old.shape[1])
            place = {name: index for index, name in enumerate(now)}
            new[[place[name] for name in then]] = old
            weights[key] = new
    return weights


def _tensors(path: Path) -> dict[str, torch.Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from error


def _replace(path: Path, write: Any) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder, path.name)
        write(temporary)
        os.replace(temporary, path)
