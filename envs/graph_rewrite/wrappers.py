"""Wrappers around `GraphRewriteEnv`."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.features import EDGE_FEATURES, NODE_FEATURES
from envs.observation import CANDIDATE_FEATURES, GLOBAL_FEATURES, Observation

NODE_COLUMNS = ("op", "candidate", "rule", *NODE_FEATURES, *CANDIDATE_FEATURES, *GLOBAL_FEATURES)
"""Columns of a node's row: operator index, 0 for the current graph or k + 1 for candidate k, rule index of the
candidate at its head and 0 elsewhere, node features, candidate features at a head and zeros elsewhere, and the global
features, repeated for every node."""


class GraphSpaceWrapper(gymnasium.ObservationWrapper[spaces.GraphInstance, int, Observation]):
    """Offers the observation as `gymnasium.spaces.Graph`, without padding, for libraries that take graphs.

    `nodes` is float32 [nodes, len(NODE_COLUMNS)], `edges` float32 [edges, 4] (tensor shapes), `edge_links` int32
    [edges, 2] (source, target). Actions are the same. The mask is not part of a graph: ask `action_masks()` before each
    action, as sb3-contrib does; at the head of each candidate the column `legal` says the same. The No-Op, always
    legal, has no node. Of the feature set `full` only what `plain` has is shown.
    """

    def __init__(self, env: gymnasium.Env[Observation, int]) -> None:
        super().__init__(env)
        self.observation_space = spaces.Graph(
            node_space=spaces.Box(-np.inf, np.inf, (len(NODE_COLUMNS),), np.float32),
            edge_space=spaces.Box(0.0, np.inf, (EDGE_FEATURES,), np.float32),
        )

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [max_candidates + 1]: which actions are legal."""
        mask: NDArray[np.bool_] = self.env.get_wrapper_attr("action_masks")()
        return mask

    def observation(self, observation: Observation) -> spaces.GraphInstance:
        """The observation as a graph."""
        return as_graph(observation)


def as_graph(observation: Observation) -> spaces.GraphInstance:
    """A padded observation as a graph with `NODE_COLUMNS` and without padding."""
    nodes, edges = (int(size) for size in observation["sizes"][:2])
    features, owner = observation["node_features"][:nodes], observation["node_candidate"][:nodes]
    rule = np.zeros((nodes, 1), dtype=np.float32)
    candidate_features = np.zeros((nodes, len(CANDIDATE_FEATURES)), dtype=np.float32)
    heads = np.flatnonzero(features[:, NODE_FEATURES.index("head")])
    shown = owner[heads] - 1  # in an e-graph, rules that match nowhere have no head
    rule[heads, 0] = observation["candidate_rule"][shown]
    candidate_features[heads] = observation["candidate_features"][shown]
    columns = (
        observation["node_op"][:nodes, None], owner[:, None], rule, features, candidate_features,
        np.broadcast_to(observation["globals"], (nodes, len(GLOBAL_FEATURES))),
    )  # fmt: skip
    return spaces.GraphInstance(
        nodes=np.concatenate(columns, axis=1, dtype=np.float32),
        edges=observation["edge_shape"][:edges].copy(),
        edge_links=observation["edge_index"][:, :edges].T.copy(),
    )
