"""Scores of models of effects on labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from agents.effects.model import EffectPredictor
from agents.effects.samples import StateSample, share_after
from graph_rewrite.experience.means import LEAST_SHARE, share
from graph_rewrite.experience.records import Label
from graph_rewrite.experience.validation import spearman

_STATES = 256
"""States that are predicted together."""


class TabulatedEffects:
    """A model of effects whose predictions are looked up by labels, as `leave_one_family_out` asks for them.

    Args:
        predictor: the model.
        samples: the states of a table.
        step_of: number of the step in the table, by the id of a label.
    """

    def __init__(self, predictor: EffectPredictor, samples: Sequence[StateSample], step_of: Mapping[str, int]) -> None:
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
