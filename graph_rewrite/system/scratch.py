"""Temporary folders inside the workspace of a process tree, with which they are removed even where a process is
killed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

WORKSPACE = "REWRITEGYM_WORKSPACE"
"""Environment variable that names the workspace: child processes inherit it, and a user may set it."""


def new_scratch_folder(name: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder in the workspace; among the system's temporary ones where there is none. `name` says what it is
    for."""
    root = os.environ.get(WORKSPACE)
    if root:
        Path(root).mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix=f"rewritegym-{name}-", dir=root or None)


@contextmanager
def scratch_folder(name: str) -> Iterator[Path]:
    """Make a folder as `new_scratch_folder` does, for as long as the block lasts."""
    with new_scratch_folder(name) as folder:
        yield Path(folder)
