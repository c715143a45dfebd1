"""Windows with synthetic weights: times do not depend on their values, and transformed ones take long to compute."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from math import prod

import numpy as np
from onnx import helper

from graph_rewrite.ir.constants import EAGER_SIZE, Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.tensor_type import TensorType

LARGEST = 1 << 24
"""Elements above which a weight stays what it is where that needs no computing."""
KEPT = 1 << 22
"""Elements up to which a synthetic weight is kept for the next window."""

_FLOATS = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16))


def with_synthetic_weights(graph: Graph) -> Graph:
    """Return the same operators with random weights, equal for equal shapes and order of use, so that alike windows are
    one.

    Constants of up to `EAGER_SIZE` elements stay: they may be divisors, shapes, or factors that an optimiser looks at.
    """
    constants, number = dict(graph.constants), Counter[TensorType]()
    seen: dict[str, Constant] = {}
    for node in graph.order():
        for value in node.inputs:
            constant = None if value is None else graph.constants.get(value)
            if value is None or constant is None or not _is_replaced(constant):
                continue
            # One weight that is used twice remains one.
            identity = constant.digest if constant.expression is not None else str(id(constant))
            if identity not in seen:
                seen[identity] = _synthetic(constant.type, number[constant.type])
                number[constant.type] += 1
            constants[value] = seen[identity]
    return replace(graph, constants=constants, memo=GraphMemo(), edit=None)


def _is_replaced(constant: Constant) -> bool:
    if constant.type.size <= EAGER_SIZE or helper.tensor_dtype_to_np_dtype(constant.type.dtype) not in _FLOATS:
        return False
    return constant.expression is not None or constant.type.size <= LARGEST


def _synthetic(type: TensorType, number: int) -> Constant:
    return _kept(type, number) if type.size <= KEPT else _made(type, number)


@lru_cache(maxsize=128)
def _kept(type: TensorType, number: int) -> Constant:
    return _made(type, number)


def _made(type: TensorType, number: int) -> Constant:
    """Make weights scaled so that activations keep their size from layer to layer."""
    rng = np.random.default_rng(number)
    inputs = prod(type.shape[1:]) if type.rank > 2 else type.shape[0]
    array = (rng.random(type.shape, np.float32) - np.float32(0.5)) * np.float32((12.0 / max(1, inputs)) ** 0.5)
    return Constant(
        type, digest("stand-in", str(type), number), array.astype(helper.tensor_dtype_to_np_dtype(type.dtype))
    )
