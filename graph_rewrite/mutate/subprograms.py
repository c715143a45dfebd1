"""Subprograms of a graph: its linear operators, cut at the others (PET, OSDI'21, section 6.1)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.program import HEAVY, Step, Subprogram, TensorProgram
from graph_rewrite.mutate.reading import Reading, read
from graph_rewrite.rewriting.rule import Refusal

LARGEST = 4
"""Operators of a subprogram at most, PET's d."""
_PAIRS = 200
"""Pairs of independent operators that are looked at, at most."""


@dataclass(frozen=True, slots=True)
class LinearParts:
    """Subprograms, one for each structure: `places` counts the sites of each; and the nodes that belong to none."""

    subprograms: tuple[Subprogram, ...]
    places: tuple[int, ...]
    refused: Mapping[int, Refusal]


def split(graph: Graph, largest: int = LARGEST) -> LinearParts:
    """Return all connected sets of up to `largest` linear operators, and pairs of parallel ones.

    Of sets with the same structure and shapes the first stands for all. The order is that of the graph, with the
    smaller ones first.
    """
    readings: dict[int, Reading] = {}
    refused: dict[int, Refusal] = {}
    for node in graph.order():
        found = read(graph, node)
        if isinstance(found, Refusal):
            refused[node.id] = found
        else:
            readings[node.id] = found
    bits = {node.id: 1 << number for number, node in enumerate(graph.order())}
    below = _below(graph, bits)
    kept: dict[object, list[Subprogram]] = {}
    for nodes in itertools.chain(_connected(graph, readings, largest), _parallel(graph, readings, below, bits)):
        if not _is_convex(nodes, graph, below, bits):
            continue
        made = subprogram(graph, readings, nodes)
        if any(each.op in HEAVY for each in made.program.steps):
            kept.setdefault((made.program, made.shapes), []).append(made)
    firsts = sorted(kept.values(), key=lambda group: len(group[0].nodes))
    return LinearParts(tuple(group[0] for group in firsts), tuple(map(len, firsts)), refused)


def subprogram(graph: Graph, readings: Mapping[int, Reading], nodes: Iterable[int]) -> Subprogram:
    """Return a set of linear nodes as a program: values from outside are inputs, weights among them, and values that
    are read outside are outputs."""
    chosen = sorted(nodes, key=lambda node: (graph.ranks[node], node))
    inside = {value for node in chosen for value in graph.nodes[node].outputs}
    inputs = tuple(
        dict.fromkeys(
            value for node in chosen for each in readings[node].steps for value in each.inputs
            if value >= 0 and value not in inside
        )
    )  # fmt: skip
    outputs = tuple(v for node in chosen for v in graph.nodes[node].outputs if _is_read_outside(graph, v, set(chosen)))
    shapes = tuple(type.shape for type in (graph.types[value] for value in inputs) if type is not None)
    program = composed(inputs, [(readings[node], graph.nodes[node].outputs) for node in chosen], outputs)
    constants = frozenset(number for number, value in enumerate(inputs) if value in graph.constants)
    return Subprogram(program, shapes, inputs, outputs, tuple(chosen), constants)


def composed(
    inputs: Sequence[int], parts: Iterable[tuple[Reading, Sequence[int]]], outputs: Sequence[int]
) -> TensorProgram:
    """Return readings, one after the other, as a program.

    Args:
        inputs: the values that are its inputs, in their order.
        parts: readings, each with the values that it gives.
        outputs: the values that it returns.
    """
    numbers = {value: number for number, value in enumerate(inputs)}
    steps: list[Step] = []
    for reading, made in parts:
        first = len(inputs) + len(steps)
        for each in reading.steps:
            operands = tuple(len(inputs) + len(steps) + v if v < 0 else numbers[v] for v in each.inputs)
            steps.append(Step(each.op, operands, each.params))
        numbers |= {value: first + place for value, place in zip(made, reading.results, strict=True)}
    return TensorProgram(len(inputs), tuple(steps), tuple(numbers[value] for value in outputs))


def _is_read_outside(graph: Graph, value: int, nodes: set[int]) -> bool:
    return value in graph.roots() or any(reader not in nodes for reader in graph.consumers.get(value, ()))


def _neighbours(graph: Graph, node: int, readings: Mapping[int, Reading]) -> set[int]:
    own = graph.nodes[node]
    found = {graph.producer[value] for value in own.inputs if value in graph.producer}
    found.update(reader for value in own.outputs for reader in graph.consumers.get(value, ()))
    return found.intersection(readings)


def _connected(graph: Graph, readings: Mapping[int, Reading], largest: int) -> Iterator[frozenset[int]]:
    """Yield all connected sets of linear nodes, each once, the smaller ones first."""
    level = [frozenset([node.id]) for node in graph.order() if node.id in readings]
    for size in range(1, largest + 1):
        yield from level
        if size < largest:
            wider = (
                nodes | {other} for nodes in level for node in nodes
                for other in _neighbours(graph, node, readings) if other not in nodes
            )  # fmt: skip
            level = list(dict.fromkeys(wider))


def _parallel(
    graph: Graph, readings: Mapping[int, Reading], below: Mapping[int, int], bits: Mapping[int, int]
) -> Iterator[frozenset[int]]:
    """Yield pairs of convolutions or products that do not depend on each other and have images of the same size."""
    groups: dict[object, list[int]] = {}
    for node in graph.order():
        if node.id in readings and readings[node.id].steps[0].op in ("conv", "matmul"):
            first, second = (graph.types[value] for value in node.inputs[:2] if value is not None)
            if first is not None and second is not None:
                key = (readings[node.id].steps[0].params, first.shape[:1], first.shape[2:], second.shape[2:])
                groups.setdefault(key, []).append(node.id)
    pairs = (
        (a, b) for group in groups.values() for a, b in itertools.combinations(group, 2)
        if not below[a] & bits[b] and not below[b] & bits[a]
    )  # fmt: skip
    yield from map(frozenset, itertools.islice(pairs, _PAIRS))


def _below(graph: Graph, bits: Mapping[int, int]) -> dict[int, int]:
    """Return, per node, the nodes that depend on it, as bits."""
    found: dict[int, int] = {}
    for node in reversed(graph.order()):
        readers = {reader for value in node.outputs for reader in graph.consumers.get(value, ())}
        found[node.id] = 0
        for reader in readers:
            found[node.id] |= bits[reader] | found[reader]
    return found


def _is_convex(nodes: frozenset[int], graph: Graph, below: Mapping[int, int], bits: Mapping[int, int]) -> bool:
    """Tell whether no path leaves a set of nodes and comes back."""
    if len(nodes) == 1:
        return True
    outside = {
        reader for node in nodes for value in graph.nodes[node].outputs for reader in graph.consumers.get(value, ())
    } - nodes  # fmt: skip
    own = sum(bits[node] for node in nodes)
    return not any(below[reader] & own for reader in outside)
