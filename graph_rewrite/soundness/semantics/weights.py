"""The constants that the constants of a graph are computed from: weights, and masks of scores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.semantics.call import FLOATS

_ADDED_BY = frozenset(("Add", "Where", "Attention", "MultiHeadAttention"))
_WEIGHED_BY = frozenset(("Softmax", "Attention", "MultiHeadAttention"))


def weights(graph: Graph) -> frozenset[str]:
    """Digests of the constants that the floating-point constants of a graph are made of, of several values each."""
    leaves = (leaf for leaf in _leaves(graph.constants.values()) if leaf.type.dtype in FLOATS and leaf.type.size > 1)
    return frozenset(leaf.digest for leaf in leaves if _varies(leaf.numpy()))


def masks(*graphs: Graph) -> frozenset[str]:
    """Digests of the constants that are only ever added to, or selected instead of, what goes into a Softmax: there a
    very negative number leaves a weight of 0."""
    found, others = set[str](), set[str]()
    for graph in graphs:
        weighed = any(node.op in _WEIGHED_BY for node in graph.nodes.values())
        for value, constant in graph.constants.items():
            readers = {graph.nodes[reader].op for reader in graph.consumers.get(value, ())}
            if readers:
                part = found if weighed and readers <= _ADDED_BY and value not in graph.outputs else others
                part.update(leaf.digest for leaf in _leaves([constant]) if leaf.type.dtype in FLOATS)
    return frozenset(found - others)


def _leaves(constants: Iterable[Constant]) -> Iterator[Constant]:
    seen, stack = set[int](), list(constants)
    while stack:
        constant = stack.pop()
        if id(constant) in seen:
            continue
        seen.add(id(constant))
        if constant.origin is None:
            yield constant
        else:
            stack.extend(part for part in constant.origin.inputs if part is not None)


def _varies(array: Array) -> bool:
    flat = array.reshape(-1)
    return bool((flat != flat[0]).any()) and bool(np.isfinite(flat.astype(np.float64)).all())
