"""The hard time limit of a run, known to everything that may take long: measurements, comparisons, listings, waiting.

The limit belongs to the context of the running code (`contextvars`), like the timeouts of trio and anyio: whoever waits
or loops asks here, and no function between has to pass it on. Without a limit nothing changes. A thread or a process
that is started later has none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_ends_at: ContextVar[float] = ContextVar("ends_at", default=math.inf)


class OutOfTime(Exception):
    """The time limit of the run is reached. Searches end with what they have found."""


def seconds_left() -> float:
    """Return the seconds until the limit: infinite without one, negative once it has passed."""
    return _ends_at.get() - time.monotonic()


def check_time() -> None:
    """Raise OutOfTime where the limit has passed.

    Raises:
        OutOfTime: no time is left.
    """
    if time.monotonic() >= _ends_at.get():
        raise OutOfTime("the time limit is reached")


@contextmanager
def ending_at(moment: float | None) -> Iterator[None]:
    """Limit what runs inside to a moment of `time.monotonic`; a limit around this one that ends earlier stays.

    Args:
        moment: seconds of `time.monotonic`; None for no further limit.
    """
    token = _ends_at.set(min(_ends_at.get(), math.inf if moment is None else moment))
    try:
        yield
    finally:
        _ends_at.reset(token)
