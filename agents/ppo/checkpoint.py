"""Checkpoints: weights as safetensors, everything else as JSON. Loading one executes nothing."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from agents.core.config import ConfigError, EncoderConfig, EnvConfig, build_settings
from graph_rewrite.errors import UserError

FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 24
WEIGHTS, DESCRIPTION, OPTIMIZER = "policy.safetensors", "policy.json", "optimizer.safetensors"


Episodes = Literal["models", "windows"]


class CheckpointError(UserError):
    """A checkpoint that cannot be used; the message says which file, what is wrong and what to do."""


@dataclass(frozen=True, slots=True)
class PolicyDescription:
    """The rules, operators and features that a policy was trained with, and must find again to mean the same."""

    rules: tuple[str, ...]
    """Names of the rules, in the order of their embeddings."""
    operators: tuple[str, ...]
    """The operator vocabulary, in the order of its embeddings."""
    features: Mapping[str, int]
    """Widths of node, candidate and global features."""
    encoder: EncoderConfig
    head_layers: tuple[int, ...]
    env: EnvConfig
    deployment_choices: bool = True
    trained_on: str = ""
    timesteps: int = 0
    best_speedup: float = 1.0
    """Lower bound of the 95% interval of the speed-up at the end of the training's best path; 1.0 where nothing was
    surely faster."""
    offered: tuple[str, ...] | None = None
    """Names of the rules that were legal in some state of the training. The embeddings of all others are random, so an
    agent leaves those rules alone. None in checkpoints that do not say: then every rule counts."""
    trained_in: Episodes = "models"
    """The episodes of the training: rewrites of whole `models`, or of single `windows`."""
    left_out: tuple[str, ...] = ()
    """Architectures whose windows the training did not see."""


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
    path = Path(folder)
    path = path / "checkpoint" if (path / "checkpoint").is_dir() else path
    for name in (DESCRIPTION, WEIGHTS):
        if not (path / name).is_file():
            raise CheckpointError(f"{path}: no checkpoint, {name} is missing; train one with: make train MODEL=...")
    try:
        if (path / DESCRIPTION).stat().st_size > _LARGEST_DESCRIPTION:
            raise CheckpointError(f"{path / DESCRIPTION}: far too large for a policy description; train again")
        values = json.loads((path / DESCRIPTION).read_text())
        if values.pop("format") != FORMAT:
            raise CheckpointError(f"{path / DESCRIPTION}: written in another format than {FORMAT}; train again")
        offered = values.pop("offered", None)
        description = PolicyDescription(
            rules=tuple(values.pop("rules")), offered=None if offered is None else tuple(map(str, offered)),
            operators=tuple(values.pop("operators")),
            encoder=build_settings(EncoderConfig, values.pop("encoder"), "encoder."),
            head_layers=tuple(values.pop("head_layers")),
            env=build_settings(EnvConfig, values.pop("env"), "env."),
            left_out=tuple(map(str, values.pop("left_out", ()))), **values,
        )  # fmt: skip
        check_sizes(description)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, CheckpointError):
            raise
        reason = str(error) if isinstance(error, ConfigError) else repr(error)
        raise CheckpointError(f"{path / DESCRIPTION}: not a policy description: {reason}") from error
    return Checkpoint(path, description, _tensors(path / WEIGHTS))


def check_sizes(description: PolicyDescription) -> None:
    """Refuse a network or an environment of a size or kind that nobody trains: making it would take all memory.

    Raises:
        ConfigError: a size out of range, or an unknown kind of episodes; the message names it.
    """
    encoder, env = description.encoder, description.env
    if description.trained_in not in get_args(Episodes):
        raise ConfigError(f"trained_in must be one of {', '.join(get_args(Episodes))}, not {description.trained_in!r}")
    sizes = {
        "encoder.hidden": (encoder.hidden, 4096), "encoder.layers": (encoder.layers, 64),
        "encoder.attention_heads": (encoder.attention_heads, 256),
        "number of head_layers": (len(description.head_layers), 32),
        "env.horizon": (env.horizon, 10**6), "env.feedback_every": (env.feedback_every, 10**6),
        "env.max_candidates": (env.max_candidates, 10**6), "env.max_nodes": (env.max_nodes, 10**7),
        "env.max_edges": (env.max_edges, 10**7),
    }  # fmt: skip
    sizes |= {f"width {i} of head_layers": (width, 65536) for i, width in enumerate(description.head_layers[:32])}
    for name, (size, largest) in sizes.items():
        if not isinstance(size, int) or not 0 <= size <= largest:
            raise ConfigError(f"{name} must be a whole number up to {largest}, not {size!r}")


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


def known_rules(description: PolicyDescription, rules: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return bool [rules]: of the rules of now, those that the policy has learnt something about."""
    learnt = description.rules if description.offered is None else description.offered
    return np.isin(rules, learnt)


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


def check_vocabulary(description: PolicyDescription, rules: tuple[str, ...], operators: tuple[str, ...]) -> None:
    """Compare what the policy was trained with against what is there now. New rules and operators are allowed: the
    policy gives them no embedding, and an agent masks them.

    Raises:
        CheckpointError: rules or operators that the policy knows are gone.
    """
    for what, known, now in (("rules", description.rules, rules), ("operators", description.operators, operators)):
        gone = [name for name in known if name not in now]
        if gone:
            raise CheckpointError(
                f"the policy was trained with {what} that are not there: {', '.join(gone[:5])}"
                f"{' and others' if len(gone) > 5 else ''}; use the rewritegym that trained it, or train again"
            )


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
        raise CheckpointError(f"{path}: not a readable safetensors file ({error}); is it complete?") from error


def _replace(path: Path, write: Any) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
        temporary = Path(folder, path.name)
        write(temporary)
        os.replace(temporary, path)
