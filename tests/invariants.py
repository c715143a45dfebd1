"""Invariants of every graph, whatever made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graph_rewrite import Candidate, Graph, Rewriter
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.inference import infer

Array = np.ndarray[Any, Any]


def assert_well_formed(graph: Graph) -> None:
    """Check that indices agree with nodes, values have one source, ranks are topological, and types are as inferred."""
    producer = {value: node.id for node in graph.nodes.values() for value in node.outputs}
    assert len(producer) == sum(len(node.outputs) for node in graph.nodes.values()), "a value has two producers"
    assert graph.producer == producer
    assert not producer.keys() & {*graph.inputs, *graph.constants, *graph.stored}
    consumers: dict[int, list[int]] = {}
    for node in graph.nodes.values():
        for value in node.inputs:
            if value is not None:
                consumers.setdefault(value, []).append(node.id)
    recorded = {value: sorted(ids) for value, ids in graph.consumers.items() if ids}
    assert recorded == {value: sorted(ids) for value, ids in consumers.items()}
    known = {*graph.inputs, *graph.constants, *graph.stored, *producer}
    dangling = ({*consumers} | {*graph.outputs}) - known
    assert not dangling, f"nothing defines {dangling}"
    assert set(graph.constants) <= {*consumers, *graph.outputs} | set(graph.names), "a constant was left behind"
    position = {node.id: i for i, node in enumerate(graph.order())}
    assert position.keys() == graph.nodes.keys() == graph.ranks.keys()
    for node in graph.nodes.values():
        for value in node.inputs:
            if value in producer:
                assert graph.ranks[producer[value]] < graph.ranks[node.id], "ranks are not topological"
    assert_types_inferred(graph)


def assert_nothing_dead(graph: Graph) -> None:
    """Check that something needs every node, as in a normalised graph and in every rewritten one."""
    for node in graph.nodes.values():
        assert any(graph.consumers.get(value) or value in graph.outputs for value in node.outputs), f"{node} is dead"


def assert_types_inferred(graph: Graph) -> None:
    """Check that the types of all values are those that inference gives, from the inputs on."""
    types = {value: graph.types[value] for value in (*graph.inputs, *graph.stored)}
    for value, constant in graph.constants.items():
        types[value] = constant.type
        assert graph.types[value] == constant.type
    for node in graph.order():
        if node.opaque:
            found = tuple(graph.types[value] for value in node.outputs)
        else:
            inputs = [None if v is None else (types[v], graph.constants.get(v)) for v in node.inputs]
            found = infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), graph.opset)
        types.update(zip(node.outputs, found, strict=True))
        for value in node.outputs:
            assert types[value] is None or graph.types[value] == types[value], f"{node} gives {types[value]}"


def assert_same_outputs(
    expected: list[Array], graph: Graph, feeds: Mapping[str, Array], rtol: float, what: str
) -> None:
    """Compare outputs by the reference semantics in float64, relative to the scale of each output."""
    for i, (before, after) in enumerate(zip(expected, run_graph(graph, feeds), strict=True)):
        assert before.shape == after.shape, f"{what}: output {i} has shape {after.shape}, not {before.shape}"
        scale = float(np.max(np.abs(before), initial=1e-3))
        error = float(np.max(np.abs(before - after), initial=0.0)) / scale
        assert error <= rtol, f"{what}: output {i} is off by {error:.2g} of its scale"


def forgotten(graph: Graph) -> Graph:
    """Return the same graph with an empty memo."""
    return replace(graph, memo=GraphMemo(), edit=None)


def keys(candidates: Iterable[Candidate]) -> list[str]:
    return [candidate.key for candidate in candidates]


def assert_enumeration_is_fresh(rewriter: Rewriter, graph: Graph) -> None:
    """Check that incremental enumeration lists the same candidates, in the same order, as enumeration from scratch."""
    fresh = Rewriter(rewriter.rules, rewriter.granularity, rewriter.deployment).candidates(forgotten(graph))
    found = rewriter.candidates(graph)
    if keys(found) != keys(fresh):
        lost = [c.description for c in fresh if c.key not in keys(found)]
        stale = [c.description for c in found if c.key not in keys(fresh)]
        raise AssertionError(f"incremental enumeration misses {lost}, has in excess {stale}, or another order")


def snapshot(graph: Graph) -> tuple[object, ...]:
    """Return all contents of a graph, to tell later whether it was changed."""
    return (
        {i: (n, n.op, n.inputs, n.outputs, dict(n.attrs)) for i, n in graph.nodes.items()},
        dict(graph.types), dict(graph.constants), dict(graph.producer), dict(graph.consumers), dict(graph.ranks),
        graph.outputs, forgotten(graph).hash,
    )  # fmt: skip
