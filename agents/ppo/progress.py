"""The state of a training run, for displays and results; imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TrainingProgress:
    """The progress of a training run, passed to the display at every step."""

    timesteps: int = 0
    seconds: float = 0.0
    episodes: int = 0
    mean_reward: float = 0.0
    """Mean reward of the last 20 episodes."""
    best_speedup: float = 1.0
    """Speed-up at the end of the best path, from a careful measurement rather than the best of many quick ones."""
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """(timesteps, mean reward of the last 20 episodes, best speed-up so far) per finished episode."""
