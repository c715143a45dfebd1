"""Several tables of windows as one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.observation import ObservationLimits
from envs.window.table import ARRAYS, WindowTable

_POINTS_TO = {
    "node_row": "row_op", "edge_shape": "shapes", "window_context": "context",
    "step_next": "state_window", "window_root": "state_window", "state_window": "window_root",
}  # fmt: skip
"""Arrays that hold numbers of rows, and the array whose rows they number."""
_BEGINS = {"node_start": "node_row", "edge_start": "edge_source", "step_start": "step_rule"}
"""Arrays that say where each state begins in another, with one entry more at the end."""
_NAMED = {"step_rule": "rules", "step_family": "families", "step_class": "classes"}
"""Arrays that hold numbers of names."""


def joined(tables: Sequence[WindowTable]) -> WindowTable:
    """Return one table with the windows of several in their order, such as those of several processors.

    Raises:
        ValueError: there is no table.
    """
    if len(tables) == 1:
        return tables[0]
    if not tables:
        raise ValueError("there is no table to join")
    names = {
        kind: tuple(dict.fromkeys(chain.from_iterable(getattr(t, kind) for t in tables))) for kind in _NAMED.values()
    }
    arrays: dict[str, NDArray[Any]] = {
        name: np.concatenate(_parts(tables, name, names)).astype(kind) for name, kind in ARRAYS.items()
    }
    limits = ObservationLimits(*(
        max(getattr(table.limits, size) for table in tables) for size in ("max_candidates", "max_nodes", "max_edges")
    ))  # fmt: skip
    windows = tuple(chain.from_iterable(table.windows for table in tables))
    return WindowTable(windows, names["rules"], names["families"], arrays, limits, names["classes"])


def _parts(tables: Sequence[WindowTable], name: str, names: dict[str, tuple[str, ...]]) -> list[NDArray[Any]]:
    """Return an array of each table, with its numbers as they are in the joined one."""
    found, before = [], 0
    for number, table in enumerate(tables):
        part = table.arrays[name]
        if name in _NAMED:
            own, whole = getattr(table, _NAMED[name]), names[_NAMED[name]]
            place = {text: index for index, text in enumerate(whole)}
            part = np.array([place[text] for text in own], dtype=np.int64)[part]
        elif pointed := _POINTS_TO.get(name) or _BEGINS.get(name):
            part = part.astype(np.int64) + before
            before += len(table.arrays[pointed])
            if name in _BEGINS and number < len(tables) - 1:
                part = part[:-1]
        found.append(part)
    return found
