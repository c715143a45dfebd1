"""The observation that all environments share: entries, features and sizes.

It is a dictionary of arrays, padded to `ObservationLimits`, that describes a graph and the actions that can be taken on
it. How an environment fills it is said by `envs.graph_rewrite.meta_graph` and `envs.egraph.observation`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.features import EDGE_FEATURES, NODE_FEATURES
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import UserError

CANDIDATE_FEATURES = (
    "sites", "site", "class", "deployment", "no_op", "removed", "inserted", "flops_change", "bytes_change", "legal",
)  # fmt: skip
"""Columns of `candidate_features`.

sites: log2(number of sites) / 8; site, class, deployment, no_op: one-hot kind; removed, inserted: nodes of the
representative site / 16; flops_change, bytes_change: what all sites together add (negative: save) relative to the
current graph, within -1..1; legal: 1 where the mask allows the action.
"""

GLOBAL_FEATURES = (
    "step", "since_feedback", "speedup", "best_speedup", "cut", "candidates", "nodes", "refused",
)  # fmt: skip
"""Entries of `globals`.

step / horizon; steps since the last feedback / N; last measured and best measured speed-up; log2(1 + x) / 16 of the
candidates that were cut, the candidates, the nodes of the current graph; number of refused runtime optimisers / 8.
"""

Observation = dict[str, NDArray[Any]]
"""Arrays by entry; the class docstring of `GraphRewriteEnv` explains each."""


def feature_sizes() -> dict[str, int]:
    """Widths of node, edge, candidate and global features."""
    return {
        "node": len(NODE_FEATURES),
        "edge": EDGE_FEATURES,
        "candidate": len(CANDIDATE_FEATURES),
        "globals": len(GLOBAL_FEATURES),
    }


def log_share(count: int) -> float:
    """A count as a feature: log2(1 + count) / 16."""
    return math.log2(1 + count) / 16


@dataclass(frozen=True, slots=True)
class ObservationLimits:
    """The sizes that observations are padded to."""

    max_candidates: int = 512
    max_nodes: int = 4096
    max_edges: int = 8192

    def __post_init__(self) -> None:
        for name in ("max_candidates", "max_nodes", "max_edges"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}")

    def space(self) -> spaces.Dict:
        """The observation space; the class docstring of `GraphRewriteEnv` explains its entries."""
        actions, nodes, edges = self.max_candidates + 1, self.max_nodes, self.max_edges

        def integers(low: int, high: int, *shape: int) -> spaces.Box:
            return spaces.Box(low, high, shape, np.int32)

        def numbers(low: float, *shape: int) -> spaces.Box:
            return spaces.Box(low, np.inf, shape, np.float32)

        return spaces.Dict(
            {
                "node_op": integers(0, len(operator_vocabulary()) - 1, nodes),
                "node_features": numbers(0.0, nodes, len(NODE_FEATURES)),
                "node_candidate": integers(-1, self.max_candidates, nodes),
                "edge_index": integers(0, nodes - 1, 2, edges),
                "edge_shape": numbers(0.0, edges, EDGE_FEATURES),
                "candidate_rule": integers(0, len(rule_vocabulary()) - 1, actions),
                "candidate_features": numbers(-1.0, actions, len(CANDIDATE_FEATURES)),
                "globals": numbers(0.0, len(GLOBAL_FEATURES)),
                "sizes": integers(0, max(nodes, edges, actions), 3),
            }
        )
