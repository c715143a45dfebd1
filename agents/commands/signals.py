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

    Yields a function that takes the search under way, to be called with its progress. A signal before its first call
    ends the search at that call.
    """
    under_way: list[Search] = []
    asked: list[float] = []

    def watch(search: Search) -> None:
        if not under_way:
            under_way.append(search)
        if asked and not search.ended:
            search.end()

    def handle(number: int, frame: FrameType | None) -> None:
        if asked:
            if time.monotonic() - asked[0] > _SAME_S:
                raise KeyboardInterrupt
            return
        asked.append(time.monotonic())
        for search in under_way:
            search.end()
        console.print("ending the search: its best result is checked and written; interrupt again to stop at once")

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield watch
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
