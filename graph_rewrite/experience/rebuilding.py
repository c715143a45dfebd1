"""Graphs out of stored windows: the same operators on the same shapes, with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
import onnx

from graph_rewrite.errors import UserError
from graph_rewrite.experience.structure import numpy_type, parsed_number, parsed_type
from graph_rewrite.ir.constants import Constant, from_array
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType


def graph_of(structure: Mapping[str, Any]) -> Graph:
    """Return the window that `structure_of` described; what rewrites do to its structure they do here too, but for
    rules that read weights.

    Weights are drawn at random, seeded by their place, and scaled so that activations keep their size. Unknown
    integers are 0.

    Raises:
        UserError: the structure holds an attribute that is kept by its kind alone, or is no structure of a window.
    """
    try:
        return _graph_of(structure)
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise UserError(f"this is no structure of a window: {error!r}") from error


def _graph_of(structure: Mapping[str, Any]) -> Graph:
    ids: dict[str, int] = {}
    types: dict[int, TensorType | None] = {}

    def new(name: str, type: TensorType) -> int:
        ids[name] = len(ids)
        types[ids[name]] = type
        return ids[name]

    inputs = tuple(new(f"i{number}", parsed_type(type)) for number, type in enumerate(structure["inputs"]))
    constants = {
        new(name, parsed_type(values["type"])): _constant(name, values)
        for name, values in structure["constants"].items()
    }
    # Nodes get ids after all values.
    first = len(ids) + sum(len(values["out"]) for values in structure["nodes"])
    nodes: dict[int, Node] = {}
    for number, values in enumerate(structure["nodes"]):
        read = [None if name is None else ids[name] for name in values["in"]]
        made = [new(f"n{number}.{index}", parsed_type(type)) for index, type in enumerate(values["out"])]
        attrs = {name: _attribute(name, value) for name, value in values.get("attrs", {}).items()}
        nodes[first + number] = Node(first + number, values["op"], read, made, attrs, values.get("domain", ""))
    outputs = tuple(ids[name] for name in structure["outputs"])
    names = {ids[name]: name for name in ids if not name.startswith("c")}
    return Graph(
        nodes, types, constants, {value: n for n, node in nodes.items() for value in node.outputs},
        consumers_of(nodes.values()), {n: float(n) for n in nodes}, inputs, outputs, names,
        tuple(names[value] for value in outputs), {}, _header(structure, inputs, outputs, names), structure["opset"],
        first + len(nodes),
    )  # fmt: skip


def _header(
    structure: Mapping[str, Any], inputs: tuple[int, ...], outputs: tuple[int, ...], names: Mapping[int, str]
) -> onnx.ModelProto:
    header = onnx.ModelProto(ir_version=onnx.IR_VERSION)
    header.opset_import.extend(
        onnx.OperatorSetIdProto(domain=domain, version=version)
        for domain, version in {"": structure["opset"], **structure["domains"]}.items()
    )
    header.graph.name = "window"
    header.graph.input.extend(onnx.ValueInfoProto(name=names[value]) for value in inputs)
    header.graph.output.extend(onnx.ValueInfoProto(name=names[value]) for value in outputs)
    return header


def _constant(name: str, values: Mapping[str, Any]) -> Constant:
    type = parsed_type(values["type"])
    if "values" in values:
        kept = np.array([parsed_number(value) for value in values["values"]], numpy_type(type))
        return from_array(kept.reshape(type.shape))
    if numpy_type(type).kind not in "fV":  # bfloat16 and its like are of kind V
        return from_array(np.zeros(type.shape, numpy_type(type)))
    rng = np.random.default_rng(int(digest(name, str(type))[:8], 16))
    inputs = prod(type.shape[1:]) if type.rank > 2 else type.shape[0] if type.rank else 1
    array = (rng.random(type.shape, np.float32) - np.float32(0.5)) * np.float32((12.0 / max(1, inputs)) ** 0.5)
    return Constant(type, digest("window", name, str(type)), np.asarray(array).astype(numpy_type(type)))


def _attribute(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_attribute(name, item) for item in value)
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return _constant(name, value["tensor"])
    if "bytes" in value:
        return bytes.fromhex(value["bytes"])
    if "float" in value:
        return parsed_number(value)
    raise UserError(f"attribute {name!r} was stored by its kind alone, {value}: the window cannot be made again")
