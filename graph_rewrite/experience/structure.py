"""Windows as plain values: operators, attributes, types, connections and the numbers of the architecture, no weights.

A weight counts by its type. Integers that decide structure (axes, shapes, indices) are kept, and so are short lists of
floating-point numbers that a person wrote: 0.5, 1e-5, the square root of 2. A trained number has more digits than
these, and stays out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from graph_rewrite.ir.attributes import RawAttr
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.replay.fingerprint import decides_structure, fingerprint

WRITTEN_NUMBERS = 8
"""Most elements of a floating-point constant that may be kept."""

_DIGITS: dict[int, int] = {onnx.TensorProto.FLOAT: 5, onnx.TensorProto.DOUBLE: 5, onnx.TensorProto.FLOAT16: 2}
"""Significant digits that a written number may have, far fewer than its type holds."""
_NAMED = (math.sqrt(2.0 / math.pi), math.pi, math.log(10000.0))


def value_names(graph: Graph) -> dict[int, str]:
    """Return a name for every value that depends on the structure alone: `i0` for inputs, `c0` for constants by first
    use, `n3.0` for the first output of the fourth node in topological order."""
    names = {value: f"i{number}" for number, value in enumerate(graph.inputs)}
    constants = 0
    for number, node in enumerate(graph.order()):
        for value in node.inputs:
            if value is not None and value not in names:
                names[value] = f"c{constants}"
                constants += 1
        names |= {value: f"n{number}.{index}" for index, value in enumerate(node.outputs)}
    return names


def structure_of(graph: Graph, names: Mapping[int, str]) -> dict[str, Any]:
    """Return a window as plain values.

    Args:
        graph: a window: every value typed, no subgraphs.
        names: the names of `value_names`.
    """
    versions = {entry.domain: entry.version for entry in graph.header.opset_import}
    domains = sorted({node.domain for node in graph.nodes.values()} - {""})
    readers = {value: node for node in graph.nodes.values() for value in node.inputs if value is not None}
    return {
        "fingerprint": fingerprint(graph),
        "opset": graph.opset,
        "domains": {domain: versions.get(domain, 1) for domain in domains},
        "inputs": [_type(graph.types[value]) for value in graph.inputs],
        "constants": {
            names[value]: _constant(constant, readers.get(value))
            for value, constant in graph.constants.items() if value in names
        },
        "nodes": [_node(graph, node, names) for node in graph.order()],
        "outputs": [names[value] for value in graph.outputs],
    }  # fmt: skip


def _node(graph: Graph, node: Node, names: Mapping[int, str]) -> dict[str, Any]:
    values: dict[str, Any] = {"op": node.op}
    if node.domain:
        values["domain"] = node.domain
    if node.attrs:
        values["attrs"] = {name: _attribute(node, value) for name, value in sorted(node.attrs.items())}
    values["in"] = [None if value is None else names[value] for value in node.inputs]
    values["out"] = [_type(graph.types[value]) for value in node.outputs]
    return values


def _type(type: TensorType | None) -> list[Any] | None:
    return None if type is None else [type.dtype, *type.shape]


def _attribute(node: Node, value: Any) -> Any:
    """Return an attribute as JSON holds it; tensors as constants are, and what is opaque by its name alone."""
    if isinstance(value, Constant):
        return {"tensor": _constant(value, node)}
    if isinstance(value, RawAttr):
        return {"opaque": onnx.AttributeProto.AttributeType.Name(value.proto().type)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple):
        return [_attribute(node, item) for item in value]
    return _number(value) if isinstance(value, float) else value


def _constant(constant: Constant, reader: Node | None) -> dict[str, Any]:
    values: dict[str, Any] = {"type": _type(constant.type)}
    kept = _kept(constant, reader)
    return values if kept is None else {**values, "values": kept}


def _kept(constant: Constant, reader: Node | None) -> list[Any] | None:
    """Return the elements of a constant that belongs to the architecture; None for a weight."""
    if decides_structure(constant, reader):
        found: list[Any] = constant.numpy().reshape(-1).tolist()
        return found
    digits = _DIGITS.get(constant.type.dtype)
    if digits is None or constant.type.size > WRITTEN_NUMBERS or constant.expression is not None:
        return None
    numbers = constant.numpy().reshape(-1)
    return [_number(float(number)) for number in numbers] if all(is_written(n, digits) for n in numbers) else None


def is_written(number: np.floating[Any], digits: int) -> bool:
    """Return True for a number that a person wrote: it, its reciprocal, its square or the reciprocal of that has few
    digits, rounded to the number's own type; or it is a constant of mathematics, a limit of its type or infinite."""
    value, kind = float(number), np.asarray(number).dtype.type
    limits = np.finfo(kind)
    if not math.isfinite(value) or value in (0.0, float(limits.min), float(limits.max), float(limits.eps)):
        return True
    size = abs(value)
    square = size * size
    if not 1e-300 < square < 1e300:
        return False
    candidates = (
        _rounded(size, digits), 1.0 / _rounded(1.0 / size, digits),
        math.sqrt(_rounded(square, digits)), 1.0 / math.sqrt(_rounded(1.0 / square, digits)), *_NAMED,
    )  # fmt: skip
    return any(kind(candidate) == kind(size) for candidate in candidates)


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _number(value: float) -> Any:
    """Return a float as JSON holds it: the standard has no infinity."""
    return value if math.isfinite(value) else {"float": repr(value)}


def parsed_type(values: list[int]) -> TensorType:
    """Return the type that `structure_of` wrote as element type and dimensions."""
    return TensorType(values[0], tuple(values[1:]))


def parsed_number(value: Any) -> Any:
    """Return a number as it was before `structure_of` wrote it."""
    return float(value["float"]) if isinstance(value, dict) else value


def numpy_type(type: TensorType) -> np.dtype[Any]:
    """Return the element type of an array of this type."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(type.dtype))
