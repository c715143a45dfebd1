"""The collection of states into the arrays of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.feature_sets import CONTEXT
from envs.observation import Observation, ObservationLimits
from envs.window.table import ARRAYS, WindowRecord, WindowTable

STEP_DETAILS = 2
"""Columns of `candidate_details` that a table holds: the others follow from an episode."""


class DistinctRows:
    """Rows of numbers, each kept once."""

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.rows: list[tuple[NDArray[Any], ...]] = []

    def number(self, *row: NDArray[Any]) -> int:
        """Return the number of a row, which may be of several arrays."""
        key = b"".join(part.tobytes() for part in row)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.rows)
            self.rows.append(tuple(part.copy() for part in row))
        return found


class TableRows:
    """Collects windows and states; `table` gives what was collected."""

    def __init__(self) -> None:
        self._nodes, self._shapes, self._contexts = DistinctRows(), DistinctRows(), DistinctRows()
        self._names: dict[str, dict[str, int]] = {"rule": {}, "family": {}, "class": {}}
        self._lists: dict[str, list[Any]] = {name: [] for name in ARRAYS}
        for name in ("node_start", "edge_start", "step_start"):
            self._lists[name].append(0)
        self._windows: list[WindowRecord] = []
        self._largest = np.ones(3, dtype=np.int64)

    @property
    def states(self) -> int:
        """Number of states so far."""
        return len(self._lists["state_window"])

    def window(self, record: WindowRecord, context: NDArray[np.float32]) -> None:
        """Begin a window; the next state is its root.

        Args:
            context: float32 [`CONTEXT`], of a state at the beginning.
        """
        self._windows.append(record)
        self._lists["window_root"].append(self.states)
        self._lists["window_context"].append(self._contexts.number(context))

    def state(
        self, observation: Observation, steps: Sequence[tuple[str, str]], depth: int, share: float
    ) -> int:  # fmt: skip
        """Add a state of the last window, and return its number.

        Args:
            observation: of the feature set `full`.
            steps: name and family of the rule of each step, in the order of the candidates.
            depth: rewrites that led to it.
            share: share of the window's time that they save.
        """
        nodes, edges, _ = (int(size) for size in observation["sizes"])
        lists = self._lists
        for row in range(nodes):
            entry = (observation[name][row] for name in ("node_op", "node_features", "node_attributes"))
            lists["node_row"].append(self._nodes.number(*entry))
        lists["node_owner"] += observation["node_candidate"][:nodes].tolist()
        lists["edge_source"] += observation["edge_index"][0, :edges].tolist()
        lists["edge_target"] += observation["edge_index"][1, :edges].tolist()
        lists["edge_shape"] += [self._shapes.number(observation["edge_shape"][edge]) for edge in range(edges)]
        for index, (rule, family) in enumerate(steps):
            lists["step_rule"].append(self._number("rule", rule))
            lists["step_family"].append(self._number("family", family))
            lists["step_features"].append(observation["candidate_features"][index])
            lists["step_details"].append(observation["candidate_details"][index, :STEP_DETAILS])
            lists["step_share"].append(0.0)
            lists["step_half"].append(0.0)
            lists["step_failed"].append(True)
            lists["step_next"].append(-1)
            for name in ("step_measured", "step_guess", "step_class", "step_cost"):
                lists[name].append(0)
        lists["state_window"].append(len(self._windows) - 1)
        lists["state_depth"].append(depth)
        lists["state_share"].append(share)
        for name, column in (("node_start", "node_row"), ("edge_start", "edge_shape"), ("step_start", "step_rule")):
            lists[name].append(len(lists[column]))
        self._largest = np.maximum(self._largest, (len(steps), nodes, edges))
        return self.states - 1

    def outcome(
        self, state: int, step: int, after: int, share: float, half: float, failed: bool, *, measured: bool = True,
        guess: float = 0.0, shape_class: str = "", cost: float = 0.0,
    ) -> int:  # fmt: skip
        """Note what a step of a state leads to, and what was measured. Return the step's number in the table.

        Args:
            state, step: number of the state, and of the step among its steps.
            after: number of the state that the step leads to.
            share, half, failed, measured, guess, cost: as `envs.window.table.ARRAYS` describes them.
            shape_class: text of its class.
        """
        number = self._lists["step_start"][state] + step
        values = {
            "share": share, "half": half, "failed": failed, "next": after, "measured": measured, "guess": guess,
            "class": self._number("class", shape_class), "cost": cost,
        }  # fmt: skip
        for name, value in values.items():
            self._lists[f"step_{name}"][number] = value
        return int(number)

    def table(self) -> WindowTable:
        """Return the table of what was collected."""
        lists = self._lists
        for name, part in (("row_op", 0), ("row_features", 1), ("row_attributes", 2)):
            lists[name] = [row[part] for row in self._nodes.rows]
        lists["shapes"] = [row[0] for row in self._shapes.rows]
        lists["context"] = [row[0] for row in self._contexts.rows]
        widths = {"step_features": 10, "step_details": STEP_DETAILS, "context": len(CONTEXT)}
        arrays: dict[str, NDArray[Any]] = {name: np.array(lists[name], dtype=kind) for name, kind in ARRAYS.items()}
        for name, width in widths.items():
            arrays[name] = arrays[name].reshape(-1, width)
        limits = ObservationLimits(*(int(size) for size in self._largest))
        rules, families, classes = (tuple(self._names[kind]) for kind in ("rule", "family", "class"))
        return WindowTable(tuple(self._windows), rules, families, arrays, limits, classes)

    def _number(self, kind: str, name: str) -> int:
        known = self._names[kind]
        return known.setdefault(name, len(known))
