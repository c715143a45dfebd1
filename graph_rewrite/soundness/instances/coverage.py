"""The coverage of a rule's instances: types of the inputs and attributes of the operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType

_LISTED = 16
"""So many different values of an attribute are listed; of more, only their number."""


@dataclass(slots=True)
class InstanceCoverage:
    """Collects types and attributes over instances."""

    _types: dict[str, dict[tuple[int, int], list[set[int]]]] = field(default_factory=dict)
    _attributes: dict[str, set[Any]] = field(default_factory=dict)

    def add(self, graph: Graph) -> None:
        """Take in the source graph of an instance."""
        for value in graph.inputs:
            self._add_type(graph.names[value], graph.types[value])
        for value, constant in graph.constants.items():
            if value in graph.names:
                self._add_type(graph.names[value], constant.type)
        for node in graph.nodes.values():
            for name, value in node.attrs.items():
                if isinstance(value, (int, float, str, tuple)):
                    self._attributes.setdefault(f"{node.op}.{name}", set()).add(value)

    def _add_type(self, name: str, type: TensorType | None) -> None:
        if type is None:
            return
        dims = self._types.setdefault(name, {}).setdefault((type.dtype, type.rank), [set() for _ in type.shape])
        for seen, dim in zip(dims, type.shape, strict=True):
            seen.add(dim)

    def shapes(self) -> Mapping[str, Sequence[str]]:
        """By input or constant, its types with the range of each dimension, such as float[1..4,2]."""
        return {
            name: [_type_text(dtype, dims) for (dtype, _), dims in sorted(types.items())]
            for name, types in sorted(self._types.items())
        }

    def parameters(self) -> Mapping[str, Sequence[Any]]:
        """By operator and attribute, the values that occurred."""
        return {name: _listed(values) for name, values in sorted(self._attributes.items())}


def _type_text(dtype: int, dims: Sequence[set[int]]) -> str:
    texts = [str(min(seen)) if len(seen) == 1 else f"{min(seen)}..{max(seen)}" for seen in dims]
    return f"{onnx.TensorProto.DataType.Name(dtype).lower()}[{','.join(texts)}]"


def _listed(values: set[Any]) -> list[Any]:
    ordered = sorted(values, key=lambda value: (str(type(value)), value))
    texts = ["x".join(map(str, value)) if isinstance(value, tuple) else value for value in ordered]
    return texts if len(texts) <= _LISTED else [*texts[:_LISTED], f"... {len(texts)} in all"]
