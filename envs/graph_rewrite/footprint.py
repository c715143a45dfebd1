"""Footprints: the changes that one rewrite makes, computed once per site and valid in every graph that has the site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.features import DIGEST_MODULUS, NODES, SHAPES, node_records, node_row
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site

LISTS = {"rows": 1, "inner": 3, "boundary": 3, "removed": 2}
"""The lists of a footprint, each with the number of integers of an entry.

rows: node rows, the head's, then those of the inserted nodes; inner: (source, target, shape row) of edges between
inserted nodes, and from each of them to the head; boundary: (value id, target, shape row) of edges into the
replacement; removed: (node id, shape row) of removed nodes.
"""


class Footprint(NamedTuple):
    """A candidate's share of the meta-graph, in local numbers: 0 is its head, then come the inserted nodes.

    Values and nodes of the graph are referred to by their ids, which stay the same while a site exists. Edges are
    written flat, source, target and shape row one after another: arrays of one dimension are cheap to join.
    """

    numbers: NDArray[np.intp]
    """`LISTS` one after another."""
    counts: NDArray[np.intp]
    """The number of entries of each list."""
    change: NDArray[np.float64]
    """Floating-point operations, and bytes read and written, by inserted nodes minus those by removed ones; inserted
    nodes; removed nodes."""
    digest: int = 0
    """Sum of the inserted nodes' digests minus that of the removed ones, modulo 2**64."""
    inserted: int = 0
    """Nodes that the rewrite inserts: more than there are rows where a large replacement is shown by a summary."""
    grown: int = 0
    """The same less the nodes that it removes."""
    wired: int = 0
    """Edges that the rewrite adds: into the replacement and inside it, and one for each inserted node."""
    added_s: float = 0.0
    """Estimated seconds of the nodes that the rewrite inserts (`envs.features.NOMINAL`)."""
    removed_s: float = 0.0
    """The same of those that it removes."""
    repeats: tuple[int, ...] = ()
    """Number of equal nodes that each of `rows` stands for; empty where each stands for one."""

    def row_repeats(self) -> NDArray[np.intp]:
        """Number of nodes that each of `rows` stands for."""
        return np.array(self.repeats or (1,) * int(self.counts[0]), dtype=np.intp)

    def entries(self, name: str) -> NDArray[np.intp]:
        """One of `LISTS`, a row for each entry."""
        ends = np.cumsum(self.counts * WIDTHS)
        position = list(LISTS).index(name)
        return self.numbers[ends[position] - self.counts[position] * WIDTHS[position] : ends[position]].reshape(
            -1, WIDTHS[position]
        )


WIDTHS = np.array(list(LISTS.values()))
SUMMARISED = 64
"""Inserted nodes above which a replacement is shown by a summary. Winograd's algorithm in tiles of 4x4 inserts
hundreds, so that a few of its candidates would fill an observation."""
KINDS = 32
"""Most rows of a summary."""
ALL_KINDS = 128
"""The same with the feature set `full`."""


def _written(
    rows: Sequence[int], inner: Sequence[int], boundary: Sequence[int] = (), removed: Sequence[int] = (),
    work: tuple[float, float] = (0.0, 0.0), inserted: int = 0, digest: int = 0, wired: int = 0,
) -> Footprint:  # fmt: skip
    numbers = np.array([*rows, *inner, *boundary, *removed], dtype=np.intp)
    counts = np.array([len(rows), len(inner) // 3, len(boundary) // 3, len(removed) // 2], dtype=np.intp)
    gone = len(removed) // 2
    return Footprint(numbers, counts, np.array([*work, inserted, gone]), digest, inserted, inserted - gone, wired)


NOTHING = _written((NODES.head,), ())
"""The footprint of a candidate that leaves the nodes as they are."""


def footprint(candidate: Candidate, kinds: int = KINDS) -> Footprint:
    """The footprint of a candidate's representative site, a summary with at most so many `kinds` of nodes."""
    return site_footprint(candidate.sites[0], kinds) if candidate.sites else NOTHING


def site_footprint(site: Site, kinds: int = KINDS) -> Footprint:
    """The footprint of a site; computed once."""
    name = "footprint" if kinds == KINDS else f"footprint of {kinds} kinds"
    found: Footprint | None = site.memo.get(name)
    if found is None:
        found = site.memo[name] = _site_footprint(site, kinds)
    return found


def graph_footprint(graph: Graph) -> Footprint:
    """A whole graph under a head, as X-RLflow's meta-graph holds each candidate (section 3.3.2)."""
    order, records = graph.order(), node_records(graph)
    local = {value: i for i, node in enumerate(order, start=1) for value in node.outputs}
    inner: list[int] = []
    for i, node in enumerate(order, start=1):
        _, values, shape_rows = records[node.id]
        for value, shape in zip(values, shape_rows, strict=True):
            if value in local:
                inner += (local[value], i, shape)
        inner += (i, 0, SHAPES.row(graph.types.get(node.outputs[0])))
    return _written([NODES.head, *(records[node.id][0] for node in order)], inner, inserted=len(order))


def _site_footprint(site: Site, kinds: int) -> Footprint:
    rows = [NODES.head]
    inner: list[int] = []
    boundary: list[int] = []
    removed: list[int] = []
    for i, node in enumerate(site.replacement.nodes, start=1):
        inputs = tuple(None if ref is None else (ref.type, ref.is_const) for ref in node.inputs)
        rows.append(NODES.row(node, inputs, node.types, node.rewritten is not None))
        for ref in node.inputs:
            if ref is None or ref.is_const:
                continue
            if ref.external is not None:
                boundary += (ref.external, i, SHAPES.row(ref.type))
            else:
                inner += (ref.node + 1, i, SHAPES.row(ref.type))
        inner += (i, 0, SHAPES.row(node.types[0]))
    for matched in site.removed:
        removed += (matched.id, SHAPES.row(site.types[matched.outputs[0]]))
    gone = [node_row(matched, site.types, site.constants) for matched in site.removed]
    added, taken = NODES.totals(rows), NODES.totals(gone)
    inserted, wired = len(rows) - 1, (len(inner) + len(boundary)) // 3
    seconds = float(NODES.seconds[rows].sum()), float(NODES.seconds[gone].sum())
    repeats: tuple[int, ...] = ()
    if inserted > SUMMARISED:
        rows, inner, boundary, repeats = _summary(rows, inner, boundary, kinds)
    work, digest = (added[0] - taken[0], added[1] - taken[1]), (added[2] - taken[2]) % DIGEST_MODULUS
    written = _written(rows, inner, boundary, removed, work, inserted, digest, wired)
    return written._replace(added_s=seconds[0], removed_s=seconds[1], repeats=repeats)


def _summary(
    rows: list[int], inner: list[int], boundary: list[int], kinds: int
) -> tuple[list[int], list[int], list[int], tuple[int, ...]]:
    """Summarise a replacement by its kinds of nodes, in the order in which they first occur.

    Equal rows (the same operator with the same features) become one, and equal edges one edge; of more than `kinds`
    the most frequent stay. Also returns the number of nodes that each row stands for.
    """
    frequency = Counter(rows[1:])
    position = {row: i for i, row in enumerate(frequency)}
    kept = sorted(sorted(position, key=lambda row: (-frequency[row], position[row]))[:kinds], key=position.__getitem__)
    number = {row: i for i, row in enumerate(kept, start=1)}
    local = [0, *(number.get(row, -1) for row in rows[1:])]
    edges = dict.fromkeys((local[s], local[t], shape) for s, t, shape in zip(*[iter(inner)] * 3, strict=True))
    inside = [edge for edge in edges if -1 not in edge[:2] and edge[0] != edge[1]]
    entering = dict.fromkeys((value, local[t], shape) for value, t, shape in zip(*[iter(boundary)] * 3, strict=True))
    entered = [edge for edge in entering if edge[1] != -1]
    repeats = (1, *(frequency[row] for row in kept))
    return [rows[0], *kept], [n for edge in inside for n in edge], [n for edge in entered for n in edge], repeats
