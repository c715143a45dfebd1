"""Operators of a body, such as that of a function, put into a graph in place of the node that holds or calls it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx
from onnx import AttributeProto

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.loading import PLAIN, infer_types
from graph_rewrite.onnx_files.names import FreshNames
from graph_rewrite.system.deadline import check_time


@dataclass(frozen=True, slots=True)
class BodyStep:
    """An operator to be inserted, and what it is called."""

    op: str
    domain: str
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[int | None]
    outputs: Sequence[int]
    name: str


class BodyWriter:
    """An edit that puts operators in place of nodes, and gives names to the values between them."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self._editor = graph, GraphEditor(graph)
        self._editor.names = dict(graph.names)
        self._names = FreshNames(frozenset(graph.names.values()))

    def name_of(self, node: Node) -> str:
        """Return what is put in place of a node is called after."""
        named = "" if node.proto is None else node.proto.name
        return named or next((self._graph.names.get(value, "") for value in node.outputs), "") or node.op

    def value(self, name: str, constant: Constant | None = None) -> int:
        """Return a new value of about this name."""
        value = self._editor.new_value(None if constant is None else constant.type, constant)
        self._editor.names[value] = self._names.like(name)
        return value

    def put(self, node: Node, steps: Sequence[BodyStep]) -> None:
        """Replace a node by operators that compute its results."""
        rank = self._editor.ranks[node.id]
        self._editor.remove(node)
        for number, step in enumerate(steps):
            check_time()
            self._editor.insert(
                step.op, step.domain, step.attrs, step.inputs, step.outputs, rank + number / (len(steps) + 1),
                origin=(step.name, ""),
            )  # fmt: skip

    def finish(self) -> Graph:
        """Return the new graph, with the types that inference can tell."""
        result = replace(self._editor.finish()[0], memo=GraphMemo())
        infer_types(result, dict(result.types))
        return result


class BodyScope:
    """The names of a body, and the values of the graph that they stand for.

    Args:
        writer: makes the values between the operators.
        name: what these are called after.
        known: values of the names that the body does not compute.
        results: names that the body returns, each with the value of the graph that it becomes.
    """

    def __init__(
        self, writer: BodyWriter, name: str, known: Mapping[str, int | None], results: Iterable[tuple[str, int]]
    ) -> None:
        self._writer, self._name = writer, name
        self._values: dict[str, int | None] = {"": None, **known}
        self._copies = list[tuple[str, int]]()
        for result, value in results:
            if result in self._values:  # it is known without the body, or a result that is given twice
                self._copies.append((result, value))
            else:
                self._values[result] = value

    def label(self, node: onnx.NodeProto) -> str:
        """Return the name of an operator of the body in the graph."""
        return f"{self._name}/{node.name or node.op_type}"

    def operands(self, node: onnx.NodeProto) -> list[int | None]:
        """Return the values that an operator of the body reads."""
        return [self._values[source] for source in node.input]

    def results(self, node: onnx.NodeProto) -> list[int]:
        """Return the values that an operator of the body computes; those that nothing outside knows are new."""
        made = list[int]()
        for output in node.output:
            known = self._values.get(output)
            if known is None:
                known = self._writer.value(f"{self._name}/{output}" if output else self.label(node))
            made.append(known)
            if output:
                self._values[output] = known
        return made

    def copies(self) -> list[BodyStep]:
        """Return operators for the results that are values of other names."""
        return [
            BodyStep("Identity", "", {}, [self._values[result]], [value], f"{self._name}/{result}")
            for result, value in self._copies
        ]


def is_modelled(attribute: AttributeProto) -> bool:
    """Tell whether a graph holds an attribute as a number, text or tensor, or as several numbers or texts."""
    return attribute.type in (*PLAIN, AttributeProto.TENSOR)


def is_complete(nodes: Iterable[onnx.NodeProto], known: Iterable[str], results: Iterable[str]) -> bool:
    """Tell whether every value of a body is defined once, before it is read; `known` are those from outside."""
    defined = {"", *known}
    for node in nodes:
        if not defined.issuperset(node.input):
            return False
        for output in filter(None, node.output):
            if output in defined:
                return False
            defined.add(output)
    return defined.issuperset(results)
