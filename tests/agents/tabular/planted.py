"""A table of windows with planted savings, which tell a good policy from a bad one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.feature_sets import CONTEXT, observation_space
from envs.observation import Observation, ObservationLimits
from envs.vocabulary import operator_index
from envs.window import WindowTable
from envs.window.rows import TableRows
from envs.window.table import WindowRecord

LIMITS = ObservationLimits(3, 4, 3)
OPERATORS = tuple(operator_index("", name) for name in ("Conv", "MatMul"))
"""The operator of the windows of each kind, by which they are told apart."""


@dataclass(frozen=True)
class Step:
    """A step of a planted window: its rule, the share that the chain saves with it, and what follows."""

    rule: str
    share: float
    then: tuple[Step, ...] = ()
    failed: bool = False


# In the first kind a loss opens the way to the largest gain; in the second it leads to a failure, and another rule
# gains, behind which it is best to stop.
KINDS = (
    (Step("AddsAsSum", 0.3), Step("MergeGroupPairs", -0.2), Step("Reassociate", -0.1, (Step("DropIdentity", 0.5),))),
    (
        Step("AddsAsSum", -0.2),
        Step("MergeGroupPairs", 0.3, (Step("AddsAsSum", -0.1),)),
        Step("Reassociate", -0.1, (Step("DropIdentity", 0.0, failed=True),)),
    ),
)
OPTIMA = (0.5, 0.3)


def planted_table(families: Sequence[str] = ("one", "two", "three"), windows: int = 8, seed: int = 0) -> WindowTable:
    """Return a table with so many windows of each family, one kind after the other, their steps in a drawn order."""
    random, rows = np.random.default_rng(seed), TableRows()
    for family in families:
        for number in range(windows):
            kind = number % len(KINDS)
            steps = [KINDS[kind][place] for place in random.permutation(len(KINDS[kind]))]
            name = f"{family}{number}"
            rows.window(
                WindowRecord(family, name, name, 1e-3, 0.25 * (1 + kind), 5, False), np.zeros(len(CONTEXT), np.float32)
            )
            _add(rows, steps, kind, 0, 0.0)
    return rows.table()


def _add(rows: TableRows, steps: Sequence[Step], kind: int, depth: int, share: float) -> int:
    state = rows.state(_observation(len(steps), kind), [(step.rule, "algebra") for step in steps], depth, share)
    for index, step in enumerate(steps):
        after = _add(rows, step.then, kind, depth + 1, step.share)
        rows.outcome(state, index, after, step.share, 0.01, step.failed)
    return state


def _observation(steps: int, kind: int) -> Observation:
    """Return the window's node, and behind it a node for each step."""
    space = observation_space(LIMITS, "full")
    found = {name: np.zeros(box.shape or (), box.dtype) for name, box in space.spaces.items()}
    found["sizes"][:] = 1 + steps, steps, steps
    found["node_op"][: 1 + steps] = OPERATORS[kind]
    found["node_features"][: 1 + steps] = 0.25
    found["node_candidate"][: 1 + steps] = np.arange(1 + steps)
    found["edge_index"][1, :steps] = 1 + np.arange(steps)
    found["edge_shape"][:steps] = 0.5
    return found
