"""Plain features of the steps of a window: sums and means of what a step removes, inserts and leaves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.effects.step_means import Forecast
from envs.attributes import NODE_ATTRIBUTES
from envs.feature_sets import CONTEXT
from envs.features import HEAD, NODE_FEATURES
from envs.observation import CANDIDATE_FEATURES, Observation

DETAILS = 2
"""Columns of `candidate_details` that are taken: the others tell of an episode."""
MACHINE = CONTEXT.index("steps_left")
"""Entries of `context` that tell of machine and deployment come before this one."""
_NODE = len(NODE_FEATURES) + len(NODE_ATTRIBUTES)
FORECAST = 4
"""Features of what means forecast of a step."""
WIDTH = len(CANDIDATE_FEATURES) + DETAILS + 3 * (_NODE + 1) + MACHINE + 2 + FORECAST
"""Plain features of a step."""
_UNKNOWN_DEVIATION = 0.3
"""Standard deviation of what a step saves of whose rule nothing is known."""


@dataclass(frozen=True, slots=True)
class PlainSteps:
    """The steps of one state, by their plain features."""

    numbers: NDArray[np.float32]
    """[steps, `WIDTH`]: features of the step; of the nodes that it removes, those that it inserts and the whole window,
    their number and the means of their features; machine; share saved before, and depth; what means forecast."""
    rules: NDArray[np.int64]
    families: NDArray[np.int64]
    operators: tuple[NDArray[np.int64], ...]
    """Operators of the nodes that each step removes and inserts, one after another: removed ones of the first step,
    inserted ones of the first step, and so on."""


def forecast_features(forecast: Forecast | None, line: float) -> tuple[float, float, float, float]:
    """Return what means say of a step, as features: mean, deviation, log(1 + timings) / 5, and what the line says.

    Args:
        forecast: None where nothing is known of its rule.
        line: what the step saves by its estimate alone (`StepMeans.on_line`).
    """
    if forecast is None:
        return line, _UNKNOWN_DEVIATION, 0.0, line
    return forecast.mean, forecast.deviation, float(np.log1p(forecast.labels)) / 5.0, line


def plain_steps(
    observation: Observation, share: float, depth: int, forecasts: NDArray[np.float32] | None = None
) -> PlainSteps:
    """Return the plain features of the steps of a state.

    Args:
        observation: of the feature set `full`.
        share: share of the window's time that the steps before save.
        depth: number of these.
        forecasts: [steps, `FORECAST`], what means forecast of each; by default nothing is forecast.
    """
    nodes, edges, steps = (int(size) for size in observation["sizes"])
    owner = observation["node_candidate"][:nodes]
    features = np.concatenate([observation["node_features"][:nodes], observation["node_attributes"][:nodes]], axis=1)
    operators = observation["node_op"][:nodes].astype(np.int64)
    heads = np.flatnonzero(features[:, HEAD] > 0.0)
    sources, targets = observation["edge_index"][:, :edges]
    own = owner == 0
    whole = _summary(features[own])
    before = np.array([max(share, -2.0), depth / 3.0], dtype=np.float32)
    if forecasts is None:
        forecasts = np.tile(np.array(forecast_features(None, 0.0), dtype=np.float32), (steps, 1))
    numbers, found = np.zeros((steps, WIDTH), dtype=np.float32), []
    for step in range(steps):
        removed = np.unique(sources[(targets == heads[step]) & own[sources]])
        inserted = np.flatnonzero((owner == step + 1) & (features[:, HEAD] == 0.0))
        found += [operators[removed], operators[inserted]]
        numbers[step] = np.concatenate(
            [
                observation["candidate_features"][step], observation["candidate_details"][step, :DETAILS],
                _summary(features[removed]), _summary(features[inserted]), whole, observation["context"][:MACHINE],
                before, forecasts[step],
            ]
        )  # fmt: skip
    rules, families = (observation[name][:steps].astype(np.int64) for name in ("candidate_rule", "candidate_family"))
    return PlainSteps(numbers, rules, families, tuple(found))


def _summary(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return log2(1 + rows) / 8, and the means of the columns."""
    mean = rows.mean(axis=0) if len(rows) else np.zeros(_NODE, dtype=np.float32)
    return np.concatenate([[np.log2(1.0 + len(rows)) / 8.0], mean]).astype(np.float32)
