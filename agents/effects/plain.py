"""Plain features of the steps of a window: sums and means of what a step removes, inserts and leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.attributes import NODE_ATTRIBUTES
from envs.feature_sets import CONTEXT, INSTRUCTIONS
from envs.features import HEAD, NODE_FEATURES
from envs.observation import CANDIDATE_FEATURES, Observation

DETAILS = 2
"""Columns of `candidate_details` that are taken: the others tell of an episode."""
MACHINE = [CONTEXT.index(name) for name in ("block", *INSTRUCTIONS)]
"""Entries of `context` that tell of the processor. Those of threads and cores are left out: tables are timed on one or
two, and nobody knows what a model would make of sixteen."""
_NODE = len(NODE_FEATURES) + len(NODE_ATTRIBUTES)
WIDTH = len(CANDIDATE_FEATURES) + DETAILS + 3 * (_NODE + 1) + len(MACHINE) + 2
"""Plain features of a step."""


@dataclass(frozen=True, slots=True)
class PlainSteps:
    """The steps of one state, by their plain features."""

    numbers: NDArray[np.float32]
    """[steps, `WIDTH`]: features of the step; of the nodes that it removes, those that it inserts and the whole window,
    their number and the means of their features; machine; share that the step saves by a count of operations and
    bytes, and depth."""
    rules: NDArray[np.int64]
    families: NDArray[np.int64]
    operators: tuple[NDArray[np.int64], ...]
    """Operators of the nodes that each step removes and inserts, one after another: removed ones of the first step,
    inserted ones of the first step, and so on."""


def plain_steps(observation: Observation, depth: int, guesses: NDArray[np.float64]) -> PlainSteps:
    """Return the plain features of the steps of a state.

    Args:
        observation: of the feature set `full`.
        depth: rewrites that led to the state.
        guesses: [steps], the share of the window's time that each saves by a count of operations and bytes.
    """
    nodes, edges, steps = (int(size) for size in observation["sizes"])
    owner = observation["node_candidate"][:nodes]
    features = np.concatenate([observation["node_features"][:nodes], observation["node_attributes"][:nodes]], axis=1)
    operators = observation["node_op"][:nodes].astype(np.int64)
    heads = np.flatnonzero(features[:, HEAD] > 0.0)
    sources, targets = observation["edge_index"][:, :edges]
    own = owner == 0
    whole = _summary(features[own])
    deep = [depth / 3.0]
    numbers, found = np.zeros((steps, WIDTH), dtype=np.float32), []
    for step in range(steps):
        removed = np.unique(sources[(targets == heads[step]) & own[sources]])
        inserted = np.flatnonzero((owner == step + 1) & (features[:, HEAD] == 0.0))
        found += [operators[removed], operators[inserted]]
        numbers[step] = np.concatenate(
            [
                observation["candidate_features"][step], observation["candidate_details"][step, :DETAILS],
                _summary(features[removed]), _summary(features[inserted]), whole, observation["context"][MACHINE],
                guesses[step : step + 1], deep,
            ]
        )  # fmt: skip
    rules, families = (observation[name][:steps].astype(np.int64) for name in ("candidate_rule", "candidate_family"))
    return PlainSteps(numbers, rules, families, tuple(found))


def _summary(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return log2(1 + rows) / 8, and the means of the columns."""
    mean = rows.mean(axis=0) if len(rows) else np.zeros(_NODE, dtype=np.float32)
    return np.concatenate([[np.log2(1.0 + len(rows)) / 8.0], mean]).astype(np.float32)
