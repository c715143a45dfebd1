"""Gains of rewrites in the windows where they were tried, and the expectation for the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agents.effects.step_means import Forecast

FURTHER = "..."
"""Stands for the steps that a chain makes possible, before they are listed."""

TRUSTED = 2.0
"""Windows of the model at hand that a forecast out of other models counts as."""

Key = tuple[str, ...]


@dataclass
class Effects:
    """The gains of rewrites so far, as shares of their windows' time, under keys from special to general."""

    _gains: dict[Key, list[float]] = field(default_factory=dict)
    _ends: set[str] = field(default_factory=set)
    """Last parts of keys: the last rules of chains."""

    def record(self, keys: Iterable[Key], gain: float) -> None:
        """Record the gain of a rewrite that goes by these keys."""
        for key in keys:
            self._gains.setdefault(key, []).append(gain)
            self._ends.add(key[-1])

    def knows(self, rule: str) -> bool:
        """Return whether a rule was tried anywhere, in whatever chain."""
        return rule in self._ends

    def expected(self, keys: Sequence[Key], before: float, hope: float, fading: float) -> float:
        """Return the share that a chain may save in another window, where it saves `before` without its last rewrite.

        That is the mean gain under the first key of which something is known, and `hope` on top; a loss before is
        forgiven. Of both only the part `fading` is left for every window that is known under the key; the third key is
        that of another chain, and counts as one window.
        """
        level = next((i for i, key in enumerate(keys) if key in self._gains), None)
        known = [] if level is None else self._gains[keys[level]]
        trust = fading ** (1 if level is not None and level >= 2 else len(known))
        mean = sum(known) / len(known) if known else 0.0
        return mean + hope * trust + (before if before > 0.0 else before * (1.0 - trust))

    def revised(self, chain: Key, before: float, forecast: Forecast, hope: float, fading: float) -> float:
        """Return the share that a chain may save in another window, where it saves `before` without its last rewrite
        and a forecast says what that adds.

        That is the mean of what the chain's last rewrite gained in this search, in which the forecast counts as
        `TRUSTED` windows, and `hope` on top, of which the part `fading` is left for every window.
        """
        known = self._gains.get(chain, ())
        mean = (TRUSTED * forecast.mean + sum(known)) / (TRUSTED + len(known))
        return before + mean + hope * fading ** len(known)
