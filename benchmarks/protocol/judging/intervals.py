"""Speed-ups with their intervals: of one judgement over its sessions, and of many models.

Within a session the ratio of original to contestant is taken round by round, so that a drift of the machine cancels,
and the session counts with its median. Sessions differ by where their memory lies, so the interval is Student's over
sessions (Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", ISMM'13).

Across models speed-ups are geometric means with a stratified bootstrap interval (Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice", NeurIPS'21, arXiv 2108.13264): each model is a stratum, its seeds
are drawn with replacement, and likewise the sessions that it was judged in. Of n each time n - 1 are drawn: with few of
them the usual n make intervals too narrow, by a factor of sqrt((n - 1) / n) (Efron, "The Jackknife, the Bootstrap and
Other Resampling Plans", 1982).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.runtime.ort_worker.statistics import student_t

Floats = NDArray[np.float64]
RESAMPLES = 2000
_QUANTILES = {1: 12.706, 2: 4.303}
"""97.5% quantiles of Student's t with few degrees of freedom, which `student_t` leaves out."""


@dataclass(frozen=True)
class Interval:
    """A speed-up and the limits of its 95% interval."""

    speedup: float
    low: float
    high: float

    @property
    def limits(self) -> list[float]:
        """Both limits, as the results file has them."""
        return [self.low, self.high]

    def holds(self, speedup: float) -> bool:
        """Return whether the interval contains a speed-up."""
        return self.low <= speedup <= self.high


def session_ratio(original: Sequence[float], contestant: Sequence[float]) -> float:
    """Return the log of one session's speed-up: the median over rounds. Arguments: seconds per run, by round."""
    return float(np.median(np.log(np.asarray(original) / np.asarray(contestant))))


def over_sessions(ratios: Sequence[float]) -> Interval:
    """Return the speed-up of log ratios, one per session, with Student's 95% interval.

    Raises:
        ValueError: less than two sessions.
    """
    count = len(ratios)
    if count < 2:
        raise ValueError(f"an interval over sessions needs at least two, got {count}")
    values = np.asarray(ratios, np.float64)
    quantile = _QUANTILES.get(count - 1) or student_t(count - 1)
    half = quantile * float(values.std(ddof=1)) / math.sqrt(count)
    mean = float(values.mean())
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


Aggregate = Callable[[Sequence[Floats]], Floats]
"""Makes one number per resample of log speed-ups: those of each model as [resamples, seeds]."""


def over_models(models: Mapping[str, Sequence[Sequence[float]]], resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """Return the geometric mean over models with its stratified bootstrap interval.

    Args:
        models: by model, log ratios by seed and session; all seeds of a model were judged in the same sessions.

    Raises:
        ValueError: no models.
    """
    return _bootstrapped(models, _mean_of_means, resamples, seed)


def interquartile_mean(
    models: Mapping[str, Sequence[Sequence[float]]], resamples: int = RESAMPLES, seed: int = 0
) -> Interval:
    """Return the mean of the middle half of all runs (geometric), with its stratified bootstrap interval: with many
    seeds it depends less on single models than the mean over all. Arguments as for `over_models`."""
    return _bootstrapped(models, _middle_half, resamples, seed)


def _mean_of_means(runs: Sequence[Floats]) -> Floats:
    return np.asarray(np.mean([values.mean(axis=1) for values in runs], axis=0))


def _middle_half(runs: Sequence[Floats]) -> Floats:
    values = np.sort(np.concatenate(list(runs), axis=1), axis=1)
    cut = values.shape[1] // 4
    return np.asarray(values[:, cut : values.shape[1] - cut].mean(axis=1))


def _bootstrapped(
    models: Mapping[str, Sequence[Sequence[float]]], aggregate: Aggregate, resamples: int, seed: int
) -> Interval:
    if not models:
        raise ValueError("a mean over models needs at least one")
    strata = [_matrix(runs) for _, runs in sorted(models.items())]
    rng = np.random.default_rng(seed)
    low, high = np.quantile(aggregate([_resampled(runs, resamples, rng) for runs in strata]), [0.025, 0.975])
    (centre,) = aggregate([runs.mean(axis=1)[None] for runs in strata])
    return Interval(math.exp(centre), math.exp(low), math.exp(high))


def _matrix(runs: Sequence[Sequence[float]]) -> Floats:
    """Return log ratios as [seeds, sessions]; only sessions that all seeds have."""
    shared = min(len(sessions) for sessions in runs)
    return np.asarray([list(sessions)[:shared] for sessions in runs], np.float64)


def _resampled(runs: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Return the means of drawn seeds over drawn sessions, as [resamples, drawn seeds]. The drawn sessions are the same
    for all seeds: they were judged side by side."""
    seeds, sessions = (rng.integers(count, size=(resamples, max(1, count - 1))) for count in runs.shape)
    means: Floats = runs[seeds[:, :, None], sessions[:, None, :]].mean(axis=2)
    return means
