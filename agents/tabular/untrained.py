"""Baselines without a network: random actions, and the best by what rules saved in the windows of training."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from agents.tabular.game import Actor, Floats, IntArray, WindowGame
from envs.features import NODE_FEATURES
from graph_rewrite.experience.means import PRIOR

_ELEMENTS, _ELEMENT_SCALE = NODE_FEATURES.index("elements"), 32.0
Key = tuple[object, ...]


def random_actor(game: WindowGame, random: np.random.Generator) -> Actor:
    """Return what takes any legal action with equal probability, the stop included."""

    def act(states: IntArray) -> IntArray:
        chosen: IntArray = np.where(game.masks[states], random.random((len(states), game.actions)), -1.0).argmax(axis=1)
        return chosen

    return act


def best_first_actor(game: WindowGame, windows: IntArray) -> Actor:
    """Return what takes the step that is expected to save most, with what may follow it, and stops where none does.

    A step is expected to save what the same rule saved on the same class in some windows: the mean of the best that
    followed each of its steps there. Means are drawn towards those of the rule, of its family and of all steps, as if
    these were `PRIOR` steps, like `graph_rewrite.experience.means.MeanEffects`.

    Args:
        game: the table.
        windows: windows that are looked at.
    """
    expected = _expected(game, windows)

    def act(states: IntArray) -> IntArray:
        values = expected[states]
        chosen: IntArray = np.where(values.max(axis=1) <= 0.0, game.stop, values.argmax(axis=1))
        return chosen

    return act


def _expected(game: WindowGame, windows: IntArray) -> Floats:
    """Return what each action of each state is expected to save, [S, A]; 0 for the stop."""
    totals: dict[Key, float] = defaultdict(float)
    counts: dict[Key, int] = defaultdict(int)
    steps = [(state, action, _keys(game, state, action)) for state, action in np.argwhere(game.masks[:, :-1]).tolist()]
    known = set(windows.tolist())
    for state, action, keys in steps:
        if int(game.windows[state]) in known:
            for key in keys:
                totals[key] += float(game.returns[state, action])
                counts[key] += 1
    found = np.where(game.masks, 0.0, -np.inf)
    for state, action, keys in steps:
        for key in keys:  # from general to special
            found[state, action] = (totals.get(key, 0.0) + PRIOR * found[state, action]) / (counts.get(key, 0) + PRIOR)
    return found


def _keys(game: WindowGame, state: int, action: int) -> tuple[Key, ...]:
    """Return the keys of a step, from general to special: all steps, those of its rule's family, of its rule, and of
    its rule on its class. A class is told by the operators of the replacement, with the powers of two nearest to the
    sizes of their results."""
    arrays = game.table.arrays
    step = int(arrays["step_start"][state]) + action
    nodes = slice(int(arrays["node_start"][state]), int(arrays["node_start"][state + 1]))
    rows = arrays["node_row"][nodes][arrays["node_owner"][nodes] == action + 1]
    sizes = np.rint(arrays["row_features"][rows, _ELEMENTS] * _ELEMENT_SCALE)
    operators = tuple(sorted(zip(arrays["row_op"][rows].tolist(), sizes.tolist(), strict=True)))
    rule, family = int(arrays["step_rule"][step]), int(arrays["step_family"][step])
    return (), ("family", family), ("rule", rule), ("class", rule, operators)
