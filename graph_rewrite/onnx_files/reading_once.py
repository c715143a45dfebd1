"""Models that are read once although several parts of a program ask for them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load

_KEPT = 4

_Fixed = tuple[tuple[str, tuple[int, ...]], ...]


def load_once(path: Path, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read an ONNX model as `load` does. The same graph comes back as long as its file does not change.

    Raises:
        ModelLoadError: no such file, or not a readable ONNX model.
        OutOfTime: the time limit of the run is reached.
    """
    try:
        state = path.stat()
    except OSError:
        return load(path, shapes)  # which says what is wrong
    fixed = tuple(sorted((name, tuple(shape)) for name, shape in (shapes or {}).items()))
    return _loaded(path, path.resolve(), state.st_ino, state.st_mtime_ns, state.st_size, fixed)


@lru_cache(maxsize=_KEPT)
def _loaded(path: Path, resolved: Path, number: int, changed: int, size: int, fixed: _Fixed) -> Graph:
    """Load a model; all arguments together tell one state of a file from another."""
    return load(path, dict(fixed))
