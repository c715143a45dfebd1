"""Ctrl-C and SIGTERM end a search, not the program: what was found so far is checked and written."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from agents.core.base import Search
from graph_rewrite.system.deadline import Limit, ending_at
from graph_rewrite.system.signals import handling

HURRY_S = 6.0
"""Seconds in which a result is measured and checked after SIGTERM or a second Ctrl-C; `docker stop` kills after 10."""
_SAME_S = 1.0
"""A signal so soon after the first is the same wish: shells and process managers signal a process and its group."""


class SearchWatch:
    """Called with the progress of a search: knows the one under way, and ends it once a signal has come.

    Args:
        limit: the time limit around all of it.
        planned: the moment of `time.monotonic` at which all ends; infinite where each search knows its own.
    """

    def __init__(self, limit: Limit, planned: float = math.inf) -> None:
        self.asked_at: float | None = None
        """When the first signal came, by `time.monotonic`."""
        self.hurried_at: float | None = None
        """When the signal came after which few seconds are left."""
        self.unsaid: list[Callable[[], None]] = []
        """What could not be said when a signal came, because something was just being printed."""
        self._limit, self._planned = limit, planned
        self._search: Search | None = None

    @property
    def interrupted(self) -> bool:
        """True once a signal has come: no further search should begin."""
        return self.asked_at is not None

    @property
    def hurried(self) -> bool:
        """True once a signal has come that leaves few seconds: only the result should be written."""
        return self.hurried_at is not None

    def __call__(self, search: Search) -> None:
        self.catch_up()
        self._search = search
        if self.interrupted and not search.ended:
            search.end()

    def interrupt(self) -> None:
        """End the search under way; one that has told nothing yet ends when it does."""
        self.asked_at = time.monotonic()
        if self._search is not None:
            self._search.end()

    def catch_up(self) -> None:
        """Say what could not be said before."""
        while self.unsaid:
            self.unsaid.pop(0)()

    def hurry(self) -> None:
        """Break the search off, and leave `HURRY_S` seconds for the conclusion."""
        self.interrupt()
        self.hurried_at = time.monotonic()
        self._limit.bring_forward(HURRY_S, self._planned)
        if self._search is not None:
            self._search.break_off()


@contextmanager
def ending_search(console: Console, planned: float = math.inf) -> Iterator[SearchWatch]:
    """Let the first Ctrl-C end the search that is under way. A second one, or SIGTERM, also leaves the conclusion
    `HURRY_S` seconds. One after that stops the program.

    Args:
        planned: the moment of `time.monotonic` at which all ends; by default each search knows its own.

    Yields what is to be called with the progress of each search.
    """
    with ending_at(None) as limit:
        watch = SearchWatch(limit, planned)

        def handle(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if watch.hurried_at is not None:
                if now - watch.hurried_at > _SAME_S:
                    raise KeyboardInterrupt
            elif number == signal.SIGTERM or (watch.asked_at is not None and now - watch.asked_at > _SAME_S):
                watch.hurry()
                say(f"ending the search: its best result is checked and written within {HURRY_S:g} s")
            elif watch.asked_at is None:
                watch.interrupt()
                say("ending the search: its best result is checked and written; interrupt again to hurry")

        def say(text: str) -> None:
            try:
                console.print(text, soft_wrap=True)
            except RuntimeError:  # the signal came in the middle of printing
                watch.unsaid.append(lambda: console.print(text, soft_wrap=True))

        with handling(handle):
            yield watch
        watch.catch_up()


@contextmanager
def interrupting_between_steps() -> Iterator[Callable[[], None]]:
    """Let Ctrl-C and SIGTERM raise KeyboardInterrupt where the yielded function is called next, at the end of a step.
    Raised anywhere, it may be lost: libraries in C drop exceptions of the look-ups that they make. The second signal
    raises it at once, in case the step does not end."""
    asked_at: list[float] = []

    def handle(number: int, frame: FrameType | None) -> None:
        asked_at.append(time.monotonic())
        if asked_at[-1] - asked_at[0] > _SAME_S:
            raise KeyboardInterrupt

    def check() -> None:
        if asked_at:
            raise KeyboardInterrupt

    with handling(handle):
        yield check
