"""Detection of candidates that lead back to a graph that was visited already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from envs.features import DIGEST_MODULUS, NODES, node_records
from envs.graph_rewrite.footprint import Footprint
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import application_hash
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.sites import Site


class _Visited(NamedTuple):
    graph: Graph
    fingerprint: int
    values: NDArray[np.int64]
    """Python hashes of the digests of all values."""


class VisitedGraphs:
    """Graphs seen in an episode, told apart by `Graph.hash`.

    Applying hundreds of candidates and hashing what they lead to would take longer than all the rest of a step. So two
    cheap necessary conditions come first. The fingerprint of a graph is the sum of a 64-bit digest per node, which a
    rewrite changes by an amount known from its footprint: the sum must be that of a visited graph. And the digest that
    a rewrite gives to the value it replaces must occur in that graph. What passes is applied and hashed.
    """

    def __init__(self) -> None:
        self._graphs: dict[str, _Visited] = {}

    def add(self, graph: Graph) -> None:
        """Remember a graph."""
        values = np.fromiter(map(hash, graph.value_hashes().values()), np.int64)
        self._graphs[graph.hash] = _Visited(graph, fingerprint(graph), values)

    def copy(self) -> VisitedGraphs:
        """An independent copy."""
        other = VisitedGraphs()
        other._graphs.update(self._graphs)
        return other

    def lead_back(self, graph: Graph, candidates: Candidates, footprints: Sequence[Footprint]) -> NDArray[np.bool_]:
        """Per candidate of `graph`, whether it leads to a graph that was added, or to no valid graph at all."""
        by_change: dict[int, list[_Visited]] = {}
        now = fingerprint(graph)
        for visited in self._graphs.values():
            by_change.setdefault((visited.fingerprint - now) % DIGEST_MODULUS, []).append(visited)
        found = np.zeros(len(candidates), dtype=np.bool_)
        sites_from = len(candidates.head)
        for k, footprint in enumerate(footprints):
            if k >= sites_from and footprint.digest not in by_change:
                continue
            candidate = candidates[k]
            suspects = [v for change in _changes(candidate, footprint) for v in by_change.get(change, ())]
            near = _one_it_may_give(suspects, candidate, graph)
            if near is not None:
                found[k] = self._leads_back(candidate, near)
        return found

    def _leads_back(self, candidate: Candidate, near: Graph) -> bool:
        try:
            after = candidate.apply()
        except InvalidRewriteError:  # no valid graph: as little use as one that was visited
            return True
        after.value_hashes(near)
        return after.hash in self._graphs


def fingerprint(graph: Graph) -> int:
    """Sum of the digests of all nodes and of the refused optimisers, modulo 2**64; valid in this process only."""
    rows = np.fromiter((record[0] for record in node_records(graph).values()), np.intp)
    return (int(NODES.digests[rows].sum()) + hash(graph.disabled_optimizers)) % DIGEST_MODULUS


def _changes(candidate: Candidate, footprint: Footprint) -> Sequence[int]:
    """Return the changes of the fingerprint that the candidate may make."""
    if candidate.kind == "site":
        return (footprint.digest,)
    if candidate.kind == "deployment":
        return ((hash(candidate.disabled_optimizers) - hash(candidate.graph.disabled_optimizers)) % DIGEST_MODULUS,)
    # Each site of a class adds the same. Those that overlap with an earlier one are left out, so their number is not
    # known before.
    return [footprint.digest * number % DIGEST_MODULUS for number in range(1, candidate.count + 1)]


def _one_it_may_give(suspects: Sequence[_Visited], candidate: Candidate, graph: Graph) -> Graph | None:
    """The first of these graphs in which the values that the first site replaces have their new digests."""
    if not suspects:
        return None
    if not candidate.sites or not _starts_undisturbed(candidate):
        return suspects[0].graph
    roots = {hash(digest) for digest in _new_root_hashes(candidate.sites[0], graph.value_hashes())}
    return next((v.graph for v in suspects if all((v.values == root).any() for root in roots)), None)


def _starts_undisturbed(candidate: Candidate) -> bool:
    """Return whether what the first site reads is the same before and after the candidate's other sites are applied.

    Sites come in topological order, so it is when the site replaces one value and reads only what lies above it.
    """
    match = candidate.sites[0].match
    if candidate.count == 1:
        return True
    above = {value for node in match.nodes for value in node.inputs}
    return len(match.root_values) == 1 and candidate.sites[0].replacement.externals() <= above


def _new_root_hashes(site: Site, values: Mapping[int, str]) -> list[str]:
    """The digests that the replaced values have after a rewrite of this site alone."""
    made: list[str] = []

    def of(ref: Ref | None) -> str:
        if ref is None:
            return "-"
        if ref.external is not None:
            return values[ref.external]
        return ref.constant.digest if ref.constant is not None else f"{made[ref.node]}:{ref.index}"

    for node in site.replacement.nodes:
        made.append(application_hash(node.signature, len(node.types), map(of, node.inputs)))
    return [of(output) for output in site.replacement.outputs]
