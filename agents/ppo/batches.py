"""Batches of observations, padded no further than their largest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.observation import Observation


def batch_of(observations: Sequence[Observation]) -> dict[str, Tensor]:
    """Return observations as a batch for `GraphEncoder`, with a leading dimension each; they may be padded to different
    sizes."""
    sizes = np.stack([observation["sizes"] for observation in observations]).max(axis=0)
    return {
        name: torch.from_numpy(np.stack([_fitted(name, observation[name], sizes) for observation in observations]))
        for name in observations[0]
    }


def trimmed(observation: Observation) -> Observation:
    """Return an observation without padding, but for one row of entries that would have none."""
    return {name: _fitted(name, entry, observation["sizes"]).copy() for name, entry in observation.items()}


def _fitted(name: str, entry: NDArray[Any], sizes: NDArray[Any]) -> NDArray[Any]:
    """Return an entry with padding for so many nodes, edges and steps, one at least; the row of the stop stays the last
    one."""
    nodes, edges, steps = (max(1, int(size)) for size in sizes)
    if name.startswith("node_"):
        return _resized(entry, nodes)
    if name == "edge_index":
        return _resized(entry.T, edges).T
    if name == "edge_shape":
        return _resized(entry, edges)
    if name.startswith("candidate_"):
        return np.concatenate([_resized(entry[:-1], steps), entry[-1:]])
    return entry


def _resized(rows: NDArray[Any], length: int) -> NDArray[Any]:
    if len(rows) >= length:
        return rows[:length]
    return np.concatenate([rows, np.zeros((length - len(rows), *rows.shape[1:]), dtype=rows.dtype)])
