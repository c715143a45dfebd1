"""Cross validation of models of effects: each family of networks is predicted by what was learnt from the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.errors import UserError
from graph_rewrite.experience.means import MeanEffects, share
from graph_rewrite.experience.records import Label

OF_TOP = 3
"""First steps that are proposed for a window."""
Z90 = 1.6448536
"""Half-width of the 90% interval of a normal distribution, in standard deviations."""


class EffectModel(Protocol):
    """A model that predicts what a chain saves; `MeanEffects` is one."""

    def predict(self, label: Label) -> tuple[float, float]: ...


@dataclass(frozen=True, slots=True)
class ValidationScore:
    """The agreement of predictions with labels of families that the model has not seen."""

    labels: int
    spearman: float
    """Rank correlation of predicted and measured shares; NaN where one of them is constant."""
    error: float
    """Mean absolute error, as a share of the window's time."""
    constant_error: float
    """The same for the mean of all labels of the other families."""
    covered: float
    """Share of the labels that their 90% intervals hold; labels have measuring errors, and so have those that intervals
    are learnt from."""
    windows: int
    """Windows with several first steps, one of which saves time."""
    best_among_top: float
    """Share of these windows whose best first step is among the three that are predicted to be best; NaN for none."""

    def to_json(self) -> dict[str, Any]:
        """Plain values by name; None for NaN."""
        found = {name: getattr(self, name) for name in self.__slots__}
        return {name: None if value != value else value for name, value in found.items()}


def most_precise(labels: Iterable[Label]) -> list[Label]:
    """Return the labels that could be run, of several timings of one chain at one place the one with the narrowest
    interval: the others are of the same thing."""
    found: dict[tuple[str, ...], Label] = {}
    for label in labels:
        if not label.ok:
            continue
        key = (label.body["place"], label.body["context"], *label.body["steps"])
        known = found.get(key)
        if known is None or label.half_of_model < known.half_of_model:
            found[key] = label
    return sorted(found.values(), key=lambda label: label.id)


def leave_one_family_out(
    labels: Iterable[Label],
    fit: Callable[[Sequence[Label]], EffectModel] = lambda known: MeanEffects().learn(known),
    folds: int | None = None,
) -> dict[str, ValidationScore]:
    """Return the scores of a model by the family that was left out, and under `""` those of all predictions together.

    Args:
        labels: of a store or an export.
        fit: makes the model out of the labels of the other families.
        folds: parts into which the families are divided, each of which is left out as a whole; by default each family
            is one.

    Raises:
        UserError: the labels are of fewer than two families.
    """
    return scores_by_family(held_out_predictions(labels, fit, folds))


def scores_by_family(rows: Sequence[Prediction]) -> dict[str, ValidationScore]:
    """Return the scores of predictions by family, and under `""` those of all together."""
    by_family: dict[str, list[Prediction]] = defaultdict(list)
    for row in rows:
        by_family[row.label.family].append(row)
    return {"": _score(rows), **{family: _score(found) for family, found in sorted(by_family.items())}}


def held_out_predictions(
    labels: Iterable[Label], fit: Callable[[Sequence[Label]], EffectModel], folds: int | None = None
) -> list[Prediction]:
    """Return the predictions of every label by what was learnt from other families, as `leave_one_family_out` scores
    them.

    Raises:
        UserError: the labels are of fewer than two families.
    """
    by_family: dict[str, list[Label]] = defaultdict(list)
    for label in most_precise(labels):
        by_family[label.family].append(label)
    if len(by_family) < 2:
        raise UserError("cross validation needs labels of at least two families of networks")
    rows, families = list[Prediction](), sorted(by_family)
    parts = len(families) if folds is None else max(2, min(folds, len(families)))
    for part in range(parts):
        out = families[part::parts]
        known = [label for family in families if family not in out for label in by_family[family]]
        model, mean = fit(known), float(np.mean([share(label) for label in known]))
        rows += [Prediction(label, *model.predict(label), mean) for family in out for label in by_family[family]]
    return rows


@dataclass(frozen=True, slots=True)
class Prediction:
    """A label, and what was predicted of it; shares of the window's time."""

    label: Label
    expected: float
    deviation: float
    constant: float
    """The mean of the labels that the model learnt from."""


def _score(rows: Sequence[Prediction]) -> ValidationScore:
    measured = np.array([share(row.label) for row in rows])
    expected = np.array([row.expected for row in rows])
    deviation = np.array([row.deviation for row in rows])
    groups: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for row in rows:
        if len(row.label.steps) == 1:
            groups[_window(row.label)].append(row)
    hits = [hit for group in groups.values() if (hit := _hit(group)) is not None]
    return ValidationScore(
        len(rows), spearman(expected, measured), float(np.mean(abs(expected - measured))),
        float(np.mean(abs(np.array([row.constant for row in rows]) - measured))),
        float(np.mean(abs(expected - measured) <= Z90 * deviation)), len(hits),
        float(np.mean(hits)) if hits else float("nan"),
    )  # fmt: skip


def _window(label: Label) -> tuple[str, str]:
    return label.window["fingerprint"], label.circumstances


def _hit(group: Sequence[Prediction]) -> bool | None:
    """Return whether the best first step is among those that are predicted to be best; None where there is no choice
    or nothing to gain."""
    steps: dict[tuple[str, ...], Prediction] = {}
    for row in sorted(group, key=lambda row: (-row.label.half_of_window, row.label.id)):
        steps[tuple(row.label.body["steps"])] = row  # of a step in several places the most precise timing counts
    group = list(steps.values())
    best = max(group, key=lambda row: share(row.label))
    if len(group) <= OF_TOP or share(best.label) <= 0.0:
        return None
    top = sorted(group, key=lambda row: -row.expected)[:OF_TOP]
    return any(row is best for row in top)


def spearman(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return Spearman's rank correlation of two vectors of equal length, ties by mean ranks; NaN where one is
    constant."""
    ranks = [_ranks(values) for values in (one, other)]
    centred = [rank - rank.mean() for rank in ranks]
    scale = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float((centred[0] * centred[1]).sum()) / scale if scale > 0.0 else float("nan")


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    found: NDArray[np.float64] = ((last - counts + 1 + last) / 2.0)[inverse]
    return found
