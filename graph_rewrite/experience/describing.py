"""Descriptions of models, of the places of windows in them, and of the rewrites of a chain, as parts of the store."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from graph_rewrite.experience.means import class_of_nodes
from graph_rewrite.experience.records import SharedPart
from graph_rewrite.experience.structure import structure_of, value_names
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.replay.addresses import Addresses, Insertion
from graph_rewrite.replay.evidence import Surroundings
from graph_rewrite.replay.fingerprint import fingerprint
from graph_rewrite.rewriting.sites import Site

MOST_POSITIONS = 32
"""Sites of a class whose positions are kept, spread over the model."""
FAMILY, NETWORK = "rewritegym.family", "rewritegym.network"
"""Entries of a file's metadata that name the family of a generated network, and the network."""


def model_part(graph: Graph, uri: str, family: str, metadata: Mapping[str, str]) -> SharedPart:
    """Return the description of a model by its normalised graph.

    Args:
        uri: its name in the zoo; empty for files, whose names are nobody's business.
        family: the architecture that a model of the zoo belongs to.
        metadata: of the file.
    """
    operators: dict[str, int] = {}
    for node in graph.nodes.values():
        operators[node.op] = operators.get(node.op, 0) + 1
    return SharedPart.of(
        "model",
        {
            "uri": uri or metadata.get(NETWORK, ""), "family": family or metadata.get(FAMILY, ""),
            "fingerprint": fingerprint(graph), "fingerprint_any_size": fingerprint(graph, any_size=True),
            "opset": graph.opset, "nodes": len(graph.nodes), "operators": operators,
            "weight_bytes": weight_bytes(graph), "inputs": [str(graph.types[value]) for value in graph.inputs],
        },
    )  # fmt: skip


def shape_class_at(window: Graph, site: Site) -> str:
    """Return `graph_rewrite.experience.means.shape_class` of the chains in a window that begin at a site."""
    place = {node.id: number for number, node in enumerate(window.order())}
    matched = sorted({node.id for node in site.match.nodes if node.id in place}, key=place.__getitem__)
    nodes = (window.nodes[number] for number in matched)
    types = ((node, window.types[node.outputs[0]]) for node in nodes if node.outputs)
    return class_of_nodes((node.op, node.attrs, () if type is None else type.shape) for node, type in types)


class Positions:
    """The order of a whole graph, looked up once for many windows."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    @cached_property
    def _places(self) -> dict[int, float]:
        last = max(1, len(self.graph.nodes) - 1)
        return {node.id: round(number / last, 4) for number, node in enumerate(self.graph.order())}

    def of(self, sites: Sequence[Site]) -> list[float]:
        """Return where in the graph the sites are, from 0 at its inputs to 1 at its outputs, in their order."""
        return [self._places.get(site.anchor, 0.0) for site in sites[:: -(-len(sites) // MOST_POSITIONS) or 1]]

    def boundary(self, window: Graph) -> dict[str, Any]:
        """Return what gives each input of a window, and what reads each of its outputs outside: kinds of operators, or
        `input` and `output` of the model."""
        graph, inside = self.graph, window.nodes.keys()
        given = [
            graph.nodes[graph.producer[value]].op if value in graph.producer else "input" for value in window.inputs
        ]
        read: list[list[str]] = []
        for value in window.outputs:
            readers = {graph.nodes[n].op for n in graph.consumers.get(value, ()) if n not in inside}
            read.append(sorted(readers | ({"output"} if value in graph.roots() else set())))
        return {"given_by": given, "read_by": read}


class WindowTrace:
    """A window on its way through a chain of rewrites, which are described as the recorder of actions does.

    Names are those of `value_names`, so that no name of the user's file is in them. Traces share their beginnings: a
    step leads to a new one.
    """

    def __init__(self, graph: Graph, addresses: Addresses, steps: tuple[SharedPart, ...] = ()) -> None:
        self.graph, self.steps = graph, steps
        self._around = Surroundings(graph, addresses)

    @classmethod
    def begin(cls, window: Graph) -> tuple[WindowTrace, SharedPart]:
        """Return the trace of a window before its first rewrite, and the description of the window."""
        names = value_names(window)
        given = {value: name for value, name in names.items() if not name.startswith("c")}
        named = replace(window, names=given, memo=GraphMemo(), edit=None)
        return cls(window, Addresses(named)), SharedPart.of("window", structure_of(window, names))

    def then(self, sites: Sequence[Site], insertions: Iterable[Insertion], after: Graph) -> WindowTrace:
        """Return the trace after a rewrite.

        Args:
            sites: the sites that were offered to it, in their order.
            insertions: the nodes that it inserted, by site.
            after: the window after it.
        """
        at = [{**self._around.record(site).to_json(), "where": ""} for site in sites]
        step = SharedPart.of(
            "step",
            {
                "rule": sites[0].rule.name, "family": sites[0].rule.family, "sites": len(sites),
                "kind": "class" if len(sites) > 1 else "site", "at": at, "after": fingerprint(after),
            },
        )  # fmt: skip
        addresses = self._around.addresses.copy()
        addresses.follow(after, list(insertions))
        return WindowTrace(after, addresses, (*self.steps, step))
