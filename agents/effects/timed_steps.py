"""Steps that a search has timed: later searches on the machine begin with what they saved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from agents.effects.step_means import MOST_LOST, ChainStep, MeansOnLine, StepMeans, bounded, weight_of


@dataclass(slots=True)
class TimedStep:
    """A step that was timed in a window, as means learn it. All shares are of the window's time."""

    names: Sequence[str]
    """Its keys in means, from special to general."""
    guess: float
    """Share that it saves by a count of operations and bytes."""
    own: float
    """Share that it saves by itself."""
    best: float
    """Share that it saves together with the best steps behind it that were timed."""
    weight: float
    """How much it counts, 0 to 1: imprecise timings count little."""

    def to_json(self) -> list[Any]:
        """Return plain values, rounded."""
        return [list(self.names), *(round(value, 5) for value in (self.guess, self.own, self.best, self.weight))]

    @classmethod
    def from_json(cls, values: Sequence[Any]) -> Self:
        """Inverse of `to_json`, but for the rounding.

        Raises:
            TypeError, ValueError: these are no such values.
        """
        names, guess, own, best, weight = values
        return cls([str(name) for name in names], float(guess), float(own), float(best), float(weight))


@dataclass(slots=True)
class StepInSearch:
    """A step that the search at hand has timed."""

    timed: TimedStep
    share: float
    """Share that the chain with it saves."""
    half: float
    """Half-width of the 95% interval of what the chain with it saves."""
    previous: StepInSearch | None = None
    """The step before it in its chain; None for a first step."""

    @property
    def before(self) -> float:
        """Share that the chain before it saves."""
        return 0.0 if self.previous is None else self.previous.share


@dataclass(slots=True)
class SearchedSteps:
    """All steps that a search has timed."""

    timed: dict[str, TimedStep] = field(default_factory=dict)
    """By their most special keys, which tell window and chain."""

    def add(self, step: ChainStep, share: float | None, half: float, previous: StepInSearch | None) -> StepInSearch:
        """Add a step, and return it.

        Args:
            step: the step, with its window's fingerprint.
            share: share of the window's time that the chain with it saves; None where that cannot be run.
            half: half-width of its 95% interval.
            previous: the step before it; None for a first step.
        """
        before, half_before = (0.0, 0.0) if previous is None else (previous.share, previous.half)
        own = -MOST_LOST if share is None else max(share - before, -MOST_LOST)
        names = step.names
        timed = TimedStep(names, bounded(step.guess), own, own, weight_of(half, half_before))
        self.timed[names[0]] = timed
        leading = previous
        while leading is not None and share is not None:
            leading.timed.best = max(leading.timed.best, share - leading.before)
            leading = leading.previous
        return StepInSearch(timed, before + own if share is None else share, half, previous)


def means_of_timed(steps: Iterable[TimedStep], base: StepMeans) -> StepMeans:
    """Return what steps save beyond what means say of them."""
    found = StepMeans(MeansOnLine(), MeansOnLine())
    for one in steps:
        best, own = base.expect(one.names, one.guess)
        found.best.means.add(one.names, one.best - best.mean, one.weight)
        found.own.means.add(one.names, one.own - own.mean, one.weight)
    return found
