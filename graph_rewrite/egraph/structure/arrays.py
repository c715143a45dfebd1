"""A whole e-graph as flat arrays, for the compiled passes of `kernels`."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from graph_rewrite.egraph.structure.egraph import EGraph


class Arrays(NamedTuple):
    """An e-graph: node n lies in class `classes[n]` and reads `args[first[n]:first[n + 1]]`, each class once and
    absent operands left out; only nodes with `state[n] == 1` count."""

    classes: NDArray[np.int32]
    first: NDArray[np.int32]
    args: NDArray[np.int32]
    state: NDArray[np.uint8]


def arrays_of(egraph: EGraph) -> tuple[Arrays, NDArray[np.int32]]:
    """The arrays of a rebuilt e-graph, and its classes in topological order; kept until it changes."""
    # Imported here because numba takes half a second to import.
    from graph_rewrite.egraph.structure.kernels import canonical, topological_order

    version = (len(egraph.log), egraph.filtered, egraph.size)
    if egraph.flat is not None and egraph.flat[0] == version:
        return cast("tuple[Arrays, NDArray[np.int32]]", egraph.flat[1:])
    nodes = egraph.node_args
    lengths = np.fromiter(map(len, nodes), np.int32, len(nodes))
    flat = np.fromiter(chain.from_iterable(nodes), np.int32, int(lengths.sum()))
    state = np.frombuffer(bytes(egraph.node_state), np.uint8)
    arrays = Arrays(*canonical(np.array(egraph.leaders(), np.int32), lengths, flat), state)
    order = topological_order(*arrays)
    egraph.flat = (version, arrays, order)
    return arrays, order


def topological_ranks(egraph: EGraph) -> list[int]:
    """A number per class such that every member reads classes of lower ones; -1 for classes on or above a cycle, and
    for those that were merged into another. Rebuild first."""
    ranks = [-1] * len(egraph.node_args)
    for rank, cls in enumerate(arrays_of(egraph)[1].tolist()):
        ranks[cls] = rank
    return ranks
