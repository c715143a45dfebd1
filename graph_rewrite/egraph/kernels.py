"""Passes over a whole e-graph as machine code: what a tree search repeats after every application.

Compiled by numba at the first call and kept on disk; numba takes half a second to import, so import this module where
it is used. All e-graphs come as flat arrays (`Arrays`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from graph_rewrite.egraph.core import EGraph

F = TypeVar("F", bound=Callable[..., Any])
Ints = NDArray[np.int32]
Floats = NDArray[np.float64]
NONE = -1


def _compiled(function: F) -> F:
    return cast(F, numba.njit(cache=True)(function))


class Arrays(NamedTuple):
    """An e-graph: node n lies in class `classes[n]` and reads `args[first[n]:first[n + 1]]`, each class once and
    absent operands left out; only nodes with `state[n] == 1` count."""

    classes: Ints
    first: Ints
    args: Ints
    state: NDArray[np.uint8]


def arrays_of(egraph: EGraph) -> tuple[Arrays, Ints]:
    """The arrays of a rebuilt e-graph, and its classes in topological order; kept until it changes."""
    version = (len(egraph.log), egraph.filtered, egraph.size)
    if egraph.flat is not None and egraph.flat[0] == version:
        return cast("tuple[Arrays, Ints]", egraph.flat[1:])
    nodes = egraph.node_args
    lengths = np.fromiter(map(len, nodes), np.int32, len(nodes))
    flat = np.fromiter(chain.from_iterable(nodes), np.int32, int(lengths.sum()))
    state = np.frombuffer(bytes(egraph.node_state), np.uint8)
    arrays = Arrays(*_canonical(np.array(egraph.leaders(), np.int32), lengths, flat), state)
    order = topological_order(*arrays)
    egraph.flat = (version, arrays, order)
    return arrays, order


@_compiled
def _canonical(leader: Ints, lengths: Ints, flat: Ints) -> tuple[Ints, Ints, Ints]:
    count = len(leader)
    classes = np.empty(count, np.int32)
    for node in range(count):
        cls = leader[node]
        while leader[cls] != cls:
            cls = leader[cls]
        classes[node] = cls
    first = np.zeros(count + 1, np.int32)
    args = np.empty(len(flat), np.int32)
    place, kept = 0, 0
    for node in range(count):
        for i in range(place, place + lengths[node]):
            if flat[i] < 0:
                continue
            cls, new = classes[flat[i]], True
            for j in range(first[node], kept):
                new = new and args[j] != cls
            if new:
                args[kept] = cls
                kept += 1
        place += lengths[node]
        first[node + 1] = kept
    return classes, first, args[:kept]


@_compiled
def topological_order(classes: Ints, first: Ints, args: Ints, state: NDArray[np.uint8]) -> Ints:
    """Classes such that all members of each read earlier ones; those on or above a cycle are left out."""
    count = len(classes)
    waiting = np.zeros(count, np.int32)  # by class: members with operands that are not in order yet
    alive = np.zeros(count, np.uint8)
    missing = np.zeros(count, np.int32)  # by e-node
    start = np.zeros(count + 1, np.int32)
    for node in range(count):
        if state[node] == 1:
            alive[classes[node]] = 1
            missing[node] = first[node + 1] - first[node]
            if missing[node]:
                waiting[classes[node]] += 1
            for i in range(first[node], first[node + 1]):
                start[args[i] + 1] += 1
    for cls in range(count):
        start[cls + 1] += start[cls]
    readers = np.empty(start[count], np.int32)
    filled = start[:count].copy()
    for node in range(count):
        if state[node] == 1:
            for i in range(first[node], first[node + 1]):
                readers[filled[args[i]]] = node
                filled[args[i]] += 1
    order = np.empty(count, np.int32)
    end = 0
    for cls in range(count):
        if alive[cls] and not waiting[cls]:
            order[end] = cls
            end += 1
    at = 0
    while at < end:
        for i in range(start[order[at]], start[order[at] + 1]):
            node = readers[i]
            missing[node] -= 1
            if missing[node] == 0:
                cls = classes[node]
                waiting[cls] -= 1
                if waiting[cls] == 0:
                    order[end] = cls
                    end += 1
        at += 1
    return order[:end]


@_compiled
def shared_choice(
    classes: Ints,
    first: Ints,
    args: Ints,
    state: NDArray[np.uint8],
    order: Ints,
    alone: Floats,
    roots: Ints,
) -> tuple[Ints, float]:
    """The member that each class takes (`NONE` without one), and what the roots' choice costs, each e-node once.

    Class by class in topological order: the member that costs least together with all that its operands have chosen,
    the oldest of several. `alone` is what e-nodes cost themselves; negative for those not to be chosen.
    """
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
    place = np.full(count, NONE, np.int32)
    for i in range(len(order)):
        place[order[i]] = i
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
                union[:] = needs[place[dearest]]
                for j in range(first[node], first[node + 1]):
                    if args[j] != dearest:
                        total += _add(union, needs[place[args[j]]], weights)
            if total < costs[cls]:
                costs[cls], best[cls] = total, node
                kept[:] = union
        if best[cls] != NONE:
            needs[i] = kept
            if alone[best[cls]] > 0.0:
                weights[bits] = alone[best[cls]]
                needs[i, bits // 64] |= np.uint64(1) << np.uint64(bits % 64)
                bits += 1
    union[:] = 0
    total = 0.0
    for i in range(len(roots)):
        if best[roots[i]] == NONE:
            return best, np.inf
        total += _add(union, needs[place[roots[i]]], weights)
    return best, total


@_compiled
def _add(union: NDArray[np.uint64], more: NDArray[np.uint64], weights: Floats) -> float:
    """Add a set of bits to another; what the new ones weigh."""
    total = 0.0
    for word in range(len(union)):
        added = more[word] & ~union[word]
        if added:
            union[word] |= added
            for bit in range(64):
                if added & (np.uint64(1) << np.uint64(bit)):
                    total += weights[64 * word + bit]
    return total
