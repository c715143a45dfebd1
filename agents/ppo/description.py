"""Descriptions of policies, as checkpoints hold them; they are read without PyTorch, which takes seconds to import."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from agents.core.config import ConfigError, EncoderConfig, EnvConfig, build_settings
from agents.core.paths import checkpoints
from graph_rewrite import zoo
from graph_rewrite.errors import UserError

FORMAT = 1
_LARGEST_DESCRIPTION = 1 << 24
WEIGHTS, DESCRIPTION = "policy.safetensors", "policy.json"
UNIVERSAL = "universal"
"""Folder of the policy for any model, among the checkpoints that ship."""

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


def read_description(folder: str | os.PathLike[str]) -> tuple[Path, PolicyDescription]:
    """Return the folder of a checkpoint, or of that of a run, and what it says of its policy.

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
    try:
        with safe_open(path / WEIGHTS, framework="numpy"):  # its header says how long it must be
            pass
    except (SafetensorError, OSError) as error:
        raise unreadable(path / WEIGHTS, error) from error
    return path, description


def unreadable(weights: Path, error: Exception) -> CheckpointError:
    """Return the error of a file of weights that cannot be read."""
    return CheckpointError(f"{weights}: not a readable safetensors file ({error}); is it complete?")


def shipped_checkpoint(uri: str) -> Path:
    """Folder of the checkpoint that comes with the project for a zoo model.

    Raises:
        CheckpointError: there is none for this model.
    """
    name = zoo.name_in(uri)
    folder = checkpoints() / name
    if ":" in name or not folder.is_dir():
        shipped = sorted(path.name for path in checkpoints().iterdir() if path.is_dir())
        raise CheckpointError(
            f"no checkpoint comes with the project for {uri} (there are: {', '.join(shipped) or 'none'}); "
            f"train one with train.py --model {uri}, or name one with --checkpoint"
        )
    return folder


def ships_for(uri: str) -> bool:
    """Return whether a policy of its own comes with the project for a model."""
    try:
        shipped_checkpoint(uri)
    except CheckpointError:
        return False
    return True


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


def known_rules(description: PolicyDescription, rules: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return bool [rules]: of the rules of now, those that the policy has learnt something about."""
    learnt = description.rules if description.offered is None else description.offered
    return np.isin(rules, learnt)


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
