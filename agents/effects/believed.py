"""Measured savings, drawn towards 0 by how imprecise they are: the best of several noisy measurements owes part of its
lead to luck."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agents.effects.step_means import Z95
from envs.window.env import LEAST_SHARE
from envs.window.table import WindowTable

SPREAD = 0.15
"""Standard deviation of what chains save, as shares of their windows' time: measurements count by how much more precise
than that they are."""


def believed_shares(table: WindowTable) -> NDArray[np.float64]:
    """Return the share of the window's time that the chain of each state saves, drawn towards 0 by how imprecise its
    measurement is. A state without a timing of its own counts as the one before it."""
    arrays = table.arrays
    believed = np.zeros(table.states)
    deviation = arrays["step_half"].astype(np.float64) / Z95
    measured = np.maximum(arrays["step_share"].astype(np.float64), LEAST_SHARE)
    ok = arrays["step_measured"] & ~arrays["step_failed"]
    believed[arrays["step_next"][ok]] = (measured / (1.0 + (deviation / SPREAD) ** 2))[ok]
    parents = table.parents()
    for state in np.flatnonzero(~table.measured_states()):  # states follow those that lead to them
        believed[state] = believed[parents[state]]
    return believed


def sure_shares(table: WindowTable) -> NDArray[np.float64]:
    """Return the lower bound of the share of the window's time that the chain of each state saves, at least 0."""
    shares = table.arrays["state_share"].astype(np.float64)
    found: NDArray[np.float64] = np.maximum(shares - table.state_halves(), 0.0)
    found[~table.measured_states()] = 0.0
    return found
