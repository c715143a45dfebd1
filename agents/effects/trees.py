"""Gradient-boosted trees over plain features: a baseline of models of effects that needs no PyTorch.

Trees are grown by levels over histograms of binned features (Ke et al., "LightGBM", NeurIPS 2017), each on the
gradients of a squared loss (Friedman 2001, Annals of Statistics 29, 1189-1232).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.effects.samples import StateSample
from graph_rewrite.errors import UserError

BINS = 32
LEAST_ERROR = 0.03
"""Standard deviation that counts as a label's at least."""
RANGE = (-0.7, 2.0)
"""Effects beyond these count as these."""
_PRIOR = 4.0
"""Steps that the mean of all steps counts as in the mean of a rule."""

Floats = NDArray[np.float64]
Binned = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """Settings of boosting."""

    trees: int = 150
    depth: int = 4
    rate: float = 0.08
    """Part of its correction that each tree adds."""
    features: float = 0.3
    """Share of the features that a tree looks at."""
    rows: float = 0.7
    """Share of the steps that it learns from."""
    penalty: float = 4.0
    """Weight of steps that say 0 in every leaf."""
    seed: int = 0


@dataclass(frozen=True, slots=True)
class BoostedTrees:
    """A sum of trees. Each has, for all inner nodes level by level, a feature and the last bin that goes left, and the
    values of its leaves."""

    base: float
    features: NDArray[np.int64]
    """[trees, 2^depth - 1]"""
    borders: NDArray[np.int64]
    values: Floats
    """[trees, 2^depth]"""

    def predict(self, rows: Binned) -> Floats:
        """Return predictions for binned features, [rows, features]."""
        found = np.full(len(rows), self.base)
        depth = int(np.log2(self.values.shape[1])) if len(self.values) else 0
        each = np.arange(len(rows))
        for features, borders, values in zip(self.features, self.borders, self.values, strict=True):
            node = np.zeros(len(rows), dtype=np.int64)
            for _ in range(depth):
                node = 2 * node + 1 + (rows[each, features[node]] > borders[node])
            found += values[node - (2**depth - 1)]
        return found


def boosted(rows: Binned, targets: Floats, weights: Floats, settings: TreeSettings) -> BoostedTrees:
    """Return trees that predict targets [rows] from binned features [rows, features], 0 to `BINS` - 1."""
    random = np.random.default_rng(settings.seed)
    base = float(np.average(targets, weights=weights))
    current, grown = np.full(len(rows), base), []
    count = max(1, round(settings.features * rows.shape[1]))
    for _ in range(settings.trees):
        chosen = np.sort(random.choice(rows.shape[1], count, replace=False))
        drawn = weights * (random.random(len(rows)) < settings.rows)
        features, borders, values = _grown(rows[:, chosen], targets - current, drawn, settings)
        tree = BoostedTrees(0.0, chosen[features][None], borders[None], values[None])
        current += tree.predict(rows)
        grown.append(tree)
    joined = (np.concatenate([getattr(tree, name) for tree in grown]) for name in ("features", "borders", "values"))
    return BoostedTrees(base, *joined)


def _grown(
    rows: Binned, residuals: Floats, weights: Floats, settings: TreeSettings
) -> tuple[Binned, Binned, Floats]:  # fmt: skip
    """Grow one tree level by level."""
    inner = 2**settings.depth - 1
    features, borders = np.zeros(inner, dtype=np.int64), np.full(inner, BINS, dtype=np.int64)
    node, count = np.zeros(len(rows), dtype=np.int64), rows.shape[1]
    columns = np.arange(count) * BINS
    for level in range(settings.depth):
        first, width = 2**level - 1, 2**level
        place = (((node - first) * count * BINS)[:, None] + columns[None, :] + rows).ravel()
        sums = [
            np.bincount(place, np.repeat(each, count), width * count * BINS).reshape(width, count, BINS).cumsum(axis=2)
            for each in (weights, weights * residuals)
        ]
        mass, total = sums
        whole_mass, whole = mass[:, :, -1:], total[:, :, -1:]
        penalty = settings.penalty
        gain = total**2 / (mass + penalty) + (whole - total) ** 2 / (whole_mass - mass + penalty)
        gain -= whole**2 / (whole_mass + penalty)
        best = gain.reshape(width, -1).argmax(axis=1)
        useful = gain.reshape(width, -1)[np.arange(width), best] > 1e-12
        features[first : first + width] = best // BINS
        borders[first : first + width] = np.where(useful, best % BINS, BINS)
        node = 2 * node + 1 + (rows[np.arange(len(rows)), features[node]] > borders[node])
    mass, total = (np.bincount(node - inner, each, inner + 1) for each in (weights, weights * residuals))
    return features, borders, settings.rate * total / (mass + settings.penalty)


class TreePredictor:
    """Predicts the effects of steps by boosted trees: their means, and standard deviations by how wrong trees are that
    have seen half of the windows.

    Args:
        samples: states to learn from.
        settings: of boosting.

    Raises:
        UserError: there is nothing to learn from.
    """

    def __init__(self, samples: Sequence[StateSample], settings: TreeSettings) -> None:
        if not any(np.isfinite(sample.effects).any() for sample in samples):
            raise UserError("there is no step to learn from: collect experience first")
        effects = np.concatenate([sample.effects for sample in samples])
        errors = np.concatenate([sample.errors for sample in samples])
        known = np.isfinite(effects)
        targets = np.clip(effects[known], *RANGE)
        weights = LEAST_ERROR**2 / (LEAST_ERROR**2 + errors[known] ** 2)
        rules, numbers = (values[known] for values in _plain(samples))
        self._totals: dict[int, tuple[float, float]] = {}
        self._mean = float(np.average(targets, weights=weights))
        for rule in np.unique(rules).tolist():
            mine = rules == rule
            self._totals[rule] = float(weights[mine].sum()), float(weights[mine] @ targets[mine])
        own = self._encoded(rules, weights, targets)
        table = np.column_stack([numbers, own])
        self._edges = np.quantile(table, np.linspace(0.0, 1.0, BINS + 1)[1:-1], axis=0)
        rows = self._binned(table)
        self._means = boosted(rows, targets, weights, settings)
        window = np.repeat([one.window for one in samples], [len(one.effects) for one in samples])[known]
        half = np.random.default_rng(settings.seed).random(int(window.max()) + 1)[window] < 0.5
        self._deviations = _deviations(rows, targets, weights, half, settings)

    def predict(self, samples: Sequence[StateSample]) -> tuple[Floats, Floats]:
        """Return means and standard deviations of the effects of all steps of these states, one state after another."""
        rules, numbers = _plain(samples)
        none = np.zeros(len(rules))
        rows = self._binned(np.column_stack([numbers, self._encoded(rules, none, none)]))
        return self._means.predict(rows), np.exp(self._deviations.predict(rows))

    def _encoded(self, rules: NDArray[np.int64], weights: Floats, targets: Floats) -> Floats:
        """Return the mean effect of each step's rule without the step itself, [steps]."""
        mass, total = np.array([self._totals.get(rule, (0.0, 0.0)) for rule in rules.tolist()]).reshape(-1, 2).T
        found: Floats = (total - weights * targets + _PRIOR * self._mean) / (mass - weights + _PRIOR)
        return found

    def _binned(self, table: Floats) -> Binned:
        columns = [np.searchsorted(self._edges[:, column], table[:, column]) for column in range(table.shape[1])]
        return np.column_stack(columns).astype(np.int64)


def _plain(samples: Sequence[StateSample]) -> tuple[NDArray[np.int64], Floats]:
    """Return rules [steps] and plain features [steps, features] of all steps."""
    rules = np.concatenate([sample.plain.rules for sample in samples])
    return rules, np.concatenate([sample.plain.numbers for sample in samples]).astype(np.float64)


def _deviations(
    rows: Binned, targets: Floats, weights: Floats, half: NDArray[np.bool_], settings: TreeSettings
) -> BoostedTrees:
    """Return trees for the log of the standard deviation, learnt from how wrong each half's trees are on the other."""
    wrong = np.zeros(len(rows))
    for here in (half, ~half):
        if here.any() and not here.all():
            trees = boosted(rows[here], targets[here], weights[here], settings)
            wrong[~here] = abs(trees.predict(rows[~here]) - targets[~here])
    few = TreeSettings(40, 3, settings.rate, settings.features, settings.rows, settings.penalty, settings.seed)
    # For a normal distribution the mean log of the absolute deviation is 0.635 below the log of the standard deviation.
    return boosted(rows, np.log(wrong + 0.005) + 0.635, np.ones(len(rows)), few)
