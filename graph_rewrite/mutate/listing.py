"""The mutants of a model as text and as plain values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.program import Subprogram
from graph_rewrite.mutate.repairs import Repair
from graph_rewrite.mutate.search import Mutant, Mutants
from graph_rewrite.mutate.summary import summary
from graph_rewrite.rewriting.rule import Refusal

_BOXES = 4
"""Boxes that a line of text names."""


def to_json(graph: Graph, mutants: Mutants) -> dict[str, Any]:
    """Return what a search found as plain values."""
    return {
        "complete": mutants.complete,
        "subprograms": [
            {
                "nodes": _names(graph, sub), "sites": places, "inputs": [list(shape) for shape in sub.shapes],
                "program": str(sub.program), "complete": not mutants.was_cut(sub),
                "mutants": [_mutant(mutant) for mutant in mutants.found if mutant.subprogram is sub],
            }
            for sub, places in mutants.searched
        ],
        "refused": [
            *({"nodes": _names(graph, sub), "reason": str(refusal)} for sub, refusal in mutants.subprograms),
            *({"nodes": [_name(graph, node)], "reason": str(refusal)} for node, refusal in mutants.nodes.items()),
        ],
    }  # fmt: skip


def _mutant(mutant: Mutant) -> dict[str, Any]:
    return {
        "program": str(mutant.program),
        "summary": summary(mutant.program, mutant.subprogram.shapes),
        **mutant.finding.to_json(),
        "cost": mutant.cost,
        "repair": _repair(mutant.repair),
    }


def _repair(repair: Repair | Refusal | None) -> dict[str, Any] | None:
    if repair is None:
        return None
    if isinstance(repair, Refusal):
        return {"refused": repair.reason}
    return {"kind": repair.kind, "program": str(repair.program)}


def lines(graph: Graph, mutants: Mutants) -> Iterator[str]:
    """Yield the lines that tell what a search found, the mutants of a subprogram that differ least first."""
    for sub, places in mutants.searched:
        sites = f" ({places} sites)" if places > 1 else ""
        yield f"{', '.join(_names(graph, sub))}{sites}: {summary(sub.program, sub.shapes)}"
        found = [mutant for mutant in mutants.found if mutant.subprogram is sub]
        for mutant in sorted(found, key=lambda each: each.finding.share_wrong):
            yield f"  {summary(mutant.program, sub.shapes)}"
            yield f"    {_difference(mutant)}"
            yield f"    {_cost(mutant)}"
        if not found:
            yield "  no mutant"
        if mutants.was_cut(sub):
            yield "  cut short: there may be more"
    yield from _refusals(graph, mutants)
    exact = sum(mutant.finding.exact for mutant in mutants.found)
    yield f"{len(mutants.found)} mutants of {len(mutants.searched)} subprograms, {exact} of them equal everywhere"
    if mutants.cut:
        yield f"{len(mutants.cut)} of {len(mutants.searched)} subprograms were cut short"
    if not mutants.complete:
        yield "The search was cut short: there may be more."


def _refusals(graph: Graph, mutants: Mutants) -> Iterator[str]:
    for sub, refusal in mutants.subprograms:
        yield f"{', '.join(_names(graph, sub))}: not searched: {refusal}"
    reasons = Counter(str(refusal) for refusal in mutants.nodes.values())
    for reason, count in reasons.most_common():
        yield f"{count} {'nodes are' if count > 1 else 'node is'} no part of a subprogram: {reason}"


def _difference(mutant: Mutant) -> str:
    finding = mutant.finding
    if finding.exact:
        return f"equal everywhere, but for an error of at most {finding.error:.1e}"
    boxes = [box for output in finding.wrong for box in output]
    shown = ", ".join(box_text(box) for box in boxes[:_BOXES]) + (", ..." if len(boxes) > _BOXES else "")
    return f"{finding.share_wrong:.1%} wrong, in {len(boxes)} boxes: {shown}"


def _cost(mutant: Mutant) -> str:
    """Return the repair and the cost of a mutant as text."""
    cost = f"{mutant.cost:.3g} times the multiplications of the original"
    if isinstance(mutant.repair, Refusal):
        return f"no repair: {mutant.repair.reason}"
    if mutant.repair is None:
        return cost if mutant.finding.exact else "there was no time to look for a repair"
    return f"repaired by {mutant.repair.kind}: {cost}"


def box_text(box: Box) -> str:
    """Return a box as text: [0:2,0:8,7:8] names first positions and those after the last."""
    return f"[{','.join(f'{start}:{stop}' for start, stop in box)}]"


def _names(graph: Graph, sub: Subprogram) -> list[str]:
    return [_name(graph, node) for node in sub.nodes]


def _name(graph: Graph, node: int) -> str:
    found = graph.nodes[node]
    if found.proto is not None and found.proto.name:
        return found.proto.name
    return graph.names.get(found.outputs[0], f"{found.op} {node}") if found.outputs else f"{found.op} {node}"
