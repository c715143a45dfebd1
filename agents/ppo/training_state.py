"""The state of a training beside its policy: what going on from a checkpoint takes up again. It is JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from agents.ppo.description import CheckpointError
from agents.ppo.progress import TrainingProgress
from graph_rewrite.latency import Deployment
from graph_rewrite.latency.device import device_name
from graph_rewrite.system.atomic_files import replace_file

FILE = "training.json"
_LARGEST = 1 << 26


@dataclass(frozen=True, slots=True)
class RewardScale:
    """The running statistics of discounted returns by which VecNormalize divides rewards."""

    mean: float = 0.0
    variance: float = 1.0
    count: float = 1e-4


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The model that was trained on, the reward's scale, the best path of each environment, and the curve so far."""

    trained_on: str
    reward_scale: RewardScale = field(default_factory=RewardScale)
    paths: tuple[Mapping[str, Any], ...] = ()
    """What `BestPath.record` returned, for the environments that have a best path."""
    progress: TrainingProgress = field(default_factory=TrainingProgress)
    measured_on: str = ""
    """What `measured_on` says of the deployment of its best speed-up; empty where that is not known."""


def measured_on(deployment: Deployment) -> str:
    """Return a deployment and the hardware below it as text: speed-ups can be compared where it is the same."""
    return f"{deployment.key} on {device_name(deployment.provider)}"


def save_state(folder: Path, state: TrainingState) -> None:
    """Write the state into a checkpoint's folder, as a whole."""
    replace_file(folder / FILE, json.dumps(asdict(state)) + "\n")


def load_state(folder: Path) -> TrainingState | None:
    """Read the state in a checkpoint's folder; None where there is none, as in checkpoints that ship.

    Raises:
        CheckpointError: the file is no state of a training.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        if path.stat().st_size > _LARGEST:
            raise ValueError("far too large")
        values = json.loads(path.read_text())
        progress = TrainingProgress(**values["progress"])
        progress.curve = [(int(at), float(reward), float(best)) for at, reward, best in progress.curve]
        scale = RewardScale(**{name: float(value) for name, value in values["reward_scale"].items()})
        paths = tuple(dict(record) for record in values["paths"])
        measured = str(values.get("measured_on", ""))
        return TrainingState(str(values["trained_on"]), scale, paths, progress, measured)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"{path}: no state of a training ({error!r}); remove it to go on with the policy alone"
        ) from error
