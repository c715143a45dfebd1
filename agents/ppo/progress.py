"""The state of a training run, for displays and results; imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass, field

RECENT = 20
"""Episodes over which rewards are averaged."""


@dataclass(slots=True)
class TrainingProgress:
    """The progress of a training run, passed to the display at every step.

    Rewards are those of episodes that begin with the original graph: those that begin on the best path have other
    rewards to earn.
    """

    timesteps: int = 0
    seconds: float = 0.0
    """Since this run began; a resumed one begins at 0."""
    episodes: int = 0
    """Finished episodes of both kinds."""
    epochs: int = 0
    """Passes over the decisions of a table of windows, before the first step."""
    rounds: int = 0
    """Searches of a fine-tuning after which the policy has learnt."""
    labels: int = 0
    """Chains of rewrites that a fine-tuning has timed."""
    recent: list[float] = field(default_factory=list)
    """Rewards of the last `RECENT` episodes from the start; of a fine-tuning, what the policy's chains save of what the
    best chains do, 1 for all."""
    best_speedup: float = 1.0
    """Lower bound of the speed-up at the best path's end, from careful measurements rather than the best of many quick
    ones."""
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    """(timesteps, mean reward of the last `RECENT` episodes from the start, best speed-up so far) per episode; of a
    fine-tuning (labels, what the policy's chains save of what the best do, best speed-up so far) per round."""

    @property
    def mean_reward(self) -> float:
        """Mean reward of the last `RECENT` episodes from the start; 0.0 before the first."""
        return sum(self.recent) / len(self.recent) if self.recent else 0.0

    def finish_episode(self, reward: float, restarted: bool) -> None:
        """Count a finished episode; its reward only if it began with the original graph."""
        self.episodes += 1
        if not restarted:
            self.recent = [*self.recent, reward][-RECENT:]
        self.curve.append((self.timesteps, self.mean_reward, self.best_speedup))
