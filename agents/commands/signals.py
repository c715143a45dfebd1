"""Ctrl-C and SIGTERM end a search, not the program: what was found so far is checked and written."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from agents.core.base import Search

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_S = 1.0
"""A signal so soon after the first is the same wish: shells and process managers signal a process and its group."""


@contextmanager
def ending_search(console: Console) -> Iterator[Callable[[Search], None]]:
    """Let the first Ctrl-C or SIGTERM end the search that is under way, and the second stop the program.

    Yields a function that takes the search under way, to be called with its progress. Before its first call a signal
    stops the program at once.
    """
    under_way: list[Search] = []
    ended_at = -_SAME_S

    def watch(search: Search) -> None:
        if not under_way:
            under_way.append(search)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal ended_at
        if not under_way or (under_way[0].ended and time.monotonic() - ended_at > _SAME_S):
            raise KeyboardInterrupt
        if under_way[0].ended:
            return
        ended_at = time.monotonic()
        under_way[0].end()
        console.print("ending the search: its best result is checked and written; interrupt again to stop at once")

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield watch
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
