"""Sites: valid applications of rules in one graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import text_digest
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, Replacement
from graph_rewrite.rewriting.rule import Rule


@dataclass(eq=False)
class Site:
    """One valid application of a rule: what it removes and what it puts in its place.

    A site stays valid in later graphs until an edit touches what it reads. So it holds no graph, or the graph in which
    it was found would live as long.
    """

    rule: Rule
    rule_index: int
    match: Match
    replacement: Replacement
    removed: tuple[Node, ...]
    """Matched nodes, then those above them that nothing else reads from."""
    types: Mapping[int, TensorType | None]
    """Types of the operands and results of the matched and the removed nodes."""
    constants: frozenset[int]
    """Those of these values that are constants."""
    name: str
    """Name of the anchor that a person can find in the model."""
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def anchor(self) -> int:
        """Return the id of the node where the match starts."""
        return self.match.anchor.id

    @cached_property
    def several_roots(self) -> bool:
        """Tells whether the rule replaces several values at once, which can make a cycle."""
        return len(self.match.root_values) > 1

    @cached_property
    def key(self) -> tuple[frozenset[int], str]:
        """Return a key that is equal for sites that lead to the same graph."""
        return frozenset(node.id for node in self.removed), self.replacement.key

    @cached_property
    def class_key(self) -> str:
        """Return a key that is equal for the same rule at sites with the same local structure and shapes: the same
        operators on the same types are removed and inserted."""
        types, matched, gone = self.types, self.match.nodes, {node.id for node in self.removed}
        texts = [self.rule.name]
        for node in (*matched, *(node for node in self.removed if node not in matched)):
            texts.append(node.signature if node.id in gone else f"kept {node.signature}")
            texts += ["-" if value is None else str(types[value]) for value in node.inputs]
            texts += [str(types[value]) for value in node.outputs]
        return text_digest([*texts, self.replacement.shape_key])

    @cached_property
    def description(self) -> str:
        before = " ".join(node.op for node in self.match.nodes)
        after = " ".join(node.op for node in self.replacement.nodes) or "nothing"
        return f"{self.rule.name} at {self.name}: {before} -> {after}"

    def apply_to(self, editor: GraphEditor) -> bool:
        """Apply within an edit; return False if an earlier site of the edit has removed what this one needs."""
        if any(editor.nodes.get(node.id) is not node for node in self.match.nodes):
            return False
        if any(value not in editor.types for value in self.replacement.externals()):
            return False
        anchor = self.match.anchor
        origin = (anchor.origin[0] if anchor.origin else self.name, self.rule.name)
        before = (editor.ranks[anchor.id], self.match.root_values)
        for node in self.removed:
            if node in self.match.nodes:
                editor.remove(node)
        _insert(editor, self.replacement, *before, origin)
        # What only the replaced nodes used, also where another site of a class used it too.
        values = {v for node in self.match.nodes for v in (*node.inputs, *node.outputs) if v is not None}
        editor.remove_dead(values)
        editor.forget(values)
        return True


def makes_cycle(graph: Graph | GraphEditor, site: Site) -> bool:
    """Tell whether a site with several roots would make a cycle: an input of its replacement depends on a root.

    This is not part of the match, because a rewrite elsewhere can make one root depend on the other.
    """
    targets = set(site.match.root_values)
    ranks, producer = graph.ranks, graph.producer
    floor = min(ranks[producer[value]] for value in targets) if isinstance(graph, Graph) else float("-inf")
    stack, seen = list(site.replacement.externals() - targets), set()
    while stack:
        value = stack.pop()
        if value in targets:
            return True
        node_id = producer.get(value)
        if node_id is not None and node_id not in seen and ranks[node_id] >= floor:
            seen.add(node_id)
            stack.extend(v for v in graph.nodes[node_id].inputs if v is not None)
    return False


def _insert(
    editor: GraphEditor, replacement: Replacement, rank: float, roots: tuple[int, ...], origin: tuple[str, str]
) -> None:
    made: dict[tuple[int, int], int] = {}
    for output, value in zip(replacement.outputs, roots, strict=True):
        if output.node >= 0 and (output.node, output.index) not in made:
            made[output.node, output.index] = value
    constants: dict[str, int] = {}
    low = max(
        (editor.ranks[editor.producer[v]] for v in replacement.externals() if v in editor.producer), default=rank - 1
    )
    high = min((editor.ranks[c] for v in roots for c in editor.consumers.get(v, ())), default=max(rank, low) + 1)
    step = (high - low) / (len(replacement.nodes) + 1)
    for i, node in enumerate(replacement.nodes):
        inputs = [_value_id(editor, ref, made, constants) for ref in node.inputs]
        outputs = []
        for index, type in enumerate(node.types):
            if (i, index) not in made:
                made[i, index] = editor.new_value(type)
            outputs.append(made[i, index])
        held, place = node.rewritten, low + step * (i + 1)
        if held is None:
            editor.insert(node.op, node.domain, node.attrs, inputs, outputs, place, node.signature, origin)
        else:
            opaque = (held.proto, held.captures, held.bodies)
            editor.insert(node.op, node.domain, node.attrs, inputs, outputs, place, node.signature, origin, *opaque)
    for output, value in zip(replacement.outputs, roots, strict=True):
        target = _value_id(editor, output, made, constants)
        if target is not None and target != value:
            editor.replace_value(value, target)
            editor.forget((value,))


def _value_id(
    editor: GraphEditor, ref: Ref | None, made: dict[tuple[int, int], int], constants: dict[str, int]
) -> int | None:
    if ref is None:
        return None
    if ref.external is not None:
        return ref.external
    if ref.constant is not None:
        if ref.constant.digest not in constants:
            constants[ref.constant.digest] = editor.new_value(ref.type, ref.constant)
        return constants[ref.constant.digest]
    return made[ref.node, ref.index]


def site_name(graph: Graph, match: Match) -> str:
    """Return a name that a person can find in the model: the node's own, or that of the value it computes."""
    node = match.anchor
    if node.proto is not None and node.proto.name:
        return node.proto.name
    return graph.names.get(node.outputs[0], f"#{node.id}")
