"""Scores of models of effects on labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from agents.effects.samples import StateSample, share_after
from agents.effects.step_means import Z95
from graph_rewrite.experience.means import LEAST_SHARE, share
from graph_rewrite.experience.records import Label
from graph_rewrite.experience.validation import spearman

_STATES = 256
"""States that are predicted together."""
CEILING_DRAWS = 20


class StatePredictor(Protocol):
    """A model of effects; `agents.effects.model.EffectPredictor` and `agents.effects.trees.TreePredictor` are some."""

    def predict(self, samples: Sequence[StateSample]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return means and standard deviations of the effects of all steps of these states."""
        ...


class TabulatedEffects:
    """A model of effects whose predictions are looked up by labels, as `leave_one_family_out` asks for them.

    Args:
        predictor: the model.
        samples: the states of a table.
        step_of: number of the step in the table, by the id of a label.
    """

    def __init__(self, predictor: StatePredictor, samples: Sequence[StateSample], step_of: Mapping[str, int]) -> None:
        self._step_of = step_of
        self._expected: dict[int, tuple[float, float]] = {}
        for begin in range(0, len(samples), _STATES):
            part = samples[begin : begin + _STATES]
            means, deviations = predictor.predict(part)
            counts = [len(sample.effects) for sample in part]
            before = np.repeat([sample.share for sample in part], counts)
            steps = np.concatenate([sample.first_step + np.arange(len(sample.effects)) for sample in part])
            after = np.maximum(share_after(before, means), LEAST_SHARE)
            spread = (1.0 - after) * deviations
            self._expected |= dict(zip(steps.tolist(), zip(after.tolist(), spread.tolist(), strict=True), strict=True))

    def predict(self, label: Label) -> tuple[float, float]:
        """Return the share that a chain is expected to save, and its standard deviation."""
        return self._expected[self._step_of[label.id]]


def repeatability(labels: Iterable[Label]) -> dict[str, float | int | None]:
    """Return how well chains that were timed twice agree: their number, the rank correlation of both timings, and the
    mean difference, as a share of the window's time. No model can be expected to predict better than that."""
    found: dict[tuple[str, ...], dict[str, Label]] = defaultdict(dict)
    for label in labels:
        if label.ok:
            key = (label.body["place"], label.body["context"], *label.body["steps"])
            found[key].setdefault(label.plan["effort"], label)
    pairs = [(both["scan"], both["careful"]) for both in found.values() if {"scan", "careful"} <= both.keys()]
    if len(pairs) < 2:
        return {"pairs": len(pairs), "spearman": None, "difference": None}
    one, other = (np.array([share(pair[side]) for pair in pairs]) for side in (0, 1))
    rank = spearman(one, other)
    return {
        "pairs": len(pairs), "spearman": None if rank != rank else rank, "difference": float(abs(one - other).mean()),
    }  # fmt: skip


def ceiling(labels: Sequence[Label], seed: int = 0) -> float | None:
    """Return the rank correlation with labels that a model would have which knew all true effects: labels are wrong by
    what their intervals say. None for fewer than two labels.

    True effects are drawn, given the labels, from a normal distribution whose variance is that of the labels less that
    of their errors; labels are drawn anew around them.
    """
    if len(labels) < 2:
        return None
    shares = np.array([share(label) for label in labels])
    errors = np.array([label.half_of_window / Z95 for label in labels])
    mean, spread = shares.mean(), max(float(shares.var() - (errors**2).mean()), 1e-6)
    trust = spread / (spread + errors**2)
    random, found = np.random.default_rng(seed), []
    for _ in range(CEILING_DRAWS):
        true = mean + trust * (shares - mean) + np.sqrt(trust) * errors * random.standard_normal(len(shares))
        found.append(spearman(true, true + errors * random.standard_normal(len(shares))))
    mean_rank = float(np.mean(found))
    return None if mean_rank != mean_rank else mean_rank
