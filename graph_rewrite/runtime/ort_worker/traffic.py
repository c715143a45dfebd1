"""Memory that is read between two runs of a part of a model, as the rest of the model would. Runs inside the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

Between = Callable[[], None]
"""Does what lies between two runs, untimed."""
LINE = 64
"""Bytes of a line of the caches, on x86-64 and most ARM."""


class Traffic:
    """Reads memory, so that caches hold what they would hold in the whole model: not the weights of the part, which
    were last read a run ago, but its inputs, which the operator before has just written."""

    def __init__(self) -> None:
        self._memory: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def between(self, size: int, inputs: Iterable[NDArray[np.generic]]) -> Between | None:
        """Return what reads `size` bytes and then the inputs of a part; None for 0 bytes."""
        if size <= 0:
            return None
        if self._memory.nbytes < size:
            self._memory = np.ones(size // 8 + 1, dtype=np.int64)  # written, since all pages of zeros may be one
        memory, lines = self._memory[: size // 8 + 1], [_lines(value) for value in inputs]

        def read() -> None:
            memory.max()
            for value in lines:
                value.max(initial=0)

        return read


def _lines(value: NDArray[np.generic]) -> NDArray[np.uint8]:
    """Return a byte of each line of an array; none of one whose values lie elsewhere, such as strings."""
    if value.dtype.hasobject or not value.flags.c_contiguous:
        return np.zeros(0, dtype=np.uint8)
    return value.reshape(-1).view(np.uint8)[::LINE]
