"""Forecasts by means of what the steps of a table save, as features of models of effects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from agents.effects.learning_means import MeansLearner
from agents.effects.plain import forecast_features
from agents.effects.samples import StateSample
from agents.effects.step_means import StepMeans
from envs.window.table import WindowTable


class TableForecasts:
    """Adds forecasts to the states of a table.

    Args:
        table: the table that the samples come from.
    """

    def __init__(self, table: WindowTable) -> None:
        self._learner = MeansLearner(table)
        self._family = [window.family for window in table.windows]

    def for_training(self, samples: Sequence[StateSample]) -> list[StateSample]:
        """Return samples with forecasts that were learnt from the other families of networks among them: what a model
        is told of a family in training is as good as what it is told of an unknown one."""
        families = {self._family[sample.window] for sample in samples}
        means = {family: self._learnt(samples, but=family) for family in sorted(families)}
        return [self._told(sample, means[self._family[sample.window]]) for sample in samples]

    def learnt_from(self, known: Sequence[StateSample], samples: Sequence[StateSample]) -> list[StateSample]:
        """Return samples with forecasts that were learnt from the windows of `known` ones."""
        means = self._learnt(known)
        return [self._told(sample, means) for sample in samples]

    def _learnt(self, samples: Sequence[StateSample], but: str | None = None) -> StepMeans:
        return self._learner.learnt({one.window for one in samples if self._family[one.window] != but})

    def _told(self, sample: StateSample, means: StepMeans) -> StateSample:
        learner, steps = self._learner, range(sample.first_step, sample.first_step + len(sample.effects))
        rows = [forecast_features(learner.forecast(means, step), learner.on_line(means, step)) for step in steps]
        return replace(sample, forecasts=np.array(rows, dtype=np.float32))
