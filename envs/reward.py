"""Rewards. The default is X-RLflow's (section 3.3.3, equation 2); any callable of a `RewardContext` can replace it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency

ILLEGAL_ACTION_REWARD = -1.0
"""The reward of an illegal action, with any reward function."""


@dataclass(frozen=True, slots=True)
class RewardContext:
    """One step as a reward function sees it. Latencies are relative to that of the original model."""

    previous: float
    """Latency of the last measured state before this step (RT[t-1]); 1.0 until something was measured."""
    current: float
    """Latency of the state after this step (RT[t]) where `measured`, infinite where it `failed`, else `previous`."""
    initial: float
    """Latency that differences are normalised by (RT[0]): that of the original model, so 1.0."""
    measured: bool
    """True on steps with feedback."""
    failed: bool
    """The new graph cannot be built or run: it crashed, hung, ran out of memory or was refused. Ends the episode."""
    terminal: bool
    """True on the episode's last step, terminated or truncated."""
    step: int
    """Number of this step in the episode, from 1."""
    rule: str
    """The rule or deployment choice taken; empty for the No-Op."""
    kind: str
    """`site`, `class`, `deployment` or `no-op`."""
    sites: int
    """Number of sites rewritten at once; 0 for the No-Op."""
    latency: Latency | None
    """The measurement, with milliseconds and confidence interval; None where `measured` is false."""
    graph: Graph
    """The state after this step."""


RewardFunction = Callable[[RewardContext], float]


@dataclass(frozen=True, slots=True)
class XRLflowReward:
    """`(RT[t-1] - RT[t]) / RT[0] * scale` on measured steps, a small constant in between (X-RLflow, section 3.3.3).

    With the paper's `scale` of 100 an episode's measured rewards add up to the latency saved, in percent of the
    original's. A state that cannot be run gives `failure`, as much as a slowdown by 10%; the paper has no such case.
    """

    exploration: float = 0.1
    """Reward of a step without feedback, for going on."""
    scale: float = 100.0
    failure: float = -10.0

    def __call__(self, context: RewardContext) -> float:
        if context.failed:
            return self.failure
        if not context.measured:
            return self.exploration
        return (context.previous - context.current) / context.initial * self.scale
