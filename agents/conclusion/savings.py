"""Latency that each rewrite of a result saves, from what its search measured on the way. Nothing is timed for it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from agents.core.base import Action, OptimizationResult, Visit


@dataclass(frozen=True, slots=True)
class Saving:
    """Milliseconds per inference that some rewrites of a result save together."""

    steps: tuple[int, ...]
    """Numbers of the rewrites, from 1."""
    ms: float
    """Below 0 where they cost something, as steps do that only make others possible."""
    source: Literal["whole model", "windows"]
    """What was timed: the model before and after, or the surroundings of the sites."""


def measured_path(visits: Iterable[Visit], actions: tuple[Action, ...]) -> tuple[tuple[int, float], ...]:
    """Return (number of actions applied, screened speed-up) of the measured graphs on the way along some actions."""
    keys = tuple(action.key for action in actions)
    found: dict[int, float] = {}
    for visit in visits:
        length = len(visit.actions)
        if visit.latency.ok and length <= len(keys) and tuple(a.key for a in visit.actions) == keys[:length]:
            found[length] = visit.latency.speedup
    return tuple(sorted(found.items()))


def savings(result: OptimizationResult) -> list[Saving]:
    """Return what the rewrites of a result save: each rewrite stands in one saving.

    The graphs that the search measured divide the way from the original to the result into spans. What a span saves is
    the difference of its ends; where it has several rewrites, it is divided in the proportion of what windows showed
    for each. What no window showed is left together. All is scaled so that the sum is the saving of the result, which
    was measured with more care. Empty where the search saw no saving.
    """
    count = len(result.actions)
    points = {0: 1.0, **dict(result.path)}
    total = result.latency.ms * (result.latency.speedup - 1.0)
    if count not in points or not count or not math.isfinite(total):
        return []
    seen = 1.0 / points[0] - 1.0 / points[count]
    if seen <= 0.0:
        return []
    found: list[Saving] = []
    ends = sorted(points)
    for first, last in itertools.pairwise(ends):
        ms = (1.0 / points[first] - 1.0 / points[last]) / seen * total
        found += _divided(ms, range(first + 1, last + 1), [action.window_s for action in result.actions[first:last]])
    return sorted(found, key=lambda saving: saving.steps)


def saved_ms(result: OptimizationResult) -> list[float | None]:
    """Return the milliseconds that each rewrite saves by itself; None where that is not known."""
    alone = {saving.steps[0]: saving.ms for saving in savings(result) if len(saving.steps) == 1}
    return [alone.get(step) for step in range(1, len(result.actions) + 1)]


def _divided(ms: float, steps: Sequence[int], windows: Sequence[float | None]) -> list[Saving]:
    """Divide the saving of a span among its steps, by the seconds that windows showed."""
    shown = {step: seconds for step, seconds in zip(steps, windows, strict=True) if seconds is not None}
    together = sum(shown.values())
    if len(steps) == 1 or together <= 0.0 or ms <= 0.0:
        return [Saving(tuple(steps), ms, "whole model")]
    rest = tuple(step for step in steps if step not in shown)
    scale = ms / together
    if rest:
        # The steps without windows may save or cost something; those with windows save at most what these showed.
        scale = min(1e3, scale)
    found = [Saving((step,), seconds * scale, "windows") for step, seconds in shown.items()]
    return [*found, Saving(rest, ms - together * scale, "whole model")] if rest else found
