"""Fingerprints: numbers that are equal for e-graphs of the same contents, whatever rules built them in what order."""

from __future__ import annotations

from graph_rewrite.egraph.structure.arrays import topological_ranks
from graph_rewrite.egraph.structure.classes import ABSENT
from graph_rewrite.egraph.structure.egraph import EGraph

_MODULUS = (1 << 61) - 1


def fingerprint(egraph: EGraph) -> int:
    """A 61-bit hash of all classes and e-nodes, for use within one process and between forks of one e-graph.

    A class's hash is made from those of its members, and a member's from its operator and the classes that it reads, so
    neither the numbers of e-nodes nor the order of unions counts. E-nodes on or above a cycle count by operator alone,
    which makes collisions there more likely; e-graphs kept by `cycles="filter"` have none.
    """
    ranks = egraph.ranks if egraph.ranks is not None else topological_ranks(egraph)
    hashes: dict[int, int] = {ABSENT: 1}
    order = sorted(egraph.classes(), key=lambda cls: ranks[cls])
    for cls in order:
        if cls in egraph.constants:
            hashes[cls] = hash(("constant", egraph.constants[cls].digest)) % _MODULUS
            continue
        total = 0
        for node in egraph.members(cls):
            operator = egraph.operator(node)
            args = [hashes.get(arg, 2) for arg in egraph.args(node)]
            if operator.commutative:
                args.sort()
            total += hash((egraph.node_op[node], *args))
        hashes[cls] = hash((total % _MODULUS, len(egraph.members(cls)))) % _MODULUS
    roots = tuple(hashes.get(cls, 2) for cls in egraph.canonical_roots())
    return hash((roots, sum(hashes.values()) % _MODULUS)) % _MODULUS
