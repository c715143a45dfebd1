"""An e-graph as the observation of `GraphRewrite-v0`, so that the same encoder reads both.

Nodes are the live e-nodes that are applications, oldest first; an edge runs from every member of a class to every
e-node that reads the class. Each legal rule has a head node, with edges from the e-nodes of its first pattern's
operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from envs.features import EDGE_FEATURES, NODE_FEATURES, NODES, SHAPES
from envs.observation import CANDIDATE_FEATURES, Observation, ObservationLimits
from envs.vocabulary import NO_OP, PADDING
from graph_rewrite.egraph import EGraph
from graph_rewrite.egraph.matching import root_nodes
from graph_rewrite.egraph.structure import LIVE
from graph_rewrite.rewriting.replacement import ReplacementNode
from graph_rewrite.rewriting.rule import Rule


def observe_egraph(
    egraph: EGraph,
    rules: Sequence[Rule],
    rule_numbers: Sequence[int],
    mask: NDArray[np.bool_],
    global_features: Sequence[float],
    limits: ObservationLimits,
) -> Observation:
    """The padded observation; e-nodes and edges that do not fit are left out, the newest first.

    Args:
        rules: what the actions apply, in order.
        rule_numbers: of each rule in the rule vocabulary.
        mask: bool [max_candidates + 1], the No-Op last.
    """
    legal = np.flatnonzero(mask[: len(rules)])[: max(0, limits.max_nodes - 1)]
    shown = applications(egraph)[: limits.max_nodes - len(legal)]
    position = {node: number for number, node in enumerate(shown)}
    rows = [_row(egraph, node) for node in shown]
    edges = list(_edges(egraph, shown, position))
    for head, k in enumerate(legal, start=len(shown)):
        rows.append(NODES.head)
        first = root_nodes(rules[k].pattern)[0]
        readers = (node for op in sorted(first.operators) for node in egraph.with_operator(op, first.domain))
        edges.extend((position[node], head, SHAPES.row(None)) for node in readers if node in position)
    edges = edges[: limits.max_edges]
    owner = np.full(limits.max_nodes, -1, dtype=np.int32)
    owner[: len(shown)] = 0
    owner[len(shown) : len(rows)] = legal + 1
    operators = np.zeros(limits.max_nodes, dtype=np.int32)
    features = np.zeros((limits.max_nodes, len(NODE_FEATURES)), dtype=np.float32)
    operators[: len(rows)], features[: len(rows)] = NODES.operators[rows], NODES.features[rows]
    index = np.zeros((2, limits.max_edges), dtype=np.int32)
    shapes = np.zeros((limits.max_edges, EDGE_FEATURES), dtype=np.float32)
    if edges:
        columns = np.array(edges, dtype=np.intp)
        index[:, : len(edges)] = columns[:, :2].T
        shapes[: len(edges)] = SHAPES.rows[columns[:, 2]]
    numbers = [*rule_numbers, *[PADDING] * (limits.max_candidates - len(rules)), NO_OP]
    return {
        "node_op": operators,
        "node_features": features,
        "node_candidate": owner,
        "edge_index": index,
        "edge_shape": shapes,
        "candidate_rule": np.array(numbers, dtype=np.int32),
        "candidate_features": _candidate_features(len(rules), mask),
        "globals": np.array(global_features, dtype=np.float32),
        "sizes": np.array([len(rows), len(edges), len(rules)], dtype=np.int32),
    }


def _candidate_features(rules: int, mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Columns `CANDIDATE_FEATURES`: a rule is a class of sites."""
    features = np.zeros((len(mask), len(CANDIDATE_FEATURES)), dtype=np.float32)
    features[:rules, CANDIDATE_FEATURES.index("class")] = 1.0
    features[-1, CANDIDATE_FEATURES.index("no_op")] = 1.0
    features[:, CANDIDATE_FEATURES.index("legal")] = mask
    return features


def applications(egraph: EGraph) -> list[int]:
    """Live e-nodes that apply an operator, oldest first."""
    return [
        node
        for node, state in enumerate(egraph.node_state)
        if state == LIVE and egraph.operator(node).kind == "operator"
    ]


def _row(egraph: EGraph, node: int) -> int:
    operator = egraph.operator(node)
    types = tuple(egraph.type_of(cls) for cls in egraph.outputs_of(node))
    inputs = tuple(
        None if arg < 0 else (egraph.type_of(arg), arg in egraph.constants) for arg in egraph.args(node)
    )  # fmt: skip
    application = ReplacementNode(operator.op, operator.domain, dict(operator.attrs), (), (), operator.signature)
    return NODES.row(application, inputs, types, operator.opaque)


def _edges(egraph: EGraph, shown: Sequence[int], position: dict[int, int]) -> Iterator[tuple[int, int, int]]:
    producers: dict[int, list[int]] = {}
    for reader in shown:
        for arg in egraph.args(reader):
            if arg < 0 or arg in egraph.constants:
                continue
            if arg not in producers:
                producers[arg] = [position[node] for node in _producers(egraph, arg) if node in position]
            shape = SHAPES.row(egraph.type_of(arg))
            for producer in producers[arg]:
                yield producer, position[reader], shape


def _producers(egraph: EGraph, cls: int) -> Iterator[int]:
    """Applications that compute a class, also through one of several outputs."""
    for node in egraph.members(cls):
        kind = egraph.operator(node).kind
        if kind == "operator":
            yield node
        elif kind == "output":
            yield from (below for below in egraph.members(egraph.args(node)[0]))
