"""Extraction with shared costs as machine code; see `structure.kernels`. Import it where it is used."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.egraph.structure.kernels import Ints, compiled

Floats = NDArray[np.float64]
NONE = -1


@compiled
def shared_choice(
    classes: Ints,
    first: Ints,
    args: Ints,
    state: NDArray[np.uint8],
    order: Ints,
    alone: Floats,
    roots: Ints,
) -> tuple[Ints, float]:
    """Return the member that each class takes (`NONE` without one), and the cost of the roots' choice, an e-node once.

    Class by class in topological order: the member that costs least together with all that its operands have chosen,
    the oldest of several. `alone` is what e-nodes cost themselves; negative for those not to be chosen.
    """
    count = len(classes)
    start, members = _members_by_class(classes, state, alone)
    position = np.full(count, NONE, np.int32)
    for i in range(len(order)):
        position[order[i]] = i
    words = (len(order) + 63) // 64
    needs = np.zeros((len(order) + 1, words), np.uint64)
    union, kept = np.empty(words, np.uint64), np.empty(words, np.uint64)
    weights = np.zeros(words * 64)
    costs = np.full(count, np.inf)
    best = np.full(count, NONE, np.int32)
    bits = 0
    for i in range(len(order)):
        cls = order[i]
        for k in range(start[cls], start[cls + 1]):
            node = members[k]
            # A function for the rest of this loop would double the time: its arrays are counted at every call.
            dearest = NONE
            for j in range(first[node], first[node + 1]):
                if dearest == NONE or costs[args[j]] > costs[dearest]:
                    dearest = args[j]
            total = alone[node]
            if dearest != NONE:
                total += costs[dearest]
            if not total < costs[cls]:
                continue
            if dearest == NONE:
                union[:] = 0
            else:
                union[:] = needs[position[dearest]]
                for j in range(first[node], first[node + 1]):
                    if args[j] != dearest:
                        total += _add(union, needs[position[args[j]]], weights)
            if total < costs[cls]:
                costs[cls], best[cls] = total, node
                kept[:] = union
        if best[cls] != NONE:
            needs[i] = kept
            if alone[best[cls]] > 0.0:
                weights[bits] = alone[best[cls]]
                needs[i, bits // 64] |= np.uint64(1) << np.uint64(bits % 64)
                bits += 1
    return best, _cost_of_roots(roots, best, needs, position, weights, union)


@compiled
def _members_by_class(classes: Ints, state: NDArray[np.uint8], alone: Floats) -> tuple[Ints, Ints]:
    """The e-nodes that can be chosen, class by class: those of class c are `members[start[c]:start[c + 1]]`."""
    count = len(classes)
    start = np.zeros(count + 1, np.int32)
    for node in range(count):
        if state[node] == 1 and alone[node] >= 0.0:
            start[classes[node] + 1] += 1
    for cls in range(count):
        start[cls + 1] += start[cls]
    members = np.empty(start[count], np.int32)
    filled = start[:count].copy()
    for node in range(count):
        if state[node] == 1 and alone[node] >= 0.0:
            members[filled[classes[node]]] = node
            filled[classes[node]] += 1
    return start, members


@compiled
def _cost_of_roots(
    roots: Ints, best: Ints, needs: NDArray[np.uint64], position: Ints, weights: Floats, union: NDArray[np.uint64]
) -> float:
    """The cost of all that the roots have chosen, each e-node once; infinite where a root has no choice."""
    union[:] = 0
    total = 0.0
    for i in range(len(roots)):
        if best[roots[i]] == NONE:
            return np.inf
        total += _add(union, needs[position[roots[i]]], weights)
    return total


@compiled
def _add(union: NDArray[np.uint64], more: NDArray[np.uint64], weights: Floats) -> float:
    """Add a set of bits to another; return the weight of the new ones."""
    total = 0.0
    for word in range(len(union)):
        added = more[word] & ~union[word]
        if added:
            union[word] |= added
            for bit in range(64):
                if added & (np.uint64(1) << np.uint64(bit)):
                    total += weights[64 * word + bit]
    return total
