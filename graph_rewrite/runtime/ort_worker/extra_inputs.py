"""Inputs beyond those that every comparison has: the user's further ones and extreme ones, as far as the time goes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .feeds import Feeds, FeedSpec
from .patterns import disturbed
from .session_runs import Values, run_model
from .sessions.protocol import ModelSession
from .values import compare_values, largest

_LEAST_S = 5.0
"""Seconds that extra inputs may take in each stage where no time limit is given, if the others took less."""
_KEPT_BYTES = 1 << 30
"""Most bytes of outputs that are kept for them, a model."""


Runs = list[Values | str]
"""The outputs on each input, or the words in which the model fails on it."""


@dataclass(frozen=True)
class Stopwatch:
    """The time of a comparison."""

    within_s: float | None
    started: float = field(default_factory=time.monotonic)

    def share_from_now(self, share: float) -> float:
        """Return the moment by which what begins now has taken a share of the time; never, where there is no limit."""
        return math.inf if self.within_s is None else time.monotonic() + share * self.within_s

    def share_from_start(self, share: float) -> float:
        """Return the moment by which a share of the time has passed; without a limit, extra inputs may take as long as
        everything before them."""
        if self.within_s is not None:
            return self.started + share * self.within_s
        now = time.monotonic()
        return now + max(_LEAST_S, now - self.started)


@dataclass(frozen=True)
class ExtraInputs:
    """Recipes with the inputs made from them."""

    specs: Sequence[FeedSpec]
    feeds: Sequence[Feeds]

    def run(self, session: ModelSession, until: float) -> Runs:
        """Return the outputs on each input, or the words in which it fails, for as many as the time and the memory
        hold."""
        return list(_runs(session, self.feeds, until))

    def run_disturbed(self, session: ModelSession, count: int, until: float) -> Runs:
        """Return the outputs on the first inputs, each changed by a few roundings. The user's own are not run."""
        feeds = [
            {name: disturbed(array) for name, array in feed.items()} if spec.pattern else {}
            for spec, feed in zip(self.specs[:count], self.feeds, strict=False)
        ]
        return list(_runs(session, feeds, until))


def _runs(session: ModelSession, feeds: Sequence[Feeds], until: float) -> Iterator[Values | str]:
    room = _KEPT_BYTES
    for feed in feeds:
        if time.monotonic() >= until or room <= 0:
            return
        if not feed:
            yield {}
            continue
        try:
            found = run_model(session, feed)
        except Exception as error:  # ONNX Runtime's own exceptions have no common base
            yield " ".join(str(error).split())
        else:
            room -= sum(value.nbytes for value in found.values() if isinstance(value, np.ndarray))
            yield found


@dataclass(frozen=True)
class Noise:
    """The change of an output by rounding alone: relative to its scale, or absolutely where all of it is zero."""

    relative: float = 0.0
    absolute: float = 0.0


def rounding_noise(before: Values, name: str, variants: Sequence[Values]) -> Noise | None:
    """Return how far an output lies from the same in variants of the run that differ by rounding alone; None where they
    differ by more than rounding explains, so that nothing can be judged."""
    errors = [compare_values(before[name], variant[name]) for variant in variants]
    if any(problem for _, problem in errors):
        return None
    relative = max((error for error, _ in errors), default=0.0)
    if math.isfinite(relative):
        return Noise(relative)
    return Noise(0.0, max(largest(variant[name]) for variant in variants))


def compare_with_noise(before: Any, after: Any, noise: Noise) -> tuple[float, float, str]:
    """Return the difference of two values, the noise in the same unit, and what else is wrong. The unit is the scale of
    the original, or its noise where the original is zero."""
    error, problem = compare_values(before, after)
    if problem or math.isfinite(error) or not noise.absolute:
        return error, noise.relative, problem
    return largest(after) / noise.absolute, 1.0, ""


Judge = Callable[[FeedSpec, Values, Values | str, dict[str, Noise | None]], Any]


def judge_all(
    specs: Sequence[FeedSpec],
    expected: Runs,
    found: Runs,
    variants: Sequence[Runs],
    judge: Judge,
) -> int:
    """Call `judge` for every input on which the original runs, with the noise of each output (0 for the user's own
    inputs), and return the number of these inputs."""
    count = 0
    for index, (spec, before, after) in enumerate(zip(specs, expected, found, strict=False)):
        if isinstance(before, str):
            continue
        noise: dict[str, Noise | None] = dict.fromkeys(before, Noise())
        if spec.pattern:
            runs = [variant[index] for variant in variants if index < len(variant)]
            good = [run for run in runs if not isinstance(run, str)]
            if len(good) < len(variants):
                continue
            noise = {name: rounding_noise(before, name, good) for name in before}
        judge(spec, before, after, noise)
        count += 1
    return count
