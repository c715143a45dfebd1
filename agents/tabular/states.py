"""The observations of all states of a table, kept without padding, and batches of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.feature_sets import observation_space
from envs.window.env import HORIZON
from envs.window.shown_states import ShownStates
from envs.window.table import FEATURES, WindowTable

_NODES, _EDGES = ("node_op", "node_features", "node_candidate", "node_attributes"), ("edge_shape", "edge_index")


class StateObservations:
    """Observations of `WindowTableEnv` by the numbers of their states.

    Each is made once. A batch is padded to its own largest state, and not to that of the table, so that a training step
    costs what the network costs.

    Args:
        table: the table.
        horizon: steps of an episode.
        graphs: show nodes and edges; without them there are only the candidates' features and those of the whole.
    """

    def __init__(self, table: WindowTable, horizon: int = HORIZON, graphs: bool = True) -> None:
        self.space = observation_space(table.limits, FEATURES)
        shown, paths = ShownStates(table, horizon), _paths(table)
        ragged: dict[str, list[NDArray[Any]]] = {name: [] for name in (*_NODES, *_EDGES)}
        fixed: dict[str, list[NDArray[Any]]] = {name: [] for name in self.space.spaces if name not in ragged}
        for path in paths:
            observation = shown.observation(path, len(path) - 1)
            if not graphs:
                observation["sizes"][:2] = 0
            nodes, edges, _ = (int(size) for size in observation["sizes"])
            observation["edge_index"] = observation["edge_index"].T
            for name, rows in ragged.items():
                rows.append(observation[name][: nodes if name in _NODES else edges])
            for name, rows in fixed.items():
                rows.append(observation[name])
        self._ragged = {name: torch.from_numpy(np.concatenate(rows)) for name, rows in ragged.items()}
        self._fixed = {name: torch.from_numpy(np.stack(rows)) for name, rows in fixed.items()}
        sizes = self._fixed["sizes"].long()
        self._starts = torch.cumsum(sizes, dim=0) - sizes

    def batch(self, states: Tensor) -> dict[str, Tensor]:
        """Return the observations of some states, int64 [B], each entry with a leading dimension B."""
        found = {name: rows[states] for name, rows in self._fixed.items()}
        for column, names in enumerate((_NODES, _EDGES)):
            counts, starts = found["sizes"][:, column].long(), self._starts[states, column]
            place = torch.arange(int(counts.max()))[None, :]
            real = place < counts[:, None]
            rows = (starts[:, None] + place)[real]
            for name in names:
                stored = self._ragged[name]
                found[name] = stored.new_zeros((*real.shape, *stored.shape[1:]))
                found[name][real] = stored[rows]
        found["edge_index"] = found["edge_index"].permute(0, 2, 1)
        return found


def _paths(table: WindowTable) -> list[tuple[int, ...]]:
    """Return the states that lead to each state, itself included; steps lead to states with larger numbers."""
    before = table.parents()
    found: list[tuple[int, ...]] = []
    for state, last in enumerate(before.tolist()):
        found.append((*(found[last] if last >= 0 else ()), state))
    return found
