"""Operators over numpy arrays: the reference semantics, for constant folding and for checking rewrites in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators import contrib, nchwc
from graph_rewrite.operators.standard_semantics import run_standard
from graph_rewrite.system.deadline import check_time

Array = np.ndarray[Any, Any]
_SIZES: Mapping[str, tuple[int, ...]] = {"Range": (0, 1, 2), "Resize": (1, 2), "Upsample": (1,)}
"""Operands of ONNX's own operators that are floating-point numbers and say how large the result is."""


def run_operator(
    op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Array | None], opset: int, outputs: int = 1
) -> list[Array]:
    """Apply one operator.

    Raises:
        UnknownOperatorError: neither onnx's reference evaluator nor `contrib` or `nchwc` knows the operator.
        EvaluationError: they know it, and cannot apply it to these inputs.
    """
    if domain == contrib.DOMAIN:
        return contrib.run(op, attrs, inputs)
    if domain == nchwc.DOMAIN:
        return nchwc.run(op, attrs, inputs)
    return run_standard(op, domain, attrs, inputs, opset, outputs)


def run_graph(graph: Graph, feeds: Mapping[str, Array], float64: bool = True) -> list[Array]:
    """Return the outputs of a graph by the reference semantics; with `float64`, all floating-point arithmetic is in
    double.

    `feeds` maps input names to arrays of the declared shapes; an input with an initializer may be left out.
    """
    return outputs_of(graph, run_values(graph, feeds, float64), float64)


def outputs_of(graph: Graph, values: Mapping[int, Array], float64: bool = True) -> list[Array]:
    """Return the outputs among the values that `run_values` computed; some may be constants that no operator reads."""
    return [values[v] if v in values else widen(graph.constants[v].numpy(), float64) for v in graph.outputs]


def run_values(
    graph: Graph,
    feeds: Mapping[str, Array],
    float64: bool = True,
    disturb: Callable[[Array], Array] | None = None,
) -> dict[int, Array]:
    """Return every value of a graph by its id, as `run_graph` computes it: inputs, constants in use, and results.

    `disturb` is applied to each operand of each operator (Monte Carlo arithmetic: how far do roundings spread?), but
    for those that say how large a result is.

    Raises:
        OutOfTime: the time limit is reached.
    """
    values = {value: widen(constant.numpy(), float64) for value, constant in graph.stored.items()}
    for value in graph.inputs:
        if value not in values or graph.names[value] in feeds:
            values[value] = widen(np.asarray(feeds[graph.names[value]]), float64)
    for node in graph.order():
        check_time()
        arrays = []
        for source in node.inputs:
            if source is not None and source not in values:
                values[source] = widen(graph.constants[source].numpy(), float64)
            arrays.append(None if source is None else values[source])
        if disturb is not None:
            sizes = () if node.domain else _SIZES.get(node.op, ())
            arrays = [
                array if array is None or number in sizes else disturb(array) for number, array in enumerate(arrays)
            ]
        attrs = _widen_attrs(node.op, node.attrs) if float64 else node.attrs
        results = run_operator(node.op, node.domain, attrs, arrays, graph.opset, len(node.outputs))
        for value, array in zip(node.outputs, results, strict=False):
            values[value] = widen(array, float64)
    return values


def widen(array: Array, float64: bool = True) -> Array:
    """Return an array of floating-point numbers in double precision with `float64`, and else the array itself."""
    return array.astype(np.float64) if float64 and array.dtype in (np.float16, np.float32) else array


def _widen_attrs(op: str, attrs: Mapping[str, AttrValue]) -> Mapping[str, AttrValue]:
    if op == "Cast" and attrs.get("to") in (TensorProto.FLOAT, TensorProto.FLOAT16):
        return {**attrs, "to": TensorProto.DOUBLE}
    return attrs
