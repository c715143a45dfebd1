"""The windows of a table with planted savings of their steps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from envs.window import WindowTable


def planted(table: WindowTable, guessed: float = 0.0) -> WindowTable:
    """The same windows, in which a first step saves what its rule says, and a part of its estimate on top. What
    follows it loses."""
    arrays = {name: array.copy() for name, array in table.arrays.items()}
    arrays["step_failed"][:] = False
    arrays["step_measured"][:] = True
    arrays["step_half"][:] = 0.01
    for state in range(table.states):
        for step in range(arrays["step_start"][state], arrays["step_start"][state + 1]):
            first = arrays["state_depth"][state] == 0
            gain = saves(int(arrays["step_rule"][step])) if first else -0.1
            gain += guessed * np.clip(arrays["step_guess"][step], -0.5, 0.5)
            share = arrays["state_share"][state] + gain
            arrays["step_share"][step] = arrays["state_share"][arrays["step_next"][step]] = share
    return replace(table, arrays=arrays)


def saves(rule: int) -> float:
    return 0.2 if rule % 2 else -0.1


def on_device(table: WindowTable, device: str, gain: float) -> WindowTable:
    """The same windows on another machine, where every step saves so much more, or less."""
    told = planted(table)
    arrays = {**told.arrays, "step_share": told.arrays["step_share"] + np.float32(gain)}
    roots = np.zeros(table.states, dtype=bool)
    roots[arrays["window_root"]] = True
    arrays["state_share"] = np.where(roots, told.arrays["state_share"], told.arrays["state_share"] + np.float32(gain))
    windows = tuple(replace(window, device=device) for window in told.windows)
    return replace(told, arrays=arrays, windows=windows)
