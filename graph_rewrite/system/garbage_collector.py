"""Control of Python's garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

GROWTH = 0.7
"""A full collection follows once the objects made since the last one are this many times those that it left."""
LEAST = 100_000
"""Objects that may be made before the first full collection, and before each later one in a small process."""
FROZEN_BY_PYTHON = 1_000
"""Frozen objects that say nothing: Python 3.12 freezes some hundreds of its own when it starts."""


class _Census:
    """Objects made under `no_garbage_collection` since the last full collection, and how many may be."""

    made = 0
    most = LEAST


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the collector of cycles from running: inside a timed run, or where many objects are made that stay.

    Afterwards these objects count as old ones. Otherwise the collector would go through all of them at once, as soon
    as it runs again. Old objects are looked at in full collections alone; one is made here when so many objects are new
    that their cycles might matter.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            _make_old()
            gc.enable()


def _make_old() -> None:
    if gc.get_freeze_count() > FROZEN_BY_PYTHON:
        return  # somebody keeps objects out of the collector's sight; unfreezing would undo that
    _Census.made += gc.get_count()[0]
    if _Census.made > _Census.most:
        gc.collect()
        _Census.made, _Census.most = 0, max(LEAST, int(GROWTH * len(gc.get_objects())))
    else:
        gc.freeze()
        gc.unfreeze()
