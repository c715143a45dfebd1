"""The graph encoder: one node update from edge attributes, k graph attention layers, one global update
(X-RLflow, section 3.4, equations 6 to 8)."""

from __future__ import annotations

from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from torch import Tensor, nn
from torch_geometric.nn import GATConv

from agents.core.config import EncoderConfig


class GraphEncoder(BaseFeaturesExtractor):
    """Encodes a batch of meta-graphs.

    Input: the Dict observation of `GraphRewrite-v0`, every array with a leading batch dimension B, of any sizes.
    Output: float32 [B, A + 1, width], where A is the number of candidates that it is padded to: the embedding of each
    candidate beside the graph's embedding; the last row is the No-Op's.
    """

    def __init__(self, observation_space: spaces.Dict, operators: int, rules: int, config: EncoderConfig) -> None:
        node_features = observation_space["node_features"].shape
        candidate_features = observation_space["candidate_features"].shape
        global_features = _size(observation_space, "globals")
        # The entries that the feature set `full` has beyond `plain`.
        attributes, details, context, families = _full_sizes(observation_space)
        if node_features is None or candidate_features is None:
            raise ValueError("the observation space has no node or candidate features")
        hidden = config.hidden
        super().__init__(observation_space, 3 * hidden)
        self.config = config
        self.operator = nn.Embedding(operators, hidden)
        self.rule = nn.Embedding(rules, hidden)
        self.node_in = nn.Linear(hidden + node_features[1] + attributes + 4, hidden)
        self.attention = nn.ModuleList(
            GATConv(hidden, hidden // config.attention_heads, heads=config.attention_heads)
            for _ in range(config.layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(config.layers))
        self.candidate_in = nn.Linear(hidden + candidate_features[1] + details, hidden)
        self.global_out = nn.Linear(hidden + global_features + context, hidden)
        self.family = nn.Embedding(families, hidden) if families else None

    def forward(self, observations: dict[str, Tensor]) -> Tensor:
        nodes, edges, candidate_of, graph_of = _unpad(observations)
        h = self._encode(nodes, edges)
        graph = self._global(h, candidate_of, graph_of, _joined(observations, "globals", "context"))
        rule = self.rule(observations["candidate_rule"].long())
        pooled = self._pool_candidates(h, candidate_of, graph_of, rule.shape[:2])
        if self.family is not None:
            rule = rule + self.family(observations["candidate_family"].long())
        features = _joined(observations, "candidate_features", "candidate_details")
        known = torch.relu(self.candidate_in(torch.cat([rule, features], dim=-1)))
        return torch.cat([pooled, known, graph[:, None, :].expand(-1, rule.shape[1], -1)], dim=-1)

    def _encode(self, nodes: dict[str, Tensor], edges: dict[str, Tensor]) -> Tensor:
        count = nodes["op"].shape[0]
        index, shape = edges["index"], edges["shape"]
        incoming = torch.zeros(count, shape.shape[1], device=shape.device).index_add(0, index[1], shape)
        h = torch.relu(self.node_in(torch.cat([incoming, self.operator(nodes["op"]), nodes["features"]], dim=-1)))
        if self.config.bidirectional:
            index = torch.cat([index, index.flip(0)], dim=1)
        for attention, norm in zip(self.attention, self.norms, strict=True):
            update = torch.relu(attention(h, index))
            h = norm(h + update) if self.config.residual else update
        return h

    def _global(self, h: Tensor, candidate_of: Tensor, graph_of: Tensor, globals_: Tensor) -> Tensor:
        current = candidate_of == 0
        batch = globals_.shape[0]
        total = torch.zeros(batch, h.shape[1], device=h.device).index_add(0, graph_of[current], h[current])
        if self.config.pooling == "mean":
            count = torch.zeros(batch, device=h.device).index_add(
                0, graph_of[current], torch.ones_like(h[current][:, 0])
            )
            total = total / count.clamp(min=1.0)[:, None]
        return torch.relu(self.global_out(torch.cat([total, globals_], dim=-1)))

    @staticmethod
    def _pool_candidates(h: Tensor, candidate_of: Tensor, graph_of: Tensor, shape: torch.Size) -> Tensor:
        """Mean over the nodes of each candidate's region, [*shape, hidden]; zeros for the No-Op and for padding."""
        batch, actions = shape
        region = candidate_of > 0
        slot = graph_of[region] * actions + candidate_of[region] - 1
        total = torch.zeros(batch * actions, h.shape[1], device=h.device).index_add(0, slot, h[region])
        count = torch.zeros(batch * actions, device=h.device).index_add(0, slot, torch.ones_like(slot, dtype=h.dtype))
        return (total / count.clamp(min=1.0)[:, None]).view(batch, actions, -1)


def _full_sizes(space: spaces.Dict) -> tuple[int, int, int, int]:
    """Widths of node attributes, candidate details and context, and the number of families; zeros where the space has
    none of them."""
    if "context" not in space.spaces:
        return 0, 0, 0, 0
    family = space["candidate_family"]
    assert isinstance(family, spaces.Box)
    widths = [(space[name].shape or (0,))[-1] for name in ("node_attributes", "candidate_details", "context")]
    return widths[0], widths[1], widths[2], int(family.high.max()) + 1


def _joined(observations: dict[str, Tensor], *names: str) -> Tensor:
    """Join those of some entries that there are along their last dimension."""
    return torch.cat([observations[name] for name in names if name in observations], dim=-1)


def _size(space: spaces.Dict, key: str) -> int:
    shape = space[key].shape
    if shape is None:
        raise ValueError(f"the observation {key!r} has no shape")
    return int(shape[0])


def _unpad(observations: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor]:
    """Padded arrays of a batch as one disjoint graph, as PyTorch Geometric takes it."""
    sizes = observations["sizes"].long()
    device = sizes.device
    limit = int(sizes[:, 0].max()), int(sizes[:, 1].max())
    real_nodes = torch.arange(limit[0], device=device)[None, :] < sizes[:, :1]
    real_edges = torch.arange(limit[1], device=device)[None, :] < sizes[:, 1:2]
    offsets = torch.cumsum(sizes[:, 0], dim=0) - sizes[:, 0]
    graph_of = torch.arange(sizes.shape[0], device=device)[:, None].expand_as(real_nodes)[real_nodes]

    def take(name: str, real: Tensor) -> Any:
        return observations[name][:, : real.shape[1]][real]

    index = observations["edge_index"][:, :, : limit[1]].long() + offsets[:, None, None]
    shown = [take(name, real_nodes) for name in ("node_features", "node_attributes") if name in observations]
    nodes = {"op": take("node_op", real_nodes).long(), "features": torch.cat(shown, dim=-1)}
    edges = {"index": index.permute(0, 2, 1)[real_edges].t().contiguous(), "shape": take("edge_shape", real_edges)}
    return nodes, edges, take("node_candidate", real_nodes).long(), graph_of
