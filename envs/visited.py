"""Which candidates lead back to a graph that was visited already."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from envs.features import NODES, node_records
from envs.footprint import Footprint, apply_once, site_footprint
from graph_rewrite.candidates import Candidate
from graph_rewrite.ir import Graph

_MODULUS = 2**64


class VisitedGraphs:
    """Graphs seen in an episode, told apart by `Graph.hash`.

    Hashing what each of hundreds of candidates leads to would take longer than all the rest of a step. So every graph
    has a fingerprint as well, the sum of a 64-bit digest per node, which a candidate's footprint changes by a known
    amount. Only where that gives the fingerprint of a visited graph is the candidate applied and its result hashed.
    """

    def __init__(self) -> None:
        self._fingerprints: dict[str, int] = {}

    def add(self, graph: Graph) -> None:
        """Remember a graph."""
        self._fingerprints[graph.hash] = fingerprint(graph)

    def copy(self) -> VisitedGraphs:
        """An independent copy."""
        other = VisitedGraphs()
        other._fingerprints.update(self._fingerprints)
        return other

    def lead_back(
        self, graph: Graph, candidates: Sequence[Candidate], footprints: Sequence[Footprint]
    ) -> NDArray[np.bool_]:
        """Per candidate of `graph`, whether it leads to a graph that was added."""
        now = fingerprint(graph)
        changes = {(known - now) % _MODULUS for known in self._fingerprints.values()}
        refused = _refused(graph.disabled_optimizers)
        found = np.zeros(len(candidates), dtype=np.bool_)
        for k, (candidate, footprint) in enumerate(zip(candidates, footprints, strict=True)):
            if candidate.kind == "site":
                suspect = footprint.digest in changes
            elif candidate.kind == "class":
                suspect = _any_part(candidate, footprint, changes)
            else:
                suspect = (_refused(candidate.disabled_optimizers) - refused) % _MODULUS in changes
            found[k] = suspect and self._leads_back(candidate)
        return found

    def _leads_back(self, candidate: Candidate) -> bool:
        try:
            return apply_once(candidate).hash in self._fingerprints
        except ValueError:  # no valid graph: as little use as one that was visited
            return True


def fingerprint(graph: Graph) -> int:
    """Sum of the digests of all nodes and of the refused optimisers, modulo 2**64; valid in this process only."""
    rows = np.fromiter((record[0] for record in node_records(graph).values()), np.intp)
    return (int(NODES.digests[rows].sum()) + _refused(graph.disabled_optimizers)) % _MODULUS


def _refused(names: frozenset[str]) -> int:
    return hash(names) % _MODULUS


def _any_part(candidate: Candidate, footprint: Footprint, changes: set[int]) -> bool:
    """Whether some number of the class's sites makes one of the changes: those that overlap are left out."""
    if any(site_footprint(site).digest != footprint.digest for site in candidate.sites):
        return True
    return any(footprint.digest * count % _MODULUS in changes for count in range(1, candidate.count + 1))
