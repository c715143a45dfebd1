"""Means of what steps save, as a search by windows asks for them; needs neither PyTorch nor Gymnasium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.experience.means import MeanEffects, chain_keys
from graph_rewrite.ir.hashing import text_digest
from graph_rewrite.rewriting.candidates import Candidate

MOST_GUESS = 0.5
"""Share of a window's time beyond which an estimate counts as this: it knows nothing of layouts."""
LEAST_LABELS = 1.0
"""Labels of a rule without which nothing is forecast for it."""
Z95 = 1.959964
"""Half-width of the 95% interval of a normal distribution, in standard deviations."""
SPREAD = 0.05
"""Standard deviation of what alike steps save, as shares of their windows' time: a timing counts by how much more
precise than that it is."""
MOST_LOST = 0.5
"""Loss that larger ones, and failures, count as: what loses that much is never taken, and would decide every mean."""
_DIGITS = 4
_SUM_DIGITS = (2, 3, 4)
"""Digits that are kept of the weights, shares and squares that means are made of: shares are timed to some percent."""
_CLASS, _CHAIN, _RULE = -5, -4, -2
"""Where the keys of a step have its chain on a class of shapes, its chain, and its rule."""
CLASS_PRIOR, WINDOW_PRIOR = 6.0, 1.0
"""Timings that a prediction counts as beside those of the same chain on the same class of shapes, and beside those in
the very window; chosen on windows that neither means nor model knew, and on those that both knew."""
MEANS_COUNT = 0.5
"""How much means count beside a model's prediction that is as sure as they are: both were learnt from the same timings,
and neither is ahead of the other everywhere; chosen on architectures and processors that neither knew."""
_LETTERS = 12
Halves = TypeVar("Halves", float, NDArray[np.float64])


class ChainStep(NamedTuple):
    """A step of a window as means know it: by the chain that it ends."""

    rules: Sequence[str]
    """Of the chain, the step's own last."""
    families: Sequence[str]
    """Of these rules."""
    shapes: str
    """The class of shapes that the chain begins on (`graph_rewrite.experience.means.shape_class`)."""
    guess: float
    """Share of the window's time that the step saves by a count of operations and bytes."""
    window: str = ""
    """Fingerprint of the window before any rewrite; empty where it is like no other."""

    @property
    def names(self) -> list[str]:
        """Its keys in means, from special to general."""
        return step_keys(self.rules, self.families, self.shapes, self.window)


class Expectation(NamedTuple):
    """A share of a window's time that is expected to be saved."""

    mean: float
    deviation: float
    """Its standard deviation."""

    def with_more(self, more: Expectation, *, known: bool) -> Expectation:
        """Return this with what is expected beyond it; where that is `known` of the very rule, its deviation holds."""
        return Expectation(self.mean + more.mean, more.deviation if known else self.deviation)

    def pooled(self, other: Expectation, count: float) -> Expectation:
        """Return the mean of both by how sure they are, where the `other` counts so much less or more. They are taken
        to be wrong alike: two that are equally sure are no surer together."""
        weight, weight_other = self.deviation**-2, count * other.deviation**-2
        part = weight_other / (weight + weight_other)
        return Expectation(*((1.0 - part) * mine + part * others for mine, others in zip(self, other, strict=True)))


@dataclass(frozen=True, slots=True)
class Forecast:
    """An expectation of what a step leads to at best beyond the chain before it, in shares of the window's time."""

    mean: float
    deviation: float
    """Standard deviation of what it may save."""
    labels: float
    """Timings of the same rule that it rests on, by their weights."""
    own: Expectation | None = None
    """What the step itself saves beyond the chain before it, whatever follows; None where that is not known."""


@dataclass(slots=True)
class MeansOnLine:
    """A line over the estimate by operations and bytes, and means of what steps save beyond it."""

    means: MeanEffects = field(default_factory=MeanEffects)
    line: tuple[float, float] = (0.0, 0.0)
    """The line's value for an estimate of 0, and its slope."""

    def at(self, guess: float) -> float:
        """Return what the line says of an estimate."""
        return self.line[0] + self.line[1] * bounded(guess)

    def expect(self, names: Sequence[str], guess: float) -> Expectation:
        """Return what is expected of a step under some keys, from special to general."""
        mean, deviation = self.means.expect(names)
        return Expectation(mean + self.at(guess), deviation)

    def corrected(self, names: Sequence[str], guess: float, told: float, predicted: Expectation) -> Expectation:
        """Return a prediction, drawn towards what was timed of the same chain on the same class of shapes, and in the
        very window.

        Args:
            names: the keys of the step, from special to general.
            told: what these means are beyond.
        """
        base = told + self.at(guess)
        found = (predicted.mean - base, predicted.deviation)
        found = self.means.expect([names[_CLASS]], found, CLASS_PRIOR)
        mean, deviation = self.means.expect(names[:_CLASS], found, WINDOW_PRIOR)
        return Expectation(mean + base, deviation)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, rounded."""
        values = self.means.to_json()
        sums = {
            name: [round(value, digits) for value, digits in zip(found, _SUM_DIGITS, strict=True)]
            for name, found in values["sums"].items()
        }
        return {"line": [round(value, _DIGITS) for value in self.line], "means": {**values, "sums": sums}}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`, but for the rounding.

        Raises:
            KeyError, TypeError, ValueError: these are no such values.
        """
        at_zero, slope = values["line"]
        return cls(MeanEffects.from_values(values["means"]), (float(at_zero), float(slope)))


@dataclass(slots=True)
class StepMeans:
    """Forecasts of what steps save: a line over the estimate by operations and bytes, and on top of it means under the
    chain of rules in the very window, the chain on a class of shapes, the chain, the families of its last two rules,
    and its last rule, each drawn towards the next more general one (`graph_rewrite.experience.means`).

    Args:
        best: of what a step leads to at best.
        own: of what a step saves by itself, learnt from the same steps.
        here: of what steps save on one kind of processor, or on one machine, beyond what these means say.
    """

    best: MeansOnLine
    own: MeansOnLine
    here: StepMeans | None = None

    def forecast(
        self, rules: Sequence[str], families: Sequence[str], shapes: str, guess: float, window: str = ""
    ) -> Forecast | None:
        """Return what is expected of a step; None where its rule was never timed.

        Args:
            rules: of the chain, the step's own last.
            families: of these rules.
            shapes: the class of shapes that the chain begins on (`graph_rewrite.experience.means.shape_class`).
            guess: share of the window's time that the step saves by a count of operations and bytes.
            window: fingerprint of the window before any rewrite; by default it is like no other.
        """
        names = step_keys(rules, families, shapes, window)
        labels = self.labels(names)
        if labels < LEAST_LABELS:
            return None
        best, own = self.expect(names, guess)
        return Forecast(*best, labels, own)

    def labels(self, names: Sequence[str]) -> float:
        """Return the timings that are known of a step's chain or rule, at most, by their weights."""
        labels = self.best.means.weight((names[_CHAIN], names[_RULE]))
        return labels if self.here is None else max(labels, self.here.labels(names))

    def expect(self, names: Sequence[str], guess: float) -> tuple[Expectation, Expectation]:
        """Return what is expected of what a step leads to at best, and of what it saves by itself.

        Args:
            names: the keys of the step, from special to general.
        """
        best, own = self.best.expect(names, guess), self.own.expect(names, guess)
        if self.here is None:
            return best, own
        known = self.here.labels(names) >= LEAST_LABELS
        more_at_best, more = self.here.expect(names, guess)
        return best.with_more(more_at_best, known=known), own.with_more(more, known=known)

    def on_line(self, guess: float) -> float:
        """Return what the line says of what a step leads to, by an estimate."""
        return self.best.at(guess) + (0.0 if self.here is None else self.here.on_line(guess))

    def corrected(self, names: Sequence[str], guess: float, predicted: Forecast) -> Forecast:
        """Return what a model predicts of a step, pooled with what these means say of it, and drawn towards what was
        timed of it on this kind of machine, and on this machine.

        Args:
            names: the keys of the step, from special to general.
        """
        told_best, told = self.best.expect(names, guess), self.own.expect(names, guess)
        best = Expectation(predicted.mean, predicted.deviation).pooled(told_best, MEANS_COUNT)
        own = predicted.own and predicted.own.pooled(told, MEANS_COUNT)
        here = self.here
        at_best, by_itself = told_best.mean, told.mean
        while here is not None:
            best = here.best.corrected(names, guess, at_best, best)
            own = own and here.own.corrected(names, guess, by_itself, own)
            at_best += here.best.expect(names, guess).mean
            by_itself += here.own.expect(names, guess).mean
            here = here.here
        return Forecast(*best, predicted.labels, own)

    def forecasts(
        self, steps: Sequence[Candidate], chains: Sequence[ChainStep], share: float, depth: int
    ) -> list[Forecast | None]:
        """Return `forecast` of each step of a state; only `chains` is read."""
        return [self.forecast(*chain) for chain in chains]

    def extended(self, more: StepMeans) -> StepMeans:
        """Return these means with what is known beyond all that they know."""
        return replace(self, here=more if self.here is None else self.here.extended(more))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, without those of a kind of processor."""
        return {"best": self.best.to_json(), "own": self.own.to_json()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Inverse of `to_json`, but for the rounding.

        Raises:
            KeyError, TypeError, ValueError: these are no such values.
        """
        return cls(MeansOnLine.from_json(values["best"]), MeansOnLine.from_json(values["own"]))


def weight_of(half: Halves, half_before: Halves) -> Halves:
    """Return how much the timing of a step counts, 0 to 1.

    Args:
        half, half_before: half-widths of the 95% intervals of what the chains with it and without it save, a number
            each or an array each.
    """
    return SPREAD**2 / (SPREAD**2 + (half**2 + half_before**2) / Z95**2)


def bounded(guess: float) -> float:
    """Return an estimate of what a step saves, large ones cut off."""
    return min(max(guess, -MOST_GUESS), MOST_GUESS)


def step_keys(rules: Sequence[str], families: Sequence[str], shapes: str, window: str = "") -> list[str]:
    """Return the keys of a step, from special to general: those of its chain, and before them, where its window is
    known by a fingerprint, that of the chain in this window. Long ones are given by their digests."""
    first, *others = chain_keys(rules, families, shapes)
    here = [text_digest([window, *rules])[:_LETTERS]] if window else []
    return [*here, text_digest([first])[:_LETTERS], *others]
