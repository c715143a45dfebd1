"""Sessions that compute with zero in the place of denormal numbers, and leave the rest of the process alone.

`session.set_denormal_as_zero` sets the threads that a session starts. The thread that calls `run` computes too, alone
where a session has one thread. ONNX Runtime sets that thread once in a process, when the first session is opened, for
ever, and as that session says: later sessions have no say in it, and NumPy is then without denormals as well. So this
session sets the calling thread itself, for as long as a call takes.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime as ort

# `fenv_t` on x86-64 Linux has 32 bytes; the last four are the register of SSE. Its bits 6 and 15 are "denormals are
# zeros" and "flush to zero" (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 10.2.3).
_WORDS, _SSE_WORD, _FLUSH = 8, 7, 0x8040


@functools.cache
def _library() -> Any:
    return ctypes.CDLL("libm.so.6")


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Compute with zero in the place of denormal numbers in this thread; as before when it ends."""
    library = _library()
    before = (ctypes.c_uint32 * _WORDS)()
    library.fegetenv(before)
    inside = (ctypes.c_uint32 * _WORDS)(*before)
    inside[_SSE_WORD] |= _FLUSH
    library.fesetenv(inside)
    try:
        yield
    finally:
        library.fesetenv(before)


@functools.cache
def can_flush() -> bool:
    """Return whether a thread can be set so on this machine: with the C library of x86-64 Linux, tried."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    tiny, one = np.full(4, 1e-40, np.float32), np.float32(1.0)
    try:
        with flushed_denormals():
            inside = tiny * one
    except (OSError, AttributeError):  # another C library
        return False
    return not inside.any() and bool((tiny * one).all())


class FlushingSession(ort.InferenceSession):  # type: ignore[misc]  # onnxruntime has no types
    """A session without denormal numbers in any thread that computes for it. Needs `can_flush` and options with the
    entry `session.set_denormal_as_zero`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # The first session of a process sets this thread for ever, and constants are folded here.
        with flushed_denormals():
            super().__init__(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with flushed_denormals():
            return super().run(*args, **kwargs)

    def run_with_ort_values(self, *args: Any, **kwargs: Any) -> Any:
        with flushed_denormals():
            return super().run_with_ort_values(*args, **kwargs)

    def run_with_iobinding(self, *args: Any, **kwargs: Any) -> Any:
        with flushed_denormals():
            return super().run_with_iobinding(*args, **kwargs)

    def run_with_ortvaluevector(self, *args: Any, **kwargs: Any) -> Any:
        with flushed_denormals():
            return super().run_with_ortvaluevector(*args, **kwargs)
