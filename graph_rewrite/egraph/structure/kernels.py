"""Passes over a whole e-graph as machine code: a tree search repeats them after every application.

Compiled by numba at the first call and kept on disk; numba takes half a second to import, so import this module where
it is used. All e-graphs come as flat arrays (`arrays.Arrays`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

F = TypeVar("F", bound=Callable[..., Any])
Ints = NDArray[np.int32]


def compiled(function: F) -> F:
    """Compile a function to machine code at its first call."""
    return cast(F, numba.njit(cache=True)(function))


@compiled
def canonical(leader: Ints, lengths: Ints, flat: Ints) -> tuple[Ints, Ints, Ints]:
    """The first three of `Arrays`, out of the union-find's forest and the operands one after another."""
    count = len(leader)
    classes = np.empty(count, np.int32)
    for node in range(count):
        cls = leader[node]
        while leader[cls] != cls:
            cls = leader[cls]
        classes[node] = cls
    first = np.zeros(count + 1, np.int32)
    args = np.empty(len(flat), np.int32)
    position, kept = 0, 0
    for node in range(count):
        for i in range(position, position + lengths[node]):
            if flat[i] < 0:
                continue
            cls, new = classes[flat[i]], True
            for j in range(first[node], kept):
                new = new and args[j] != cls
            if new:
                args[kept] = cls
                kept += 1
        position += lengths[node]
        first[node + 1] = kept
    return classes, first, args[:kept]


@compiled
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
