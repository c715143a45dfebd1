"""Functions that a model brings along: their calls are written out, so that rules reach their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx
from onnx import AttributeProto

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.loading import PLAIN, attribute_value, infer_types, standard_domain
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.system.deadline import check_time

_MODELLED = (*PLAIN, AttributeProto.TENSOR)
_DEEPEST = 100
"""Most functions that call each other in a row."""
MOST_NODES = 100_000
"""Most operators that calls are written out to; further calls stay. Functions that call functions can stand for more
than any memory holds."""

_Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def written_out(graph: Graph) -> tuple[Graph, int]:
    """Return the graph with the operators of functions in place of their calls, and the number of calls written out.

    A call stays where its function is in another operator set than the graph, holds subgraphs or other attributes that
    the graph does not model, calls itself, or comes to more operators than `MOST_NODES`.
    """
    functions = _Functions(graph)
    calls = functions.calls()
    if not calls:
        return graph, 0
    editor = GraphEditor(graph)
    editor.names = dict(graph.names)
    writer = _Writer(editor, functions, set(graph.names.values()))
    for node in calls:
        writer.write_out(node)
    result, _ = editor.finish()
    result = replace(result, header=_without_unused(result), memo=GraphMemo())
    infer_types(result, dict(graph.types))
    return result, len(calls)


def calls_written_out(graph: Graph) -> set[int]:
    """Return the ids of the nodes that `written_out` replaces."""
    return {node.id for node in _Functions(graph).calls()}


@dataclass(slots=True)
class _Functions:
    """The functions of a model, and the numbers of operators that their calls come to."""

    graph: Graph
    known: dict[_Key, onnx.FunctionProto] = field(init=False)
    _sizes: dict[_Key, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {(standard_domain(f.domain), f.name, f.overload): f for f in self.graph.header.functions}

    def calls(self) -> list[Node]:
        """Return the nodes whose calls can be written out, as many as `MOST_NODES` allows."""
        found, left = list[Node](), MOST_NODES
        for node in self.graph.order() if self.known else ():
            size = None if node.proto is None else self.size(_key(node.proto))
            if size is not None and size <= left and self._fits(node):
                found.append(node)
                left -= size
        return found

    def size(self, key: _Key, depth: int = 0) -> int | None:
        """Return the number of operators of a function; None for what is no function, or none to be written out."""
        if key not in self._sizes:
            self._sizes[key] = None  # as long as its own size is asked for: a function that calls itself
            function = self.known.get(key)
            if function is not None and depth < _DEEPEST and self._is_plain(function) and _is_complete(function):
                inner = [_key(node) for node in function.node]
                sizes = [self.size(one, depth + 1) if one in self.known else 1 for one in inner]
                total = sum(size for size in sizes if size is not None)
                self._sizes[key] = None if None in sizes or total > MOST_NODES else total
        return self._sizes[key]

    def _fits(self, node: Node) -> bool:
        assert node.proto is not None
        function = self.known[_key(node.proto)]
        few = len(node.inputs) <= len(function.input) and len(node.outputs) <= len(function.output)
        return few and all(attribute.type in _MODELLED for attribute in node.proto.attribute)

    def _is_plain(self, function: onnx.FunctionProto) -> bool:
        """Tell whether a function is in the graph's operator sets, and has attributes that the graph models."""
        ours = {standard_domain(entry.domain): entry.version for entry in self.graph.header.opset_import}
        ours[""] = self.graph.opset
        theirs = {standard_domain(entry.domain): entry.version for entry in function.opset_import}
        used = {standard_domain(node.domain) for node in function.node if _key(node) not in self.known}
        attributes = [*function.attribute_proto, *(attribute for node in function.node for attribute in node.attribute)]
        same = all(domain in ours and theirs.get(domain) == ours[domain] for domain in used)
        return same and all(attribute.type in _MODELLED for attribute in attributes)


@dataclass(slots=True)
class _Writer:
    """Writes out calls in an edit."""

    editor: GraphEditor
    functions: _Functions
    taken: set[str]
    """Names of values."""

    def write_out(self, call: Node) -> None:
        """Put the operators of a function in place of its call."""
        assert call.proto is not None
        given = {attribute.name: attribute for attribute in call.proto.attribute}
        name = call.proto.name or next((self.editor.names.get(value, "") for value in call.outputs), "") or call.op
        steps, rank = list[_Step](), self.editor.ranks[call.id]
        self._collect(_key(call.proto), call.inputs, call.outputs, given, name, steps)
        self.editor.remove(call)
        for number, step in enumerate(steps):
            check_time()
            self.editor.insert(
                step.op, step.domain, step.attrs, step.inputs, step.outputs, rank + number / (len(steps) + 1),
                origin=(step.name, ""),
            )  # fmt: skip

    def _collect(
        self,
        key: _Key,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        given: Mapping[str, AttributeProto],
        name: str,
        steps: list[_Step],
    ) -> None:
        """Append the operators of a call to `steps`."""
        function = self.functions.known[key]
        given = {**{attribute.name: attribute for attribute in function.attribute_proto}, **given}
        values: dict[str, int | None] = dict.fromkeys(("", *function.input))
        values.update(zip(function.input, inputs, strict=False))
        copies = list[tuple[str, int]]()
        for result, value in zip(function.output, outputs, strict=False):
            if result in values:  # an operand, or a result that the function gives twice
                copies.append((result, value))
            else:
                values[result] = value
        for node in function.node:
            label = f"{name}/{node.name or node.op_type}"
            read, made = [values[source] for source in node.input], list[int]()
            for output in node.output:
                known = values.get(output)
                made.append(self._value(f"{name}/{output}" if output else label) if known is None else known)
                if output:
                    values[output] = made[-1]
            attributes = {attribute.name: attribute for attribute in _resolved(node, given)}
            if _key(node) in self.functions.known:
                self._collect(_key(node), read, made, attributes, label, steps)
            else:
                attrs = {one: attribute_value(attribute) for one, attribute in attributes.items()}
                steps.append(_Step(node.op_type, standard_domain(node.domain), attrs, read, made, label))
        for result, value in copies:
            steps.append(_Step("Identity", "", {}, [values[result]], [value], f"{name}/{result}"))

    def _value(self, name: str) -> int:
        value = self.editor.new_value(None)
        free, number = name, 1
        while free in self.taken:
            number += 1
            free = f"{name}_{number}"
        self.taken.add(free)
        self.editor.names[value] = free
        return value


@dataclass(frozen=True, slots=True)
class _Step:
    """An operator to be inserted."""

    op: str
    domain: str
    attrs: Mapping[str, AttrValue]
    inputs: Sequence[int | None]
    outputs: Sequence[int]
    name: str


def _is_complete(function: onnx.FunctionProto) -> bool:
    """Tell whether every value of a function is defined once, before it is read."""
    known = {"", *function.input}
    for node in function.node:
        if not known.issuperset(node.input):
            return False
        for output in filter(None, node.output):
            if output in known:
                return False
            known.add(output)
    return known.issuperset(function.output) and len(set(function.input)) == len(function.input)


def _resolved(node: onnx.NodeProto, given: Mapping[str, AttributeProto]) -> Iterator[AttributeProto]:
    """Yield the attributes of an operator inside a function, those that refer to the call's by their values there. One
    that neither the call nor the function gives is left out."""
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            yield attribute
        elif attribute.ref_attr_name in given:
            value = AttributeProto()
            value.CopyFrom(given[attribute.ref_attr_name])
            value.name = attribute.name
            yield value


def _without_unused(graph: Graph) -> onnx.ModelProto:
    """Return the header of a graph without the functions that nothing calls any more."""
    header = onnx.ModelProto()
    header.CopyFrom(graph.header)
    known = {(standard_domain(f.domain), f.name, f.overload): f for f in graph.header.functions}
    pending = [_key(node.proto) for node in graph.nodes.values() if node.proto is not None]
    pending += [_key(inner) for node in graph.nodes.values() if node.opaque and node.proto is not None
                for inner in _inner(node.proto)]  # fmt: skip
    used = set[_Key]()
    while pending:
        key = pending.pop()
        if key in known and key not in used:
            used.add(key)
            pending += [_key(inner) for node in known[key].node for inner in (node, *_inner(node))]
    del header.functions[:]
    header.functions.extend(function for key, function in known.items() if key in used)
    return header


def _inner(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    for graph in attribute_graphs(node):
        yield from inner_nodes(graph)


def _key(node: onnx.NodeProto) -> _Key:
    return standard_domain(node.domain), node.op_type, node.overload
