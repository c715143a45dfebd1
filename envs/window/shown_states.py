"""The observations of a table's states."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.feature_sets import CANDIDATE_DETAILS, CONTEXT, family_vocabulary
from envs.observation import CANDIDATE_FEATURES, Observation, log_share
from envs.vocabulary import NO_OP, PADDING, UNKNOWN, rule_indices
from envs.window.table import WindowTable

_STEPS_LEFT = CONTEXT.index("steps_left")
_REFUSED = CONTEXT.index("budget_left") + 1
_NO_OP_COLUMN, _LEGAL = CANDIDATE_FEATURES.index("no_op"), CANDIDATE_FEATURES.index("legal")
_MEASURED = CANDIDATE_DETAILS.index("measured")


class ShownStates:
    """Pads the states of a table to observations of the feature set `full`.

    Args:
        table: the table.
        horizon: steps at which the observed `step` is 1.
    """

    def __init__(self, table: WindowTable, horizon: int) -> None:
        self._table, self._arrays, self._horizon = table, table.arrays, horizon
        self._measured = table.measured_states()
        self._rules = np.array([*rule_indices(table.rules), NO_OP], dtype=np.int32)
        number = {family: index for index, family in enumerate(family_vocabulary())}
        self._families = np.array([number.get(name, UNKNOWN) for name in table.families], dtype=np.int32)

    def count(self, state: int) -> int:
        """Return the number of steps that a state offers."""
        start = self._arrays["step_start"]
        return int(start[state + 1] - start[state])

    def rule(self, state: int, step: int) -> str:
        """Return the name of the rule of a step."""
        arrays = self._arrays
        return self._table.rules[int(arrays["step_rule"][arrays["step_start"][state] + step])]

    def mask(self, state: int) -> NDArray[np.bool_]:
        """Return the legal actions, bool [C + 1]."""
        mask = np.zeros(self._table.limits.max_candidates + 1, dtype=np.bool_)
        mask[: self.count(state)] = mask[-1] = True
        return mask

    def observation(self, path: Sequence[int], taken: int) -> Observation:
        """Return the observation of the last state of a path, freshly allocated.

        Args:
            path: numbers of the states of an episode so far.
            taken: actions of the episode so far.
        """
        arrays, limits, state = self._arrays, self._table.limits, path[-1]
        nodes, edges, steps = (self._part(name, state) for name in ("node", "edge", "step"))
        rows, owner = arrays["node_row"][nodes], arrays["node_owner"][nodes]
        count = steps.stop - steps.start
        size, most = limits.max_nodes, limits.max_candidates
        ends = np.zeros((2, limits.max_edges), dtype=np.int32)
        used = edges.stop - edges.start
        ends[0, :used], ends[1, :used] = arrays["edge_source"][edges], arrays["edge_target"][edges]
        features = _padded(arrays["step_features"][steps], most + 1)
        features[-1, _NO_OP_COLUMN] = features[-1, _LEGAL] = 1.0
        context = self._context(state, taken)
        return {
            "node_op": _padded(arrays["row_op"][rows], size, np.int32),
            "node_features": _padded(arrays["row_features"][rows], size),
            "node_candidate": _padded(owner, size, np.int32, fill=-1),
            "edge_index": ends,
            "edge_shape": _padded(arrays["shapes"][arrays["edge_shape"][edges]], limits.max_edges),
            "candidate_rule": self._named(self._rules, arrays["step_rule"][steps], most),
            "candidate_features": features,
            "globals": self._globals(path, taken, int((owner == 0).sum()), count, context),
            "sizes": np.array([len(rows), used, count], dtype=np.int32),
            "node_attributes": _padded(arrays["row_attributes"][rows], size),
            "candidate_family": self._named(self._families, arrays["step_family"][steps], most),
            "candidate_details": self._details(path, steps, most + 1),
            "context": context,
        }

    def _part(self, name: str, state: int) -> slice:
        start = self._arrays[f"{name}_start"]
        return slice(int(start[state]), int(start[state + 1]))

    def _named(self, names: NDArray[np.int32], numbers: NDArray[np.int16], most: int) -> NDArray[np.int32]:
        found = np.full(most + 1, PADDING, dtype=np.int32)
        found[: len(numbers)], found[-1] = names[numbers], NO_OP
        return found

    def _details(self, path: Sequence[int], steps: slice, rows: int) -> NDArray[np.float32]:
        """Return the details of steps, with what their rules saved earlier in this episode."""
        arrays = self._arrays
        stored = arrays["step_details"][steps]
        details = np.zeros((rows, len(CANDIDATE_DETAILS)), dtype=np.float32)
        details[: len(stored), : stored.shape[1]] = stored
        effects: dict[int, float] = {}
        for before, after in pairwise(path):
            part = self._part("step", before)
            step = part.start + int(np.flatnonzero(arrays["step_next"][part] == after)[0])
            if self._measured[before] and self._measured[after] and not arrays["step_failed"][step]:
                effects[int(arrays["step_rule"][step])] = float(
                    arrays["state_share"][after] - arrays["state_share"][before]
                )
        for row, rule in enumerate(arrays["step_rule"][steps].tolist() if effects else ()):
            if rule in effects:
                details[row, _MEASURED:] = 1.0, min(max(effects[rule], -1.0), 1.0)
        return details

    def _context(self, state: int, taken: int) -> NDArray[np.float32]:
        arrays = self._arrays
        context: NDArray[np.float32] = arrays["context"][arrays["window_context"][arrays["state_window"][state]]].copy()
        context[_STEPS_LEFT] = 1.0 - min(1.0, taken / self._horizon)
        return context

    def _globals(
        self, path: Sequence[int], taken: int, nodes: int, steps: int, context: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        speedups = 1.0 / np.maximum(1.0 - self._arrays["state_share"][list(path)], 0.01)
        values = (
            min(1.0, taken / self._horizon), 0.0, speedups[-1], max(1.0, speedups.max()), 0.0, log_share(steps),
            log_share(nodes), context[_REFUSED:].sum() / 8,
        )  # fmt: skip
        return np.array(values, dtype=np.float32)


def _padded(data: NDArray[Any], length: int, kind: Any = np.float32, fill: int = 0) -> NDArray[Any]:
    padded = np.full((length, *data.shape[1:]), fill, dtype=kind)
    padded[: len(data)] = data
    return padded
