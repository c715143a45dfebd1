"""Nodes that are alike: those with the same surroundings, found by colour refinement.

Colours of nodes and values are refined in turn (Weisfeiler and Leman, 1968). Each edge bears the number of places
between its ends in the graph's order. So two nodes of one colour have surroundings that are the same node by node, only
at another place: what a rule finds at one of them it finds at the other.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from graph_rewrite.inspection.constant_labels import constant_labels
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.matching import MOST_SIBLINGS
from graph_rewrite.system.deadline import check_time

_MOST_OPERATORS = 6
"""Most kinds of operators that read a hub whose readers are looked at."""


class AlikeNodes:
    """The nodes of a graph that have the same surroundings, up to a number of steps.

    A value that more nodes read than the matcher looks at (`MOST_SIBLINGS`) is a *hub*. It stands for itself, wherever
    it is read; of its readers only the nearest of each operator belong to the surroundings of another, and to them
    belongs what is reached from there without a further hub. The readers of a hub of very many operators belong to
    nothing, and neither do those of a constant number, which stands for its content.

    Args:
        graph: the graph.
        rounds: rounds of refinement; each reaches from a node over its values to the nodes that share one.
    """

    def __init__(self, graph: Graph, rounds: int) -> None:
        self._graph, self._rounds = graph, rounds
        self._order = graph.order()
        self._place = {node.id: place for place, node in enumerate(self._order)}
        self._numbers = frozenset(value for value, constant in graph.constants.items() if constant.type.size == 1)
        readers = {value: ids for value, ids in graph.consumers.items() if value not in self._numbers}
        self._hubs = {value: self._by_operator(ids) for value, ids in readers.items() if len(ids) > MOST_SIBLINGS}

    def groups(self) -> list[list[Node]]:
        """Return the nodes in groups that are alike but for what lies across hubs, each in the graph's order, and the
        groups by their first nodes.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        return _grouped(self._order, self._plain)

    def split(self, group: Sequence[Node]) -> list[list[Node]]:
        """Return the parts of a group that are alike across hubs, too.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        return _grouped(group, self._across)

    @cached_property
    def _plain(self) -> Mapping[int, int]:
        return self._refined(self._kinds)

    @cached_property
    def _across(self) -> Mapping[int, int]:
        numbers, place, plain = _Numbers(), self._place, self._plain
        return self._refined(
            {n: numbers[kind, *[(place[m] - place[n], plain[m]) for m in self._across_hubs(n)]]
             for n, kind in self._kinds.items()}
        )  # fmt: skip

    def _refined(self, kinds: Mapping[int, int]) -> Mapping[int, int]:
        """Return the colours of nodes after all rounds; `kinds` are those before the first."""
        graph, colours = self._graph, kinds
        producer, consumers = graph.producer, graph.consumers
        for _ in range(self._rounds):
            check_time()
            numbers = _Numbers()
            values = {
                value: kind if value in self._hubs or value in self._numbers else numbers[
                    kind, colours.get(producer.get(value, -1), -1), *[colours[n] for n in consumers.get(value, ())]
                ]
                for value, kind in self._value_kinds.items()
            }  # fmt: skip
            numbers = _Numbers()
            colours = {
                node.id: numbers[
                    kinds[node.id], *[-1 if value is None else values[value] for value in node.inputs],
                    *[values[value] for value in node.outputs],
                ]
                for node in self._order
            }  # fmt: skip
        return colours

    def near(self, node: Node, *, across_hubs: bool) -> set[int]:
        """Return the values whose producers and readers, with the types of all that these read and compute, are the
        same for nodes that are alike.

        Args:
            across_hubs: the nodes are alike across hubs, too.
        """
        found = set[int]()
        fresh = {(node.id, False)}
        seen = set(fresh)
        for _ in range(self._rounds - 1):
            reached = set[tuple[int, bool]]()
            for n, crossed in fresh:
                for value in self._values(self._graph.nodes[n]):
                    shown = across_hubs and not crossed and bool(self._hubs.get(value))
                    if value in self._numbers or (value in self._hubs and not shown):
                        continue
                    found.add(value)
                    if value not in self._hubs:
                        reached |= {(other, crossed) for other in self._beside(value)}
                if across_hubs and not crossed:
                    reached |= {(other, True) for other in self._across_hubs(n)}
            fresh = reached - seen
            seen |= fresh
        return found

    @cached_property
    def _kinds(self) -> dict[int, int]:
        """Return a number per node, equal for the same operator on values at the same places."""
        numbers, place = _Numbers(), self._place
        return {
            node.id: numbers[
                node.signature, node.opaque, node.captures, len(node.inputs), len(node.outputs), _order_of(node.inputs),
                *[self._distance(value, place[node.id]) for value in node.inputs],
            ]
            for node in self._order
        }  # fmt: skip

    @cached_property
    def _value_kinds(self) -> dict[int, int]:
        """Return a number per value, equal for the same type, role and place of readers."""
        graph, numbers, place = self._graph, _Numbers(), self._place
        labels, roots, inputs = constant_labels(graph), graph.roots(), set(graph.inputs)
        found = {}
        for value, type in graph.types.items():
            if value in self._hubs or value in self._numbers:
                found[value] = numbers[("hub", value) if value in self._hubs else ("number", labels[value])]
                continue
            maker, readers, here = graph.node_of(value), graph.consumers.get(value, ()), self._home(value)
            found[value] = numbers[
                type, labels.get(value), value in roots, value in inputs, value in graph.stored,
                -1 if maker is None else maker.outputs.index(value), _order_of(readers),
                *[place[n] - here for n in readers],
            ]  # fmt: skip
        return found

    def _home(self, value: int) -> int:
        """Return the place of a value: that of its producer, or else of its first reader."""
        maker = self._graph.producer.get(value)
        if maker is not None:
            return self._place[maker]
        return min((self._place[n] for n in self._graph.consumers.get(value, ())), default=0)

    def _distance(self, value: int | None, here: int) -> int | None:
        if value is None:
            return None
        if value in self._hubs or value in self._numbers:
            return None
        return here - self._home(value)

    def _by_operator(self, readers: tuple[int, ...]) -> dict[tuple[str, str], list[int]]:
        """Return the nodes that read a value, by operator and domain, in the order of their ids; none where these are
        very many operators."""
        found: dict[tuple[str, str], list[int]] = {}
        for n in sorted(set(readers)):
            node = self._graph.nodes[n]
            found.setdefault((node.op, node.domain), []).append(n)
        return found if len(found) <= _MOST_OPERATORS else {}

    def _across_hubs(self, reader: int) -> Iterator[int]:
        """Yield the nodes that read a hub which a node reads, too: those nearest to it, by operator."""
        for value in self._graph.nodes[reader].inputs:
            for ids in self._hubs.get(value, {}).values() if value is not None else ():
                at = bisect_left(ids, reader)
                yield from ids[max(0, at - MOST_SIBLINGS) : at + MOST_SIBLINGS + 1]

    def _beside(self, value: int) -> Iterator[int]:
        """Yield the producer and the readers of a value."""
        if (maker := self._graph.producer.get(value)) is not None:
            yield maker
        yield from self._graph.consumers.get(value, ())

    @staticmethod
    def _values(node: Node) -> Iterator[int]:
        yield from (value for value in node.inputs if value is not None)
        yield from node.outputs


class _Numbers(dict[tuple[Any, ...], int]):
    """Numbers for keys, each a new one where the key is new."""

    def __missing__(self, key: tuple[Any, ...]) -> int:
        self[key] = number = len(self)
        return number


def _grouped(nodes: Iterable[Node], colours: Mapping[int, int]) -> list[list[Node]]:
    groups: dict[int, list[Node]] = {}
    for node in nodes:
        groups.setdefault(colours[node.id], []).append(node)
    return list(groups.values())


def _order_of(ids: tuple[int | None, ...]) -> tuple[int, ...]:
    """Return the order of ids in a tuple: rules compare ids of neighbours."""
    return tuple(sorted(range(len(ids)), key=lambda i: (ids[i] is None, ids[i] or 0)))
