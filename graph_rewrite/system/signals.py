"""Ctrl-C and SIGTERM while a program is imported, and handlers for a part of its run.

Importing this module takes a few milliseconds, so that a program can begin with it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

END_SIGNALS = (signal.SIGINT, signal.SIGTERM)
"""Signals that ask a program to end."""

Handler = Callable[[int, FrameType | None], None]


def hold_signals() -> None:
    """Let Ctrl-C and SIGTERM wait until `answer_signals`: while libraries are imported they may be lost, or end in a
    traceback."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)


def answer_signals() -> None:
    """Answer the signals that were held back while the program was imported, and all later ones."""
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, END_SIGNALS)


def ignore_signals() -> None:
    """Ignore further signals: all is written, and only the workers are still to be ended."""
    for number in END_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def interrupting_on_term() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: raise KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with handling(handle, (signal.SIGTERM,)):
        yield


@contextmanager
def handling(handler: Handler, numbers: tuple[signal.Signals, ...] = END_SIGNALS) -> Iterator[None]:
    """Install a handler; only the main thread can, and in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
