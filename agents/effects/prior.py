"""The prior of a search by windows: what steps are hoped to save, by a trained model of effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from agents.effects.model import EffectPredictor
from agents.effects.samples import StateSample, share_after
from envs.graph_rewrite.details import context_features, full_entries
from envs.graph_rewrite.meta_graph import MetaGraphObserver, ObservationLimitError
from envs.observation import ObservationLimits
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.runtime import Deployment

SHIPPED = Path(__file__).parent
"""Folder of the model that ships."""
OPTIMISM = 0.3
"""Standard deviations above the mean that a step is hoped to reach: what is little known is tried."""
LIMITS = ObservationLimits(256, 4096, 16384)
"""Sizes of windows and steps that are predicted."""


class StepObserver:
    """Observes steps of a window as models of effects see the states of a table.

    Args:
        deployment: machine and settings that the windows are timed with.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._observer = MetaGraphObserver(LIMITS, features="full")

    def observed(
        self, steps: Sequence[Candidate], share: float, depth: int
    ) -> tuple[list[int], StateSample | None]:  # fmt: skip
        """Return the numbers of the steps that fit into an observation, and the state with these steps; None where
        none does. Nothing is known of their effects.

        Args:
            steps: steps of one state of a window.
            share: share of the window's time that the chain before them saves.
            depth: rewrites of that chain.
        """
        if not steps:
            return [], None
        graph = steps[0].graph
        try:
            choices = self._observer.choose(graph, Candidates(graph, steps))
        except ObservationLimitError:
            return [], None
        number = {id(candidate): index for index, candidate in enumerate(steps)}
        kept = [number[id(candidate)] for candidate in choices.candidates.head]
        if not kept:
            return [], None
        mask = np.zeros(LIMITS.max_candidates + 1, dtype=np.bool_)
        mask[: len(kept)] = mask[-1] = True
        context = context_features(self._deployment, graph, 1.0, 1.0)
        observation = self._observer.observe(choices, mask, np.zeros(8).tolist())
        observation |= full_entries(choices, LIMITS, {}, context)
        unknown = np.zeros(len(kept))
        return kept, StateSample(0, 0, observation, share, depth, unknown, unknown)


class LearntPrior:
    """Predicts what steps of a window save.

    Args:
        predictor: the model.
        deployment: machine and settings that the windows are timed with.
        optimism: standard deviations above the mean.
    """

    def __init__(self, predictor: EffectPredictor, deployment: Deployment, optimism: float = OPTIMISM) -> None:
        self._predictor, self._optimism = predictor, optimism
        self._observer = StepObserver(deployment)

    @classmethod
    def shipped(cls, deployment: Deployment) -> LearntPrior:
        """Return the prior of the model that ships.

        Raises:
            UserError: it is missing, or of other features.
        """
        return cls(EffectPredictor.load(SHIPPED), deployment)

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        """Return the share of the window's time that each step is hoped to save beyond what the chain before it saves;
        None for steps too large to be looked at.

        Args:
            steps: steps of one state of a window.
            share: share that the chain before them saves.
            depth: rewrites of that chain.
        """
        found: dict[int, float] = {}
        kept, sample = self._observer.observed(steps, share, depth)
        if sample is not None:
            means, deviations = self._predictor.predict([sample])
            after = share_after(share, means + self._optimism * deviations)
            found = dict(zip(kept, (after - max(share, -2.0)).tolist(), strict=True))
        return [found.get(number) for number in range(len(steps))]
