"""Numbers with intervals out of rows: speed-ups of a series on a model, and means across models.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021 (rliable): the
bootstrap is stratified by model, so that models are fixed and runs are drawn anew; the interquartile mean where there
are many runs. The profiles are those of Dolan and Moré, "Benchmarking optimization software with performance
profiles", Mathematical Programming 91, 2002.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures.rows import Results, Row, Series
from benchmarks.protocol.judging.intervals import over_models

DRAWS = 4000
MANY_SEEDS = 5
"""Seeds of each model from which the interquartile mean is told too."""
_HALF_WIDTHS = 2 * 1.959964
_LOWEST, _HIGHEST = 2.5, 97.5
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SpeedupEstimate:
    """A speed-up with its 95% interval, out of `runs` runs, of which `failed` count as the original, 1.0."""

    value: float
    low: float
    high: float
    runs: int
    failed: int

    @property
    def is_slower(self) -> bool:
        """The whole interval lies below 1."""
        return self.high < 1.0


def of_model(results: Results, series: Series, model: str) -> SpeedupEstimate | None:
    """Return the speed-up of a series on one model: the geometric mean of its runs; None where no run counts."""
    rows = results.of(series, model)
    if not any(row.counts for row in rows):
        return None
    if len(rows) == 1 and rows[0].speedup is not None:
        low, high = rows[0].ci95 or (rows[0].speedup, rows[0].speedup)
        return SpeedupEstimate(rows[0].speedup, low, high, 1, 0)
    return _estimate([rows])


def across_models(results: Results, series: Series, models: Sequence[str] | None = None) -> SpeedupEstimate | None:
    """Return the geometric mean of a series over models with a stratified bootstrap interval: over all models that it
    ran on, or over those of `models`; None where no run counts.

    A run that failed counts as 1.0, since its user keeps the original.
    """
    strata = [rows for model in models or results.models if (rows := results.of(series, model))]
    return _estimate(strata) if any(row.counts for rows in strata for row in rows) else None


def ratio_across_models(results: Results, one: Series, other: Series) -> SpeedupEstimate | None:
    """Return how many times as fast the results of one series are as those of another: the geometric mean over the
    models that both ran on, with a stratified bootstrap interval. Seeds and sessions are paired, as both were judged in
    the same sessions; models on which they were not are left out. None where there is no model.

    A run that failed counts as 1.0, since its user keeps the original.
    """
    pairs = {model: (results.of(one, model), results.of(other, model)) for model in results.models}
    models = {model: _differences(*rows) for model, rows in pairs.items()}
    models = {model: logs for model, logs in models.items() if logs}
    if not models:
        return None
    found, rows = over_models(models), [row for model in models for row in pairs[model][0]]
    return SpeedupEstimate(found.speedup, found.low, found.high, len(rows), sum(not row.counts for row in rows))


def _differences(ones: Sequence[Row], others: Sequence[Row]) -> list[list[float]]:
    """Return logarithms of the speed-ups of some runs over others, by seed and session; empty where they were not
    judged together, or their seeds differ."""
    seeds = [sorted(rows, key=lambda row: row.seed or 0) for rows in (ones, others)]
    judged = [row for row in (*ones, *others) if row.counts and row.sessions]
    if [row.seed for row in seeds[0]] != [row.seed for row in seeds[1]] or len({row.judgement for row in judged}) > 1:
        return []
    sessions = min((len(row.sessions) for row in judged), default=1)

    def logs(row: Row) -> Sequence[float]:
        return row.sessions[:sessions] if row.counts and row.sessions else [0.0] * sessions

    return [[a - b for a, b in zip(logs(x), logs(y), strict=True)] for x, y in zip(*seeds, strict=True)]


def interquartile_mean(results: Results, series: Series) -> SpeedupEstimate | None:
    """Return the interquartile mean of all runs with its interval; None where a model has fewer runs than
    `MANY_SEEDS`."""
    strata = [rows for model in results.models if (rows := results.of(series, model))]
    if not strata or min(map(len, strata)) < MANY_SEEDS or not any(row.counts for rows in strata for row in rows):
        return None
    rng = np.random.default_rng(0)
    drawn = np.concatenate([_runs_drawn(rows, rng) for rows in strata], axis=1)
    value = middle_mean(np.concatenate([_logs(rows)[0] for rows in strata])[None, :])
    return _told(float(value[0]), middle_mean(drawn), [row for rows in strata for row in rows])


def share_reaching(results: Results, series: Series, factors: Floats) -> Floats:
    """Return for each factor the share of a series' runs that are at least so many times as fast as the original.

    Models weigh the same. A run that failed reaches no factor.
    """
    shares = []
    for model in results.models:
        rows = results.of(series, model)
        if rows:
            reached = np.array([row.speedup if row.counts and row.speedup is not None else 0.0 for row in rows])
            shares.append((reached[:, None] >= factors[None, :]).mean(axis=0))
    return np.mean(shares, axis=0) if shares else np.zeros_like(factors)


def _estimate(strata: Sequence[Sequence[Row]]) -> SpeedupEstimate:
    rng = np.random.default_rng(0)
    drawn = np.mean([_runs_drawn(rows, rng).mean(axis=1) for rows in strata], axis=0)
    value = float(np.mean([_logs(rows)[0].mean() for rows in strata]))
    return _told(value, drawn, [row for rows in strata for row in rows])


def _told(value: float, drawn: Floats, rows: Sequence[Row]) -> SpeedupEstimate:
    low, high = np.percentile(drawn, (_LOWEST, _HIGHEST))
    low, high = min(float(low), value), max(float(high), value)
    failed = sum(not row.counts for row in rows)
    return SpeedupEstimate(math.exp(value), math.exp(low), math.exp(high), len(rows), failed)


def _runs_drawn(rows: Sequence[Row], rng: np.random.Generator) -> Floats:
    """Return logarithms of speed-ups of one model's runs, (DRAWS, runs): runs drawn with replacement, each with the
    noise of its measurement. The noise is one for all runs, since all are compared with the same runs of the
    original."""
    logs, widths = _logs(rows)
    chosen = rng.integers(len(rows), size=(DRAWS, len(rows)))
    drawn: Floats = logs[chosen] + rng.standard_normal(DRAWS)[:, None] * widths[chosen]
    return drawn


def _logs(rows: Sequence[Row]) -> tuple[Floats, Floats]:
    """Return the logarithm of each row's speed-up, and its standard error by the row's interval."""
    logs = [math.log(row.speedup) if row.counts and row.speedup else 0.0 for row in rows]
    errors = [math.log(row.ci95[1] / row.ci95[0]) / _HALF_WIDTHS if row.counts and row.ci95 else 0.0 for row in rows]
    return np.array(logs), np.array(errors)


def middle_mean(values: Floats) -> Floats:
    """Return the mean of the middle half of each line, of values [lines, n]; a quarter is rounded down."""
    cut = values.shape[1] // 4
    mean: Floats = np.sort(values, axis=1)[:, cut : values.shape[1] - cut].mean(axis=1)
    return mean
