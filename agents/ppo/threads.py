"""PyTorch's threads while a policy acts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let PyTorch compute with one thread inside the block: graphs are small, and more threads would wait for each
    other. What the caller had set holds again behind it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
