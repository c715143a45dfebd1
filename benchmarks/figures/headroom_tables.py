"""Tables of a file of `benchmarks.headroom`."""

from __future__ import annotations

from pathlib import Path

from benchmarks.figures.rows import Results


def read_headroom(path: Path, results: Results) -> str:
    """Return the tables of a headroom file; empty where there is none."""
    return ""
