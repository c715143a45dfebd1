"""Matching: finds where a pattern occurs in a graph.

Matching backtracks over commutative operands and, for patterns with several roots, over the consumers of what the roots
share. It records each value whose producer or consumers it read, so that after an edit exactly the affected anchors are
matched again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.match import Bindings, Match
from graph_rewrite.rewriting.patterns import (
    AttrVar,
    Pattern,
    PatternNode,
    PatternOutput,
    PatternValue,
    Scalar,
    Var,
)

MOST_SIBLINGS = 32
"""Most operators that are paired with one that shares a value with them: the nearest before and after it. Hundreds of
operators that share one value would give tens of thousands of pairs."""
_READERS = MemoKey[dict[tuple[int, object, str], list[Node]]]("readers")
_MISSING = object()
Goal = tuple[PatternValue | None, int | None]


class Matcher:
    """Finds one pattern at one anchor of one graph."""

    def __init__(self, graph: Graph, pattern: Pattern, reads: set[int], symmetric: bool = False) -> None:
        self._graph, self._pattern, self._reads, self._symmetric = graph, pattern, reads, symmetric

    def at(self, anchor: Node) -> Iterator[Match]:
        """Yield all matches whose first root is produced by `anchor`."""
        for bindings in self._node(self._pattern.anchor, anchor, Bindings()):
            for complete in self._other_roots(bindings, 1):
                if self._typed(complete):
                    yield Match(self._graph, self._pattern, complete, self._reads)

    def _typed(self, bindings: Bindings) -> bool:
        if self._graph.is_typed():
            return True
        types = self._graph.types
        values = [value for node in bindings.nodes.values() for value in node.outputs]
        for bound in bindings.variables.values():
            if isinstance(bound, tuple):
                values += bound
            elif bound is not None:
                values.append(bound)
        return None not in [types.get(value) for value in values]

    def _other_roots(self, bindings: Bindings, index: int) -> Iterator[Bindings]:
        roots = self._pattern.roots
        while index < len(roots) and roots[index].node in bindings.nodes:
            index += 1
        if index == len(roots):
            yield bindings
            return
        goal = roots[index].node
        for node in self._siblings(goal, bindings):
            if any(bound is node for bound in bindings.nodes.values()):
                continue
            if self._symmetric and node.id < bindings.nodes[roots[index - 1].node].id:
                continue
            for extended in self._node(goal, node, bindings.copy()):
                yield from self._other_roots(extended, index + 1)

    def _siblings(self, goal: PatternNode, bindings: Bindings) -> list[Node]:
        """Return the graph nodes that may be `goal`: reached downward from a value that goal's pattern shares with the
        match, of very many the nearest. Where it shares none, return the match's neighbours."""
        path = self._shared_path(goal, bindings)
        if path is None:
            return self._neighbours(goal, bindings)
        value, steps = path
        frontier = [value]
        for step in steps:
            self._reads.update(frontier)
            nodes = self._readers(frontier, step)
            frontier = [output for node in nodes for output in node.outputs]
        return _nearest(nodes, bindings.nodes[self._pattern.anchor].id)

    def _readers(self, values: list[int], goal: PatternNode) -> list[Node]:
        """Return the nodes that read some values and may be `goal`, by id. Those of one value that very many read are
        kept with the graph."""
        readers = self._graph.consumers
        if len(values) != 1 or len(readers.get(values[0], ())) <= MOST_SIBLINGS:
            return self._chosen(values, goal)
        known = self._graph.memo.get(_READERS)
        known = self._graph.memo.put(_READERS, {}) if known is None else known
        key = values[0], goal.operators, goal.domain
        if key not in known:
            known[key] = self._chosen(values, goal)
        return known[key]

    def _chosen(self, values: list[int], goal: PatternNode) -> list[Node]:
        found: dict[int, Node] = {}
        for value in values:
            for node_id in self._graph.consumers.get(value, ()):
                node = self._graph.nodes[node_id]
                if node.op in goal.operators and node.domain == goal.domain and not node.opaque:
                    found[node_id] = node
        return [found[node_id] for node_id in sorted(found)]

    def _shared_path(self, goal: PatternNode, bindings: Bindings) -> tuple[int, list[PatternNode]] | None:
        """Return a value of the match that `goal` is computed from, and the pattern nodes from there down to goal.
        Constant scalars do not count: a whole network shares them."""
        queue: list[tuple[PatternNode, list[PatternNode]]] = [(goal, [goal])]
        while queue:
            node, path = queue.pop(0)
            for source in node.inputs:
                if isinstance(source, Var):
                    value = bindings.variables.get(source.name)
                    if isinstance(value, int) and not self._is_scalar(value):
                        return value, path
                elif isinstance(source, PatternOutput):
                    if source.node in bindings.nodes:
                        return bindings.nodes[source.node].outputs[source.index], path
                    queue.append((source.node, [source.node, *path]))
        return None

    def _is_scalar(self, value: int) -> bool:
        type = self._graph.types[value]
        return value in self._graph.constants and type is not None and type.size == 1

    def _neighbours(self, goal: PatternNode, bindings: Bindings) -> list[Node]:
        """Return the graph nodes that may be `goal` and have a common reader or a common producer of inputs with the
        match. All pairs of a graph would be too many, and merging distant ones gains nothing."""
        graph, found = self._graph, dict[int, Node]()
        roots = [bindings.nodes[root.node] for root in self._pattern.roots if root.node in bindings.nodes]
        bound = [v for v in bindings.variables.values() if isinstance(v, int) and v not in graph.constants]
        below = [value for node in roots for value in node.outputs]
        self._reads.update((*below, *bound))
        readers = [graph.nodes[n] for value in below for n in graph.consumers.get(value, ())]
        near = [value for node in readers for value in node.inputs if value is not None]
        nodes = [node for value in near if (node := graph.node_of(value)) is not None]
        beside = [value for v in bound if (node := graph.node_of(v)) is not None for value in node.outputs]
        self._reads.update((*near, *beside))
        nodes += [graph.nodes[n] for value in beside for n in graph.consumers.get(value, ())]
        for node in nodes:
            if node.op in goal.operators and node.domain == goal.domain and not node.opaque:
                found[node.id] = node
        return [found[node_id] for node_id in sorted(found)]

    def _node(self, pattern: PatternNode, node: Node, bindings: Bindings) -> Iterator[Bindings]:
        bound = bindings.nodes.get(pattern)
        if bound is not None:
            if bound is node:
                yield bindings
            return
        if node.op not in pattern.operators or node.domain != pattern.domain or node.opaque:
            return
        if len(node.outputs) != pattern.outputs:
            return
        goals = self._goals(pattern, node)
        if not goals or not _bind_attrs(pattern, node, bindings):
            return
        bindings.nodes[pattern] = node
        if pattern.variadic:
            yield from self._variadic(pattern, node, bindings)
            return
        # Every alternative but the last gets bindings of its own, so that none sees what another bound.
        for k, order in enumerate(goals):
            yield from self._inputs(order, 0, bindings if k == len(goals) - 1 else bindings.copy())

    def _goals(self, pattern: PatternNode, node: Node) -> list[list[Goal]]:
        """Return the possible pairings of a pattern's inputs with a node's, without those that one look at each input
        rules out."""
        if pattern.variadic:
            return [[]]
        inputs = _padded(node, len(pattern.inputs))
        if inputs is None:
            return []
        goals = self._paired(pattern.inputs, inputs)
        found = [] if goals is None else [goals]
        if pattern.commutative and inputs[0] != inputs[1]:
            goals = self._paired(pattern.inputs[::-1], inputs)
            if goals is not None:
                found.append(goals)
        return found

    def _paired(self, order: tuple[PatternValue | None, ...], inputs: tuple[int | None, ...]) -> list[Goal] | None:
        """Pair a pattern's inputs with a node's; return None where a look at one of them rules the pair out."""
        constants = self._graph.constants
        for goal, value in zip(order, inputs, strict=True):
            if value is None or goal is None:
                if value is not None or not (goal is None or (isinstance(goal, Var) and goal.optional)):
                    return None
            elif isinstance(goal, Var):
                if goal.constant and value not in constants:
                    return None
            elif value in constants:
                return None
            else:
                self._reads.add(value)
                node = self._graph.node_of(value)
                if node is None or node.op not in goal.node.operators or node.domain != goal.node.domain:
                    return None
        return list(zip(order, inputs, strict=True))

    def _variadic(self, pattern: PatternNode, node: Node, bindings: Bindings) -> Iterator[Bindings]:
        """Match leading inputs one by one, and the rest as a tuple for the one `Values` variable, which comes last."""
        leading = pattern.inputs[:-1]
        rest = pattern.inputs[-1]
        if not isinstance(rest, Var) or len(node.inputs) < len(leading) or None in node.inputs:
            return
        bound = tuple(v for v in node.inputs[len(leading) :] if v is not None)
        if bindings.variables.get(rest.name, bound) != bound:
            return
        bindings.variables[rest.name] = bound
        yield from self._inputs(list(zip(leading, node.inputs, strict=False)), 0, bindings)

    def _inputs(self, goals: list[Goal], start: int, bindings: Bindings) -> Iterator[Bindings]:
        """Yield bindings in which the goals from number `start` on are met as well."""
        for number in range(start, len(goals)):
            pattern, value = goals[number]
            if isinstance(pattern, PatternOutput):
                if value is None:
                    return
                self._reads.add(value)
                node = self._graph.node_of(value)
                if node is not None and pattern.index < len(node.outputs) and node.outputs[pattern.index] == value:
                    for extended in self._node(pattern.node, node, bindings):
                        yield from self._inputs(goals, number + 1, extended)
                return
            if value is not None if pattern is None else not self._bind(pattern, value, bindings):
                return
        yield bindings

    def _bind(self, var: Var, value: int | None, bindings: Bindings) -> bool:
        if value is None and not var.optional:
            return False
        constant = None if value is None else self._graph.constants.get(value)
        if var.constant and value is not None and constant is None:
            return False
        if var.kind is Scalar and (constant is None or constant.type.size != 1):
            return False
        known = bindings.variables.setdefault(var.name, value)
        if known == value:
            return True
        other = None if known is None else self._graph.constants.get(known)
        return constant is not None and other is not None and other.digest == constant.digest


def _padded(node: Node, count: int) -> tuple[int | None, ...] | None:
    inputs = node.inputs
    if len(inputs) > count:
        return None if any(v is not None for v in inputs[count:]) else inputs[:count]
    return (*inputs, *(None,) * (count - len(inputs)))


def _bind_attrs(pattern: PatternNode, node: Node, bindings: Bindings) -> bool:
    for name, wanted in pattern.attrs.items():
        if isinstance(wanted, AttrVar):
            found = node.attrs.get(name, wanted.default)
            if bindings.attrs.setdefault(wanted.name, found) != found:
                return False
        elif node.attrs.get(name, _default_of(node, name)) != wanted:
            return False
    return True


def _default_of(node: Node, name: str) -> Any:
    return _MISSING if node.domain else schema_default(node.op, name)


@cache
def schema_default(op: str, name: str) -> Any:
    """Return the default of a standard operator's attribute; where it has none, a value that equals nothing else."""
    attribute = onnx.defs.get_schema(op, "").attributes.get(name)
    if attribute is None or not attribute.default_value.name:
        return _MISSING
    value = onnx.helper.get_attribute_value(attribute.default_value)
    return value.decode() if isinstance(value, bytes) else value


def _nearest(nodes: list[Node], here: int) -> list[Node]:
    """Return the `MOST_SIBLINGS` nodes whose ids are nearest to `here`, by id as `nodes` are; of two equally near ones
    the first."""
    if len(nodes) <= MOST_SIBLINGS:
        return nodes
    place = bisect_left(nodes, here, key=lambda node: node.id)
    around = nodes[max(0, place - MOST_SIBLINGS) : place + MOST_SIBLINGS + 1]
    near = sorted(around, key=lambda node: abs(node.id - here))[:MOST_SIBLINGS]
    return sorted(near, key=lambda node: node.id)
