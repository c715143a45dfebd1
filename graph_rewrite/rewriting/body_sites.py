"""Rewrites inside the bodies of If, Loop and Scan, as sites of the graph that holds the node.

To that graph such a site replaces one opaque node by another. What is inside is a candidate of the body, viewed as a
graph of its own: rules, matching and listing know nothing of bodies, and bodies in bodies take care of themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, lru_cache
from typing import cast

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import text_digest
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.body_views import body_views, operands_of
from graph_rewrite.onnx_files.body_writing import with_body
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.match import Bindings, Match
from graph_rewrite.rewriting.patterns import Pattern, PatternNode, PatternOutput
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementNode
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rewriting.sites import Site, site_name

MOST_KEPT = 32
"""Replacements that are kept: each holds a copy of its body."""


class BodySite(Site):
    """A rewrite inside the body of an opaque node.

    Args:
        graph: the graph that holds the node.
        node: an If, Loop or Scan.
        attribute: the attribute that holds the body.
        inner: a rewrite of the view of that body.
    """

    def __init__(self, graph: Graph, node: Node, attribute: str, inner: Candidate) -> None:
        self.attribute, self.inner = attribute, inner
        self.rule, self.rule_index = inner.site.rule, inner.site.rule_index
        self.match, self.removed = _match_of(graph, node), (node,)
        self.name = f"{site_name(graph, self.match)}/{attribute}/{inner.site.name}"
        self.match.release()
        read = {value for value in node.inputs if value is not None}
        self.types = {value: graph.types[value] for value in (*read, *node.outputs)}
        self.constants = frozenset(read & graph.constants.keys())
        self.memo = {}
        self._operands = operands_of(graph, node)

    @cached_property
    def several_roots(self) -> bool:
        return False  # all results are those of one node

    @property
    def replacement(self) -> Replacement:  # type: ignore[override]
        """Return the node with the other body; where there can be none, the node as it is."""
        return _made(self)[0]

    @cached_property
    def key(self) -> tuple[frozenset[int], str]:
        return frozenset({self.anchor}), text_digest(["body", self.attribute, self.inner.key])

    @cached_property
    def class_key(self) -> str:
        (node,) = self.removed
        types = [str(self.types.get(value)) for value in (*node.inputs, *node.outputs) if value is not None]
        return text_digest([self.rule.name, "body", node.signature, self.attribute, self.inner.key, *types])

    @cached_property
    def description(self) -> str:
        begin = len(f"{self.rule.name} at {self.inner.site.name}")
        return f"{self.rule.name} at {self.name}{self.inner.description[begin:]}"

    def apply_to(self, editor: GraphEditor) -> bool:
        """Apply within an edit; return False if an earlier site of the edit has changed the node.

        Raises:
            InvalidRewriteError: the body after the rewrite would not be valid, or much larger.
        """
        if reason := _made(self)[1]:
            raise InvalidRewriteError(reason)
        return super().apply_to(editor)

    def made(self) -> tuple[Replacement, str]:
        """Return the replacement, and why there is none but the node itself."""
        (node,) = self.removed
        types = tuple(cast(TensorType, self.types[value]) for value in node.outputs)
        outputs = tuple(Ref(type, node=0, index=i) for i, type in enumerate(types))
        try:
            held = with_body(node, self._operands, self.attribute, self.inner.apply())
        except InvalidRewriteError as error:
            inputs = self._refs(node.inputs)
            same = ReplacementNode(node.op, node.domain, dict(node.attrs), inputs, types, node.signature)
            return Replacement((same,), outputs), str(error)
        inputs = self._refs(held.inputs)
        other = ReplacementNode(node.op, node.domain, dict(held.attrs), inputs, types, held.signature, held)
        return Replacement((other,), outputs), ""

    def _refs(self, values: Iterable[int | None]) -> tuple[Ref | None, ...]:
        """Return operands; a value without a static type has none here."""
        known = dict(zip(self.removed[0].inputs, self._operands, strict=True))
        return tuple(None if v is None else Ref(cast(TensorType, known[v][0]), v, constant=known[v][1]) for v in values)


@lru_cache(maxsize=MOST_KEPT)
def _made(site: BodySite) -> tuple[Replacement, str]:
    return site.made()


def sites_inside(
    graph: Graph, node: Node, rewrites: Callable[[Graph], Iterable[Candidate]]
) -> dict[int, tuple[BodySite, ...]]:
    """Return the rewrites inside the bodies of a node, by the numbers of their rules in ascending order.

    Args:
        rewrites: lists the rewrites of a body.
    """
    found: dict[int, list[BodySite]] = {}
    for attribute, view in body_views(graph, node).items():
        for inner in rewrites(view):
            found.setdefault(inner.site.rule_index, []).append(BodySite(graph, node, attribute, inner))
    return {index: tuple(sites) for index, sites in sorted(found.items())}


def _match_of(graph: Graph, node: Node) -> Match:
    """Return a match of the node alone."""
    pattern = PatternNode(node.op, node.domain, (), {}, len(node.outputs), "node", False, False, frozenset({node.op}))
    roots = tuple(PatternOutput(pattern, i) for i in range(len(node.outputs)))
    return Match(graph, Pattern((), (pattern,), roots), Bindings(nodes={pattern: node}), set())


def refusals_inside(graph: Graph, node: Node, explain: Callable[[Graph], Iterable[Refusal]]) -> list[Refusal]:
    """Return the near misses inside the bodies of a node.

    Args:
        explain: returns those of a body.
    """
    found = list[Refusal]()
    for attribute, view in body_views(graph, node).items():
        place = f"{site_name(graph, _match_of(graph, node))}/{attribute}"
        found += [Refusal(refusal.reason, refusal.rule, f"{place}/{refusal.site}") for refusal in explain(view)]
    return found
