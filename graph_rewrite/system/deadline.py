"""The hard time limit of a run, known to everything that may take long: measurements, comparisons, listings, waiting.

The limit belongs to the context of the running code (`contextvars`), like the timeouts of trio and anyio: whoever waits
or loops asks here, and no function between has to pass it on. Without a limit nothing changes. A thread or a process
that is started later has none.

A signal handler may bring a limit forward while code runs inside it, so whoever waits asks again every `POLL_S`
seconds. What was planned until the old end is squeezed into the time that is left, each part in its proportion.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

POLL_S = 0.2
"""Seconds after which somebody who waits asks again how much time is left."""
_SHORTENED_S = 0.3
"""A limit that ends so much earlier than before was brought forward; less is rounding."""


class OutOfTime(Exception):
    """The time limit of the run is reached. Searches end with what they have found."""


class Limit:
    """A moment at which what runs inside ends, and the limit around it.

    Args:
        moment: of `time.monotonic`; infinite for no limit.
        outer: the limit around this one.
        paused: returns the seconds so far that do not count, which put the end off.
    """

    def __init__(self, moment: float, outer: Limit | None = None, paused: Callable[[], float] | None = None) -> None:
        self._moment = moment
        self._outer = outer
        self._paused = paused or (lambda: 0.0)
        self._squeeze: Callable[[float], float] | None = None

    @property
    def own_end(self) -> float:
        """The moment at which this limit ends, whatever those around it do."""
        return self._moment + self._paused()

    @property
    def end(self) -> float:
        """The moment at which this limit or one around it ends."""
        return self.own_end if self._outer is None else min(self.own_end, self._outer.end)

    def bring_forward(self, seconds: float, planned: float = math.inf) -> None:
        """End what runs inside, now or later, in so many seconds, unless it ends earlier anyway.

        Args:
            planned: the moment at which it would have ended; by default, where the last of this limit and those inside
                it ends.
        """
        now, inside = time.monotonic(), list(self._inside())
        ends = [limit.own_end for limit in (self, *inside) if math.isfinite(limit.own_end)]
        squeeze = _squeezing(now, planned if math.isfinite(planned) else max(ends, default=math.inf), now + seconds)
        for limit in inside:
            limit._moment = squeeze(limit.own_end) - limit._paused()
        self._moment = min(self._moment, now + seconds - self._paused())
        self._squeeze = squeeze

    def squeezed(self, moment: float) -> float:
        """Return a moment as it is after limits were brought forward. One before their new ends was planned afterwards,
        and stays."""
        if self._squeeze is not None and moment > self.own_end:
            moment = self._squeeze(moment)
        return moment if self._outer is None else self._outer.squeezed(moment)

    def _inside(self) -> Iterator[Limit]:
        limit = _innermost.get()
        while limit is not None and limit is not self:
            yield limit
            limit = limit._outer


def _squeezing(now: float, planned: float, end: float) -> Callable[[float], float]:
    """Return a map of moments: those from `now` to `planned` are squeezed into the time from `now` to `end`."""
    factor = (end - now) / (planned - now) if now < planned < math.inf else 1.0

    def squeeze(moment: float) -> float:
        if moment <= now or not math.isfinite(moment):
            return moment
        return min(end, now + min(1.0, factor) * (moment - now))

    return squeeze


_innermost: ContextVar[Limit | None] = ContextVar("innermost", default=None)


def current_end() -> float:
    """Return the moment of `time.monotonic` at which the limit is reached: infinite without one."""
    limit = _innermost.get()
    return math.inf if limit is None else limit.end


def is_shortened(end: float) -> bool:
    """Return whether the limit was brought forward since it was at `end`."""
    return current_end() < end - _SHORTENED_S


def seconds_left() -> float:
    """Return the seconds until the limit: infinite without one, negative once it has passed."""
    return current_end() - time.monotonic()


def check_time() -> None:
    """Raise OutOfTime where the limit has passed.

    Raises:
        OutOfTime: no time is left.
    """
    if time.monotonic() >= current_end():
        raise OutOfTime("the time limit is reached")


@contextmanager
def ending_at(moment: float | None, paused: Callable[[], float] | None = None) -> Iterator[Limit]:
    """Limit what runs inside to a moment of `time.monotonic`; a limit around this one that ends earlier stays.

    Args:
        moment: seconds of `time.monotonic`; None for no further limit.
        paused: returns the seconds so far that do not count; the limit is put off by those that come from now on.

    Yields the limit, which a signal handler may bring forward.
    """
    outer = _innermost.get()
    end = math.inf if moment is None else moment if outer is None else outer.squeezed(moment)
    limit = Limit(end - (paused() if paused else 0.0), outer, paused)
    token = _innermost.set(limit)
    try:
        yield limit
    finally:
        _innermost.reset(token)
