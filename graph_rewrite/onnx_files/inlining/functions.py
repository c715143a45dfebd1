"""Functions that a model brings along: their calls are written out, so that rules reach their operators."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx
from onnx import AttributeProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.inlining.bodies import BodyScope, BodyStep, BodyWriter, is_complete, is_modelled
from graph_rewrite.onnx_files.loading import attribute_value, standard_domain
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes

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
    writer = BodyWriter(graph)
    for node in calls:
        assert node.proto is not None
        attributes = {attribute.name: attribute for attribute in node.proto.attribute}
        steps = list[BodyStep]()
        call = _Call(_key(node.proto), node.inputs, node.outputs, attributes, writer.name_of(node))
        _collect(writer, functions, call, steps)
        writer.put(node, steps)
    result = writer.finish()
    return replace(result, header=_without_unused(result), memo=GraphMemo()), len(calls)


def calls_written_out(graph: Graph) -> set[int]:
    """Return the ids of the nodes that `written_out` replaces."""
    return {node.id for node in _Functions(graph).calls()}


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a function: its operands and results, its attributes by name, and what its operators are called
    after."""

    key: _Key
    inputs: Sequence[int | None]
    outputs: Sequence[int]
    attributes: Mapping[str, AttributeProto]
    name: str


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
            if function is not None and depth < _DEEPEST and self._is_plain(function):
                inner = [_key(node) for node in function.node]
                sizes = [self.size(one, depth + 1) if one in self.known else 1 for one in inner]
                total = sum(size for size in sizes if size is not None)
                self._sizes[key] = None if None in sizes or total > MOST_NODES else total
        return self._sizes[key]

    def _fits(self, node: Node) -> bool:
        assert node.proto is not None
        function = self.known[_key(node.proto)]
        few = len(node.inputs) <= len(function.input) and len(node.outputs) <= len(function.output)
        return few and all(map(is_modelled, node.proto.attribute))

    def _is_plain(self, function: onnx.FunctionProto) -> bool:
        """Tell whether a function is in the graph's operator sets, has attributes that the graph models, and defines
        what it reads."""
        ours = {standard_domain(entry.domain): entry.version for entry in self.graph.header.opset_import}
        ours[""] = self.graph.opset
        theirs = {standard_domain(entry.domain): entry.version for entry in function.opset_import}
        used = {standard_domain(node.domain) for node in function.node if _key(node) not in self.known}
        attributes = [*function.attribute_proto, *(attribute for node in function.node for attribute in node.attribute)]
        same = all(domain in ours and theirs.get(domain) == ours[domain] for domain in used)
        named = is_complete(function.node, function.input, function.output)
        return same and named and len(set(function.input)) == len(function.input) and all(map(is_modelled, attributes))


def _collect(writer: BodyWriter, functions: _Functions, call: _Call, steps: list[BodyStep]) -> None:
    """Append the operators of a call to `steps`."""
    function = functions.known[call.key]
    given = {**{attribute.name: attribute for attribute in function.attribute_proto}, **call.attributes}
    known: dict[str, int | None] = dict.fromkeys(function.input)
    known.update(zip(function.input, call.inputs, strict=False))
    scope = BodyScope(writer, call.name, known, zip(function.output, call.outputs, strict=False))
    for node in function.node:
        label, read, made = scope.label(node), scope.operands(node), scope.results(node)
        attributes = {attribute.name: attribute for attribute in _resolved(node, given)}
        if _key(node) in functions.known:
            _collect(writer, functions, _Call(_key(node), read, made, attributes, label), steps)
        else:
            attrs = {one: attribute_value(attribute) for one, attribute in attributes.items()}
            steps.append(BodyStep(node.op_type, standard_domain(node.domain), attrs, read, made, label))
    steps += scope.copies()


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
