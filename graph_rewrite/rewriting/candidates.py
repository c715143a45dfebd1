"""Candidates: valid rewrites of one graph, for one site or for all sites of a class, built lazily."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest, text_digest
from graph_rewrite.ir.node import Node
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.rewriting.matching import Match
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule


@dataclass(eq=False)
class Site:
    """One valid application of a rule: what it removes and what it puts in its place."""

    rule: Rule
    rule_index: int
    match: Match
    replacement: Replacement
    removed: tuple[Node, ...]
    memo: dict[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def anchor(self) -> int:
        """Id of the node where the match starts."""
        return self.match.anchor.id

    @cached_property
    def several_roots(self) -> bool:
        """Whether the rule replaces several values at once, which can make a cycle."""
        return len(self.match.root_values) > 1

    @cached_property
    def key(self) -> tuple[frozenset[int], str]:
        """Sites with equal keys lead to the same graph."""
        return frozenset(node.id for node in self.removed), self.replacement.key

    @cached_property
    def class_key(self) -> str:
        """Equal for the same rule at places with the same local structure and shapes, that is, where the same operators
        on the same types go and come."""
        types, gone = self.match.graph.types, {node.id for node in self.removed}
        texts = [self.rule.name]
        for node in self.match.nodes:
            texts.append(node.signature if node.id in gone else f"kept {node.signature}")
            texts += ["-" if value is None else str(types[value]) for value in node.inputs]
            texts += [str(types[value]) for value in node.outputs]
        return text_digest([*texts, self.replacement.shape_key])

    @cached_property
    def description(self) -> str:
        before = " ".join(node.op for node in self.match.nodes)
        after = " ".join(node.op for node in self.replacement.nodes) or "nothing"
        return f"{self.rule.name} at {site_name(self.match.graph, self.match)}: {before} -> {after}"

    def apply_to(self, editor: GraphEditor) -> bool:
        """Apply within an edit; False when an earlier part of the edit took the site away."""
        if any(editor.nodes.get(node.id) is not node for node in self.match.nodes):
            return False
        if any(value not in editor.types for value in self.replacement.externals()):
            return False
        before = (editor.ranks[self.match.anchor.id], self.match.root_values)
        for node in self.removed:
            editor.remove(node)
        _insert(editor, self.replacement, *before)
        # What only the replaced nodes used, and interior nodes that two sites of a class shared.
        values = {v for node in self.match.nodes for v in (*node.inputs, *node.outputs) if v is not None}
        editor.remove_dead(values)
        editor.forget(values)
        return True


def build_site(rule: Rule, index: int, match: Match) -> Site | Refusal:
    """Check a match and build what replaces it.

    Returns a Refusal where the condition fails, types don't fit, values escape, or nothing would change.
    """
    refusal = rule.check(match, *match.refs)
    if refusal is not None:
        return refusal
    builder = ReplacementBuilder(match.opset)
    try:
        result = rule.target(builder, match, *match.refs)
    except TypeInferenceError as error:
        return Refusal(f"the target has no valid types: {error}")
    if isinstance(result, Refusal):
        return result
    outputs: tuple[Ref, ...] = result if isinstance(result, tuple) else (result,)
    for output, value in zip(outputs, match.root_values, strict=True):
        if output.type != match.graph.types[value]:
            return Refusal(f"the target gives {output.type}, the source {match.graph.types[value]}")
    replacement = builder.finish(outputs)
    removed = _removable(rule, match, replacement)
    if isinstance(removed, Refusal):
        return removed
    if _needs_name(match, outputs):
        return Refusal("an output or a subgraph knows the value by a name that what replaces it cannot bear")
    if _unchanged(match, replacement, removed):
        return Refusal("the target is what is there already")
    return Site(rule, index, match, replacement, removed)


def _removable(rule: Rule, match: Match, replacement: Replacement) -> tuple[Node, ...] | Refusal:
    """Matched nodes that are dead once the roots are replaced."""
    graph, roots, kept = match.graph, set(match.root_values), replacement.externals()
    live = graph.roots()
    if roots & kept:
        return Refusal("what replaces a value would read it: that would make a cycle")
    removed: dict[int, Node] = {}
    pending = sorted(match.nodes, key=lambda node: -graph.ranks[node.id])
    for node in pending:
        is_root = any(value in roots for value in node.outputs)
        dead = True
        for value in node.outputs:
            if value in roots:
                continue
            match._reads.add(value)
            used = value in live or value in kept or any(c not in removed for c in graph.consumers.get(value, ()))
            dead = dead and not used
        if dead:
            removed[node.id] = node
        elif is_root:
            return Refusal(f"another output of {node.op} is used elsewhere")
        elif not rule.shared_interior and not any(v in kept for v in node.outputs):
            return Refusal(f"the result of the inner {node.op} is used elsewhere")
    return tuple(removed.values())


def _needs_name(match: Match, outputs: tuple[Ref, ...]) -> bool:
    """Whether a root would become a second name of another value that a subgraph or an output needs: a saved model
    would get it by an Identity, so nothing would be gained."""
    graph = match.graph
    for output, value in zip(outputs, match.root_values, strict=True):
        if output.node >= 0:
            continue
        match._reads.add(value)
        if _is_captured(graph, value):
            return True
        if value in graph.roots() and output.external is not None:
            match._reads.add(output.external)
            named = output.external in graph.roots() or output.external in graph.stored
            if named or output.external in graph.inputs or _is_captured(graph, output.external):
                return True
    return False


def _is_captured(graph: Graph, value: int) -> bool:
    return any(graph.nodes[node_id].captures for node_id in graph.consumers.get(value, ()))


def _unchanged(match: Match, replacement: Replacement, removed: tuple[Node, ...]) -> bool:
    """Whether the replacement computes the roots by the operators that are there already."""
    if sorted(node.signature for node in replacement.nodes) != sorted(node.signature for node in removed):
        return False
    constants, ranks = match.graph.constants, match.graph.ranks
    before: dict[int, Any] = {}
    for node in sorted(removed, key=lambda node: ranks[node.id]):
        sources = tuple(
            None if v is None else constants[v].digest if v in constants else before.get(v, v) for v in node.inputs
        )
        before.update((value, (node.signature, sources, i)) for i, value in enumerate(node.outputs))
    after: dict[str, Any] = {}
    for k, made in enumerate(replacement.nodes):
        sources = tuple(_identity(ref, after) for ref in made.inputs)
        after.update((f"n{k}.{i}", (made.signature, sources, i)) for i in range(len(made.types)))
    results = [_identity(output, after) for output in replacement.outputs]
    return results == [before.get(value, value) for value in match.root_values]


def _identity(ref: Ref | None, made: dict[str, Any]) -> Any:
    if ref is None:
        return None
    if ref.constant is not None:
        return ref.constant.digest
    return ref.external if ref.external is not None else made[ref.key]


def makes_cycle(graph: Graph | GraphEditor, site: Site) -> bool:
    """Whether a site with several roots would make a cycle: an input of its replacement depends on what it computes.

    Not part of the match: a rewrite elsewhere can make one root depend on the other.
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


def _insert(editor: GraphEditor, replacement: Replacement, rank: float, roots: tuple[int, ...]) -> None:
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
        editor.insert(node.op, node.domain, node.attrs, inputs, outputs, low + step * (i + 1), node.signature)
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
    """A name a person can find in the model: the node's own, or that of the value it computes."""
    node = match.anchor
    if node.proto is not None and node.proto.name:
        return node.proto.name
    return graph.names.get(node.outputs[0], f"#{node.id}")


@dataclass(eq=False, slots=True)
class Candidate:
    """A valid action: a rewrite of one site, of all sites of a class, or a refused runtime optimiser."""

    kind: Literal["site", "class", "deployment"]
    graph: Graph
    sites: tuple[Site, ...] = ()
    disabled_optimizers: frozenset[str] = frozenset()
    label: str = ""
    _key: str | None = field(default=None, repr=False)

    @property
    def rule(self) -> str:
        """The rule's name; for deployment choices the name of the choice."""
        return self.sites[0].rule.name if self.sites else self.label

    @property
    def site(self) -> Site:
        """The representative site."""
        return self.sites[0]

    @property
    def count(self) -> int:
        """Number of sites; 1 for a deployment choice."""
        return max(1, len(self.sites))

    @property
    def description(self) -> str:
        if self.kind == "deployment":
            return self.label
        if self.kind == "class":
            return f"{self.site.description} (all {len(self.sites)} sites of this kind)"
        return self.site.description

    @property
    def key(self) -> str:
        """Identifies the action among the candidates of its graph; stable over replays."""
        if self._key is None:
            if self.kind == "deployment":
                self._key = digest("deployment", sorted(self.disabled_optimizers))
            else:
                self._key = digest(self.kind, *((sorted(site.key[0]), site.key[1]) for site in self.sites))
        return self._key

    def apply(self) -> Graph:
        """The graph after this rewrite; the graph before is not changed. Sites of a class that overlap with an
        earlier one are left out. A new graph every time: candidates of a model's first graph live as long as the
        model, and would hold all that was ever tried."""
        editor = GraphEditor(self.graph)
        if self.kind == "deployment":
            editor.disabled_optimizers = self.disabled_optimizers
        for site in self.sites:
            if editor.nodes.get(site.anchor) is site.match.anchor and not (
                site.several_roots and makes_cycle(editor, site)
            ):
                site.apply_to(editor)
        graph, delta = editor.finish()
        graph.memo["edit"] = (self.graph, delta)
        return graph
