"""Speed-ups with their 95% confidence intervals from paired timings. Pure functions, no clock, no randomness.

The timings come in blocks: one block is one session instance of each side, run in turn. Two things vary: single
runs within a block, and the sessions themselves, because where their memory lies changes their speed for as long as
they live. A block is therefore a cluster, and the interval is that of a mean over clusters (Kalibera and Jones,
"Rigorous Benchmarking in Reasonable Time", ISMM'13, on repetition at the level where the variance is).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean, median

from .plan import Plan

INSTANCE_SD = 0.01
"""Prior standard deviation, between session instances, of the log ratio of two identical models.

Identical sessions of one model in one process were seen to differ by up to 1.3%, and a single pair of sessions to
prove nothing under 4% on some models: with three degrees of freedom this gives plus or minus 3.2% for one pair."""

INSTANCE_DOF = 3
"""Number of observations that the prior is worth: a few blocks of real data outweigh it."""

MEDIAN_DOF = 1.5
"""Times the root of the number of pairs: degrees of freedom of `median_standard_error`, squared. By simulation with
normal data 4 for 8 pairs, 5 for 11, 7 for 20 and 9 for 40: it rests on two order statistics."""

DISTURBED = 1.05
"""Times the fastest run of a block above which a long run was disturbed: undisturbed runs of 0.2 s and longer differ by
1% to 2% (one thread of a Zen 4)."""
_LONG_S = 0.05
KNOWS_ITS_ERROR = 8
"""Pairs of which one may be disturbed."""
FEWEST = 3
"""Pairs that are taken however long they take, and kept whatever disturbed them: fewer tell nothing about their
error."""

_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Block:
    """Seconds per run of one instance of each side; element i of both was timed next to each other.

    Each element is the mean of `repeats` runs in a row (more than one only for models too fast for the clock).
    """

    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    repeats: int = 1

    def __post_init__(self) -> None:
        if not self.baseline or len(self.baseline) != len(self.candidate):
            raise ValueError(f"Block: needs pairs, got {len(self.baseline)} and {len(self.candidate)} timings")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A speed-up (baseline over candidate) and the limits of its 95% interval."""

    speedup: float
    low: float
    high: float

    @property
    def relative_width(self) -> float:
        return (self.high - self.low) / self.speedup


def log_ratios(block: Block) -> list[float]:
    """Return the log of baseline over candidate, of each pair of a block that nothing disturbed.

    Of eight pairs one may be disturbed on either side and the median still knows its error
    (`median_standard_error`). Of fewer, those are left out in which a long run took `DISTURBED` times as long as the
    fastest of its side: what runs beside it only adds time. So many stay that an error can be told.
    """
    pairs = list(zip(block.baseline, block.candidate, strict=True))
    fastest = min(block.baseline), min(block.candidate)
    if len(pairs) < KNOWS_ITS_ERROR and min(fastest) >= _LONG_S:
        calm = [pair for pair in pairs if all(s <= DISTURBED * least for s, least in zip(pair, fastest, strict=True))]
        pairs = calm if len(calm) >= FEWEST else pairs
    return [math.log(b / c) for b, c in pairs]


def median_standard_error(sample: Sequence[float]) -> float:
    """Return the standard error of the sample's median, from the interval between two order statistics.

    McKean and Schrader (1984), with the normal quantile of the interval's exact binomial coverage, which matters
    for the three to ten pairs of a block. A single value tells nothing about its error: infinity.
    """
    ordered, n = sorted(sample), len(sample)
    if n < 2:
        return math.inf
    lower = max(1, round((n + 1) / 2 - _Z * math.sqrt(n / 4)))
    outside = 2 * sum(math.comb(n, k) for k in range(lower)) / 2**n
    return (ordered[n - lower] - ordered[lower - 1]) / (2 * NormalDist().inv_cdf(1 - outside / 2))


def student_t(dof: float) -> float:
    """Return the 97.5% quantile of Student's t with `dof` >= 3 degrees of freedom.

    Abramowitz and Stegun 26.7.5, accurate to 0.5% at 3 degrees and better above.
    """
    if dof < 3:
        raise ValueError(f"student_t: at least 3 degrees of freedom, got {dof}")
    z = _Z
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return float(sum(term / dof**power for power, term in enumerate(terms)))


def estimate(blocks: Sequence[Block]) -> Estimate:
    """Return the speed-up and its 95% interval: mean over blocks of the median log ratio of each block's pairs.

    The variance between blocks is estimated from the blocks together with a scaled inverse chi-square prior
    (Gelman et al., Bayesian Data Analysis, section 3.3): `INSTANCE_SD` squared plus the error of a block's median. It
    is worth `INSTANCE_DOF` observations where sessions differ more than pairs do, and more where pairs tell most of
    it (`_prior_dof`). So one block gives a wide interval instead of a falsely narrow one, and many blocks speak for
    themselves.
    """
    if not blocks:
        raise ValueError("estimate: at least one block of timings is needed")
    ratios = [log_ratios(block) for block in blocks]
    centres = [median(sample) for sample in ratios]
    mean, count = fmean(centres), len(centres)
    # A block of one pair cannot tell its own error; the others' stands for it, or none is claimed.
    errors = [error for error in map(median_standard_error, ratios) if math.isfinite(error)]
    if not errors and count == 1:
        return Estimate(math.exp(mean), 0.0, math.inf)
    of_pairs = fmean([error**2 for error in errors] or [0.0])
    known = _prior_dof(of_pairs, [len(sample) for sample in ratios])
    dof = known + count - 1
    variance = (known * (INSTANCE_SD**2 + of_pairs) + sum((centre - mean) ** 2 for centre in centres)) / dof
    half = student_t(dof) * math.sqrt(variance / count)
    return Estimate(math.exp(mean), math.exp(mean - half), math.exp(mean + half))


def _prior_dof(of_pairs: float, sizes: Sequence[int]) -> float:
    """Return the degrees of freedom of the variance of a block's median (Satterthwaite, "An approximate distribution of
    estimates of variance components", Biometrics Bulletin 2, 1946): it adds up what sessions differ by and the error of
    the median, each known from so many observations. Never fewer than `INSTANCE_DOF`, and no more where the blocks have
    too few pairs to know their error.

    Args:
        of_pairs: the error of a median, squared.
        sizes: pairs of each block.
    """
    dof = MEDIAN_DOF * sum(math.sqrt(size) for size in sizes if size >= KNOWS_ITS_ERROR)
    if not dof:
        return INSTANCE_DOF
    of_sessions = INSTANCE_SD**2
    return max(INSTANCE_DOF, (of_sessions + of_pairs) ** 2 / (of_sessions**2 / INSTANCE_DOF + of_pairs**2 / dof))


def standard_error(half: float) -> float:
    """Return the standard error that the half-width of the interval of one block says, on the scale of logarithms."""
    return half / student_t(INSTANCE_DOF)


def chance_of_telling(lead: float, error: float, half: float, pairs: int, blocks: int, pairs_each: int) -> float:
    """Return how likely the interval of a measurement to come lies above a limit.

    Args:
        lead: that is believed to be had over the limit, on the scale of logarithms.
        error: standard error of that belief, which does not rest on the measurement to come.
        half: half-width of the interval of a measurement that was taken, taken as that of one block.
        pairs: that it took.
        blocks: of the measurement to come.
        pairs_each: of each of its blocks.
    """
    of_sessions = INSTANCE_SD**2
    of_pairs = max(0.0, standard_error(half) ** 2 - of_sessions) * pairs / pairs_each
    coming = math.sqrt((of_sessions + of_pairs) / blocks)
    width = student_t(INSTANCE_DOF + blocks - 1) * coming
    return NormalDist(sigma=math.hypot(error, coming)).cdf(lead - width)


def is_blurred(block: Block) -> bool:
    """Return whether the pairs of a block tell its ratio less well than sessions differ."""
    return median_standard_error(log_ratios(block)) > INSTANCE_SD


def block_is_precise(block: Block, plan: Plan) -> bool:
    """Return whether further pairs in this block would add little."""
    if plan.instances == 1:
        return estimate([block]).relative_width <= plan.target_ci_width
    # Well below what the sessions differ by, the next block is worth more than the next pair.
    return median_standard_error(log_ratios(block)) <= INSTANCE_SD / 3


def is_enough(blocks: Sequence[Block], plan: Plan, elapsed_s: float) -> bool:
    """Return whether a measurement with these blocks may end, `elapsed_s` seconds after it began."""
    if len(blocks) < plan.min_instances:
        return False
    if len(blocks) >= plan.instances or elapsed_s >= plan.budget_s:
        return True
    return estimate(blocks).relative_width <= plan.target_ci_width
