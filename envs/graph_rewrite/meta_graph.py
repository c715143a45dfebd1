"""The observation: X-RLflow's meta-graph (section 3.3.2) as a dictionary of padded arrays.

The current graph's nodes come first, then, for each candidate, a head node and its replacement: the nodes that its
representative site would insert. Edges run along values: inside the current graph, from producers in the current graph
into a replacement (nothing is copied), and inside a replacement. Further edges run from every inserted and every
removed node to the candidate's head. So the size is |graph| + sum of |replacement|. A replacement of more than
`footprint.SUMMARISED` nodes is shown by its kinds of nodes (`footprint`). With `full_meta_graph` each candidate
contributes its whole graph, as in the paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.feature_sets import FeatureSet, observation_space
from envs.features import NODES, REPLACEMENT, SHAPES, node_records
from envs.graph_rewrite.footprint import (
    ALL_KINDS,
    KINDS,
    WIDTHS,
    Footprint,
    footprint,
    graph_footprint,
    site_footprint,
)
from envs.observation import CANDIDATE_FEATURES, Observation, ObservationLimits
from envs.vocabulary import NO_OP, PADDING, rule_indices
from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.rewriting.sites import Site

_KIND_COLUMNS = {kind: CANDIDATE_FEATURES.index(kind) for kind in ("site", "class", "deployment")}


class ObservationLimitError(UserError):
    """A graph by itself does not fit into observations of these limits."""


class GraphArrays:
    """A graph's nodes in topological order, its edges, and where each value is produced."""

    def __init__(self, graph: Graph) -> None:
        order, records = graph.order(), node_records(graph)
        found = [records[node.id] for node in order]
        self.count = len(order)
        position = np.arange(self.count, dtype=np.int32)
        self.rows = np.fromiter((record[0] for record in found), np.intp, self.count)
        self.node_at = np.full(graph.next_id, -1, dtype=np.int32)
        self.node_at[_flat([node.id] for node in order)] = position
        self.producer_at = np.full(graph.next_id, -1, dtype=np.int32)
        outputs = [node.outputs for node in order]
        self.producer_at[_flat(outputs)] = np.repeat(position, _lengths(outputs))
        inputs = [record[1] for record in found]
        sources, targets = self.producer_at[_flat(inputs)], np.repeat(position, _lengths(inputs))
        produced = sources >= 0
        self.edges = (sources[produced], targets[produced], _flat(record[2] for record in found)[produced])


@dataclass(frozen=True)
class Choices:
    """The candidates that an observation holds, and how many were cut because they did not fit."""

    graph: GraphArrays
    candidates: Candidates
    footprints: Sequence[Footprint]
    """Footprints of the representative sites."""
    shown: Sequence[Footprint]
    """The nodes and edges that each candidate adds to the meta-graph; `footprints` unless whole graphs are observed."""
    counts: NDArray[np.intp]
    """`Footprint.counts` of `shown`, [candidates, 4]."""
    sites: NDArray[np.intp]
    """Number of sites per candidate."""
    cut: int


def choose(
    graph: Graph, candidates: Candidates, limits: ObservationLimits, full_meta_graph: bool = False, kinds: int = KINDS
) -> Choices:
    """Return the candidates that fit the limits, in their order: those that do not fit are cut from the end.

    Candidates that could make the graph itself outgrow the limits are cut as well, wherever they stand. A large
    replacement is summarised by at most so many `kinds` of nodes.

    Raises:
        ObservationLimitError: the graph by itself does not fit.
    """
    arrays = GraphArrays(graph)
    nodes, edges = arrays.count, len(arrays.edges[0])
    if nodes > limits.max_nodes or edges > limits.max_edges:
        raise ObservationLimitError(
            f"the graph has {nodes} nodes and {edges} edges, more than max_nodes={limits.max_nodes} or "
            f"max_edges={limits.max_edges}; give the environment larger ones"
        )
    head, tail, footprints = _fitting(candidates, nodes, edges, limits, kinds)
    shown = footprints
    if full_meta_graph:
        applied = [_footprint_after(candidate) for candidate in Candidates(graph, head, tail)]
        valid = [number for number, mark in enumerate(applied) if mark is not None]
        first = len(head)
        head, tail = [head[k] for k in valid if k < first], [tail[k - first] for k in valid if k >= first]
        footprints, shown = [footprints[k] for k in valid], [mark for mark in applied if mark is not None]
    fitting = Candidates(graph, head, tail)
    counts = _joined([mark.counts for mark in shown], 4)
    # A boundary value that is an input of the model has no producer and gives no edge; it is counted all the same.
    room = (nodes + np.cumsum(counts[:, 0]) <= limits.max_nodes) & (
        edges + np.cumsum(counts[:, 1:].sum(axis=1)) <= limits.max_edges
    )
    kept = int(room.sum())
    if kept < len(fitting):
        fitting = Candidates(graph, head[:kept], tail[: max(0, kept - len(head))])
    sites = np.ones(kept, dtype=np.intp)
    sites[: len(fitting.head)] = [candidate.count for candidate in fitting.head]
    return Choices(
        arrays, fitting, footprints[:kept], shown[:kept], counts[:kept], sites, len(candidates) - kept
    )  # fmt: skip


def _footprint_after(candidate: Candidate) -> Footprint | None:
    """Return the footprint of the whole graph after a rewrite; None where that would be no valid graph."""
    try:
        return graph_footprint(candidate.apply())
    except InvalidRewriteError:
        return None


def _fitting(
    found: Candidates, nodes: int, edges: int, limits: ObservationLimits, kinds: int
) -> tuple[list[Candidate], list[Site], list[Footprint]]:
    """The first candidates after which the graph still fits, as many as an observation holds, and the footprints of
    both kinds."""
    most_nodes, most_edges = limits.max_nodes - nodes, limits.max_edges - edges

    def fits(mark: Footprint, sites: int) -> bool:
        return sites * mark.grown <= most_nodes and sites * mark.wired <= most_edges

    head = [candidate for candidate in found.head if fits(footprint(candidate, kinds), candidate.count)]
    head = head[: limits.max_candidates]
    marks, tail, room = [footprint(one, kinds) for one in head], list[Site](), limits.max_candidates - len(head)
    for site in found.sites:
        if len(tail) == room:
            break
        mark = site_footprint(site, kinds)
        if fits(mark, 1):
            tail.append(site)
            marks.append(mark)
    return head, tail, marks


def observe(
    choices: Choices, mask: NDArray[np.bool_], global_features: Sequence[float], limits: ObservationLimits
) -> Observation:
    """The padded observation; freshly allocated, so the caller may keep or change it."""
    graph, shown = choices.graph, choices.shown
    sizes = choices.counts[:, 0]
    starts = graph.count + np.cumsum(sizes) - sizes
    added, *edges = _entries(choices)
    rows = np.concatenate([graph.rows, added[:, 0]])
    owner = np.repeat(np.arange(len(shown) + 1), np.concatenate([[graph.count], sizes]))
    features = NODES.features[rows]
    features[graph.count :, REPLACEMENT] = 1.0
    sources, targets, shapes = _all_edges(choices, starts, *edges)
    rules = [*rule_indices(choices.candidates.rules), *[PADDING] * (limits.max_candidates - len(shown)), NO_OP]
    return {
        "node_op": _padded(NODES.operators[rows], limits.max_nodes),
        "node_features": _padded(features, limits.max_nodes),
        "node_candidate": _padded(owner.astype(np.int32), limits.max_nodes, fill=-1),
        "edge_index": np.stack([_padded(end.astype(np.int32), limits.max_edges) for end in (sources, targets)]),
        "edge_shape": _padded(SHAPES.rows[shapes], limits.max_edges),
        "candidate_rule": np.array(rules, dtype=np.int32),
        "candidate_features": _candidate_features(choices, mask),
        "globals": np.array(global_features, dtype=np.float32),
        "sizes": np.array([len(rows), len(sources), len(shown)], dtype=np.int32),
    }


def _entries(choices: Choices) -> list[NDArray[np.intp]]:
    """Each of `footprint.LISTS` of all candidates."""
    numbers = _joined([mark.numbers for mark in choices.shown], 1)[:, 0]
    kinds = np.repeat(np.tile(np.arange(len(WIDTHS)), len(choices.shown)), (choices.counts * WIDTHS).reshape(-1))
    return [numbers[kinds == kind].reshape(-1, width) for kind, width in enumerate(WIDTHS)]


def _all_edges(
    choices: Choices, starts: NDArray[np.intp], inner: NDArray[np.intp], boundary: NDArray[np.intp],
    removed: NDArray[np.intp],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:  # fmt: skip
    """Sources, targets and shape rows of all edges: of the graph, in and into replacements, from removed nodes."""
    graph = choices.graph
    inner_start, boundary_start, head = (np.repeat(starts, choices.counts[:, column]) for column in (1, 2, 3))
    outside = graph.producer_at[boundary[:, 0]]
    produced = outside >= 0
    sources = (graph.edges[0], inner[:, 0] + inner_start, outside[produced], graph.node_at[removed[:, 0]])
    targets = (graph.edges[1], inner[:, 1] + inner_start, (boundary[:, 1] + boundary_start)[produced], head)
    shapes = (graph.edges[2], inner[:, 2], boundary[produced, 2], removed[:, 1])
    return np.concatenate(sources), np.concatenate(targets), np.concatenate(shapes)


def _candidate_features(choices: Choices, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    marks, count = choices.footprints, len(choices.footprints)
    kinds = np.full(count, _KIND_COLUMNS["site"], dtype=np.intp)
    kinds[: len(choices.candidates.head)] = [_KIND_COLUMNS[candidate.kind] for candidate in choices.candidates.head]
    change = _joined([mark.change for mark in marks], 4)
    work = NODES.work[choices.graph.rows].sum(axis=0)
    features = np.zeros((len(mask), len(CANDIDATE_FEATURES)), dtype=np.float32)
    features[:count, 0] = np.log2(choices.sites) / 8
    features[np.arange(count), kinds] = 1.0
    features[:count, 5] = change[:, 3] / 16
    features[:count, 6] = change[:, 2] / 16
    features[:count, 7:9] = np.clip(change[:, :2] * choices.sites[:, None] / np.maximum(work, 1.0), -1.0, 1.0)
    features[-1, 4] = 1.0
    features[:, 9] = mask
    return features


@dataclass(frozen=True, slots=True)
class MetaGraphObserver:
    """Observes episodes as meta-graphs within limits."""

    limits: ObservationLimits = field(default_factory=ObservationLimits)
    full_meta_graph: bool = False
    """Observe each candidate's whole graph, as the paper does. Needs large limits and much time."""
    features: FeatureSet = "plain"
    """What is observed: `plain`, or `full` with entries of its own (`envs.feature_sets`)."""

    def __post_init__(self) -> None:
        if self.features not in get_args(FeatureSet):
            raise UserError(f"features must be one of {', '.join(get_args(FeatureSet))}, got {self.features!r}")

    def space(self) -> spaces.Dict:
        """The observation space."""
        return observation_space(self.limits, self.features)

    def choose(self, graph: Graph, candidates: Candidates) -> Choices:
        """`choose` within the limits."""
        kinds = KINDS if self.features == "plain" else ALL_KINDS
        return choose(graph, candidates, self.limits, self.full_meta_graph, kinds)

    def observe(self, choices: Choices, mask: NDArray[np.bool_], global_features: Sequence[float]) -> Observation:
        """`observe`, padded to the limits: the entries of the set `plain`."""
        return observe(choices, mask, global_features, self.limits)


def _joined(arrays: Sequence[NDArray[Any]], columns: int) -> NDArray[Any]:
    """Flat arrays, one after another, as rows of a matrix."""
    return np.concatenate(arrays).reshape(-1, columns) if arrays else np.zeros((0, columns), dtype=np.intp)


def _flat(rows: Iterable[Iterable[int]]) -> NDArray[np.intp]:
    return np.fromiter(chain.from_iterable(rows), np.intp)


def _lengths(rows: Sequence[Sequence[int]]) -> NDArray[np.intp]:
    return np.fromiter(map(len, rows), np.intp, len(rows))


def _padded(data: NDArray[Any], length: int, fill: int = 0) -> NDArray[Any]:
    padded = np.full((length, *data.shape[1:]), fill, dtype=data.dtype)
    padded[: len(data)] = data
    return padded
