"""What one rewrite changes, written down once per site and valid in every graph that the site occurs in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from envs.features import NODES, SHAPES, node_record, node_records
from graph_rewrite.candidates import Candidate, Site
from graph_rewrite.ir import Graph

Edges = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Sources, targets, shape rows."""


class Footprint(NamedTuple):
    """A candidate's part of the meta-graph, in local numbers: 0 is its head, then come the inserted nodes.

    Values and nodes of the graph are referred to by their ids, which stay the same while a site exists.
    """

    rows: tuple[int, ...]
    """Node rows: the head's, then those of the inserted nodes."""
    inner: Edges = ((), (), ())
    """Edges between inserted nodes, and from each of them to the head."""
    boundary: Edges = ((), (), ())
    """Edges into the region; sources are value ids."""
    removed: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    """Ids of removed nodes, and a shape row each."""
    digest: int = 0
    """Sum of the inserted nodes' digests minus that of the removed ones, modulo 2**64."""
    flops: float = 0.0
    """Floating-point operations inserted minus removed."""
    moved: float = 0.0
    """Bytes read and written by inserted nodes minus those of removed ones."""


NOTHING = Footprint((NODES.head,))
"""Of a candidate that leaves the nodes as they are."""


def footprint(candidate: Candidate) -> Footprint:
    """The footprint of a candidate's representative site."""
    return site_footprint(candidate.sites[0]) if candidate.sites else NOTHING


def site_footprint(site: Site) -> Footprint:
    """The footprint of a site; computed once."""
    found: Footprint | None = site.memo.get("footprint")
    if found is None:
        found = site.memo["footprint"] = _site_footprint(site)
    return found


def graph_footprint(graph: Graph) -> Footprint:
    """A whole graph under a head, as X-RLflow's meta-graph holds each candidate (section 3.3.2)."""
    order, records = graph.order(), node_records(graph)
    local = {value: i for i, node in enumerate(order, start=1) for value in node.outputs}
    inner = _EdgeList()
    for i, node in enumerate(order, start=1):
        _, values, shape_rows = records[node.id]
        for value, shape in zip(values, shape_rows, strict=True):
            if value in local:
                inner.add(local[value], i, shape)
        inner.add(i, 0, SHAPES.row(graph.types.get(node.outputs[0])))
    return Footprint((NODES.head, *(records[node.id][0] for node in order)), inner.edges())


def apply_once(candidate: Candidate) -> Graph:
    """The graph that a candidate leads to, not kept by the candidate.

    Candidates of a model's first graph live as long as the model is open; if they kept their results, those of all
    episodes would pile up behind them.
    """
    copy = Candidate(candidate.kind, candidate.graph, candidate.sites, candidate.disabled_optimizers, candidate.label)
    return copy.apply()


def _site_footprint(site: Site) -> Footprint:
    rows, inner, boundary = [NODES.head], _EdgeList(), _EdgeList()
    for i, node in enumerate(site.region.nodes, start=1):
        inputs = tuple(None if ref is None else (ref.type, ref.is_const) for ref in node.inputs)
        rows.append(NODES.row(node, inputs, node.types))
        for ref in node.inputs:
            if ref is None or ref.is_const:
                continue
            if ref.external is not None:
                boundary.add(ref.external, i, SHAPES.row(ref.type))
            else:
                inner.add(ref.node + 1, i, SHAPES.row(ref.type))
        inner.add(i, 0, SHAPES.row(node.types[0]))
    types = site.match.graph.types
    removed = [node_record(site.match.graph, node)[0] for node in site.removed]
    shapes = tuple(SHAPES.row(types.get(node.outputs[0])) for node in site.removed)
    flops, moved = NODES.work[rows].sum(axis=0) - NODES.work[removed].sum(axis=0)
    digest = int(NODES.digests[rows].sum()) - int(NODES.digests[removed].sum())
    return Footprint(
        tuple(rows), inner.edges(), boundary.edges(), (tuple(node.id for node in site.removed), shapes),
        digest & (2**64 - 1), float(flops), float(moved),
    )  # fmt: skip


class _EdgeList:
    def __init__(self) -> None:
        self._columns: Sequence[list[int]] = ([], [], [])

    def add(self, source: int, target: int, shape: int) -> None:
        for column, number in zip(self._columns, (source, target, shape), strict=True):
            column.append(number)

    def edges(self) -> Edges:
        sources, targets, shapes = self._columns
        return tuple(sources), tuple(targets), tuple(shapes)
