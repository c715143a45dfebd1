"""Estimates of what drafted chains save: forecasts, corrected by timings where there are some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from agents.effects.step_means import Z95
from agents.regional.chains import RewriteChain
from agents.regional.sites import RewriteStep
from graph_rewrite.latency.estimates import updated
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import saved_share

FORECAST_ERROR = 0.05
"""Standard deviation of a forecast, as a share of the windows' time."""

Key: TypeAlias = tuple[str, tuple[RewriteStep, ...]]


def key_of(chain: RewriteChain) -> Key:
    """Return what a chain shares with its parts: the class of its windows, and its steps."""
    return chain.cut.key, chain.steps


@dataclass(frozen=True, slots=True)
class _Belief:
    """Share of its windows' time that a chain saves, half of the 95% interval, and the seconds that all its windows
    take."""

    share: float
    half: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Beliefs:
    """Estimates of what drafted chains save. A forecast and a timing count by how sure they are.

    Args:
        forecast: the chains, in estimated seconds.
        scale: what estimated seconds of windows are multiplied by in these.
        worth: seconds that a chain must be believed to save, likewise.
    """

    forecast: Sequence[RewriteChain]
    scale: float
    worth: float
    _timed: dict[Key, _Belief] = field(default_factory=dict)
    """At all sites."""

    def chains(self) -> list[RewriteChain]:
        """Return the chains with what is believed of them, without those that save next to nothing."""
        factor, found = self._estimated_per_timed(), list[RewriteChain]()
        for chain in self.forecast:
            belief = self._timed.get(key_of(chain))
            if belief is not None:
                chain = replace(chain, saved=belief.share * belief.seconds * factor)
            if belief is None or (belief.share > 0.0 and chain.lower_bound >= self.worth):
                found.append(chain)
        return found

    def share(self, chain: RewriteChain) -> float:
        """Return the share of its windows' time that a chain, or a part of one, is forecast to save."""
        return chain.saved / self._estimate(chain)

    def is_timed(self, chain: RewriteChain) -> bool:
        """Return whether a chain, or one that it is a part of, was timed."""
        return key_of(chain) in self._timed

    def error(self, chain: RewriteChain) -> float:
        """Return half of the 95% interval of what a timed chain saves, in estimated seconds, where that holds 0; else
        0.0."""
        belief = self._timed[key_of(chain)]
        return belief.half * belief.seconds * self._estimated_per_timed() if belief.share <= belief.half else 0.0

    def tell(self, chain: RewriteChain, timed: Difference | None, part: float) -> None:
        """Learn from the timing of a chain or a part of it, None where it cannot be timed.

        Args:
            part: the part of a window that was timed.
        """
        key = key_of(chain)
        whole = next(one for one in self.forecast if key_of(one) == key)
        if timed is None:
            self._timed[key] = _Belief(-1.0, 0.0, 0.0)
            return
        saved, half, seconds = saved_share(timed, part)
        share, deviation = updated(self.share(whole), FORECAST_ERROR, saved, half / Z95)
        self._timed[key] = _Belief(share, Z95 * deviation, seconds * len(whole.sites))

    def _estimated_per_timed(self) -> float:
        """Return what the timed windows take by estimate, per second that they take: chains that were not timed are
        compared with those that were."""
        known = [(chain, belief.seconds) for chain in self.forecast if (belief := self._timed.get(key_of(chain)))]
        seconds = sum(seconds for _, seconds in known)
        return sum(self._estimate(chain) for chain, took in known if took) / seconds if seconds else 1.0

    def _estimate(self, chain: RewriteChain) -> float:
        """Return the estimated seconds of all windows of a chain."""
        return len(chain.sites) * self.scale * estimated_seconds(chain.cut.before)
