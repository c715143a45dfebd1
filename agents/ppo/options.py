"""Settings of rollouts in whole graphs; importing them imports no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

CLEAR = 0.01
"""A difference in speed-up that is more than noise, in training and in rollouts of the trained policy."""


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """Settings of the rollouts with a trained policy."""

    sampled: bool = True
    """Also draw rollouts from the policy after the deterministic one."""
    clear: float = CLEAR
    """A difference in speed-up that is more than noise. Following smaller ones would be climbing on luck."""
    trust: int = 4
    """Graphs in a row without a clear gain that a rollout may pass: enough to cross the valley of a layout change."""
    from_best: float = 0.75
    """Share of the sampled rollouts that go on from the best graph and end with the first action that gains nothing;
    the others begin somewhere on the way to it, and are trusted like the deterministic one."""
    doubts: float = 0.25
    """Share of the budget's seconds for timing two graphs in turn where their measurements overlap."""
    warming: float = 1.5
    """Factor on the temperature of sampling after a rollout without a new graph."""
    fruitless: int = 20
    """Sampled rollouts in a row without a new graph after which the policy has nothing more to say."""
    untrained: bool = False
    """Act with the checkpoint's network at random weights, drawn by the seed: a control for what training brings."""


DEFAULTS = RolloutOptions()
