"""The prior of a search by windows: what steps are expected to save, by a trained model of effects."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.effects.own_means import means_here
from agents.effects.samples import StateSample, share_after
from agents.effects.step_means import LEAST_LABELS, ChainStep, Expectation, Forecast, StepMeans, bounded
from agents.effects.stored import BEST, OWN, ChainPredictor, PlainPredictor
from envs.graph_rewrite.details import context_features, full_entries
from envs.graph_rewrite.meta_graph import MetaGraphObserver, ObservationLimitError
from envs.observation import ObservationLimits
from envs.window.env import LEAST_SHARE
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.runtime import Deployment

SHIPPED = Path(__file__).parent
"""Folder of the model that ships."""
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
        self, steps: Sequence[Candidate], share: float, depth: int, guesses: Sequence[float] = ()
    ) -> tuple[list[int], StateSample | None]:
        """Return the numbers of the steps that fit into an observation, and the state with these steps; None where
        none does. Nothing is known of their effects.

        Args:
            steps: steps of one state of a window.
            share: share of the window's time that the chain before them saves.
            depth: rewrites of that chain.
            guesses: share that each step saves by a count of operations and bytes; by default 0.
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
        unknown = np.full(len(kept), np.nan)
        guessed = np.array([bounded(guesses[number]) if guesses else 0.0 for number in kept])
        return kept, StateSample(0, 0, observation, share, depth, unknown, unknown, unknown, guessed)


def savings(
    share: float, means: NDArray[np.float64], deviations: NDArray[np.float64], labels: Sequence[float]
) -> list[Forecast]:
    """Return predicted effects of steps as forecasts of the shares of the window's time that they save.

    Args:
        share: share that the chain before them saves.
        means, deviations: of the effects, [steps, 2] each, as `ChainPredictor.predict_both` returns them.
        labels: timings of the rule of each.
    """
    after = share_after(share, means)
    saved, spread = after - max(share, LEAST_SHARE), (1.0 - after) * deviations
    return [
        Forecast(mean[BEST], deviation[BEST], known, Expectation(mean[OWN], deviation[OWN]))
        for mean, deviation, known in zip(saved.tolist(), spread.tolist(), labels, strict=True)
    ]


class LearntPrior:
    """Forecasts what steps of a window save by a model of effects, and by what was timed of them on this kind of
    machine.

    Args:
        model: the model.
        deployment: machine and settings that the windows are timed with.
        means: of what steps saved: here they correct the model, and they alone speak of steps too large to be looked
            at.
    """

    def __init__(self, model: ChainPredictor, deployment: Deployment, means: StepMeans) -> None:
        self._model, self._means = model, means
        self._observer = StepObserver(deployment)

    @classmethod
    def shipped(cls, deployment: Deployment) -> LearntPrior:
        """Return the prior of the model and the means that ship.

        Raises:
            UserError: they are missing, or of other features.
        """
        return cls(PlainPredictor.load(SHIPPED), deployment, means_here(deployment))

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        """Return what each step of a state is expected to save beyond what the chain before it saves; None where its
        rule was never timed.

        Args:
            steps: steps of one state of a window.
            chains: the steps as means know them.
            share: share of the window's time that the chain before them saves.
            depth: rewrites of that chain.
        """
        kept, sample = self._observer.observed(steps, share, depth, [chain.guess for chain in chains])
        found: dict[int, Forecast | None] = {}
        if sample is not None:
            names = [chains[number].names for number in kept]
            told = savings(share, *self._model.predict_both([sample]), [self._means.labels(one) for one in names])
            for number, keys, one in zip(kept, names, told, strict=True):
                known = one.labels >= LEAST_LABELS
                found[number] = self._means.corrected(keys, chains[number].guess, one) if known else None
        return [
            found[number] if number in found else self._means.forecast(*chain) for number, chain in enumerate(chains)
        ]
