"""Building of sites: a rule's condition and target are run at a match, and what they give is checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rewriting.sites import Site, site_name
from graph_rewrite.rewriting.templates import Templates

_TEMPLATES = Templates()
"""Those of all graphs of the process."""


def build_replacement(
    rule: Rule,
    match: Match,
    builder: Callable[[], ReplacementBuilder],
    roots: Callable[[], Iterable[TensorType | None]],
    faults: RuleFaults | None,
    templates: Templates | None = None,
) -> Replacement | Refusal:
    """Run a rule's `check` and `target` at a match. Graphs and e-graphs share this function.

    Args:
        rule: the rule whose pattern is matched.
        match: the match, over a graph or an e-graph.
        builder: makes an empty builder, which becomes `op` in the target. Most matches end at the condition, so it is
            called where the target is built.
        roots: gives the types of the values to be replaced, in the order of the pattern's roots.
        faults: collects exceptions that the rule raises; with None they go through, with a note that names the rule.
        templates: of a match over a graph, for a rule that allows it: what was built at matches of the same structure.

    Returns:
        The replacement, or a Refusal where the condition fails or the target has no valid types.
    """
    try:
        refusal = rule.check(match, *match.refs)
        if refusal is not None:
            return refusal
        known = None if templates is None else templates.replacement(rule, match)
        if known is not None:
            return known
        op = builder()
        result = rule.target(op, match, *match.refs)
        if isinstance(result, Refusal):
            return result
        outputs: tuple[Ref, ...] = result if isinstance(result, tuple) else (result,)
        for output, wanted in zip(outputs, roots(), strict=True):
            if output.type != wanted:
                return Refusal(f"the target gives {output.type}, the source {wanted}")
        replacement = op.finish(outputs)
        if templates is not None:
            templates.keep(rule, match, op, replacement)
        return replacement
    except TypeInferenceError as error:
        return Refusal(f"the target has no valid types: {error}")
    except InvalidRewriteError as error:
        return Refusal(str(error))
    except Exception as error:
        # Anything else is a bug in the rule: see `RuleFaults`.
        if faults is None:
            error.add_note(f"This exception comes from the code of rule {rule.name}.")
            raise
        faults.record(rule.name, error)
        return Refusal(f"the rule has a bug: {type(error).__name__}: {error}")


def build_site(rule: Rule, index: int, match: Match, faults: RuleFaults | None = None) -> Site | Refusal:
    """Check a match and build what replaces it.

    Returns:
        The site, or a Refusal where the condition fails, types do not fit, values are used outside the match, or
        nothing would change.
    """
    types = match.graph.types
    replacement = build_replacement(
        rule, match, lambda: ReplacementBuilder(match.opset), lambda: [types[v] for v in match.root_values], faults,
        _TEMPLATES if rule.by_structure else None,
    )  # fmt: skip
    if isinstance(replacement, Refusal):
        return replacement
    removed = _removable(rule, match, replacement)
    if isinstance(removed, Refusal):
        return removed
    if _needs_name(match, replacement.outputs):
        return Refusal("an output or a subgraph knows the value by a name that what replaces it cannot bear")
    if _unchanged(match, replacement, removed):
        return Refusal("the target is what is there already")
    near = {v: types[v] for node in (*match.nodes, *removed) for v in (*node.inputs, *node.outputs) if v is not None}
    constants = frozenset(near.keys() & match.graph.constants.keys())
    name = site_name(match.graph, match)
    match.release()
    return Site(rule, index, match, replacement, removed, near, constants, name)


def _removable(rule: Rule, match: Match, replacement: Replacement) -> tuple[Node, ...] | Refusal:
    """Return the nodes that are dead once the roots are replaced: matched ones, then those above that nothing else
    reads from."""
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
            match.record_read(value)
            used = value in live or value in kept or any(c not in removed for c in graph.consumers.get(value, ()))
            dead = dead and not used
        if dead:
            removed[node.id] = node
        elif is_root:
            return Refusal(f"another output of {node.op} is used elsewhere")
        elif not rule.shared_interior and not any(v in kept for v in node.outputs):
            return Refusal(f"the result of the inner {node.op} is used elsewhere")
    open_values = [value for node in removed.values() for value in node.inputs]
    while open_values:
        read = open_values.pop()
        above = None if read is None else graph.node_of(read)
        if above is None or above.opaque or above.id in removed or not kept.isdisjoint(above.outputs):
            continue
        for output in above.outputs:
            match.record_read(output)
        if all(v not in live and removed.keys() >= set(graph.consumers.get(v, ())) for v in above.outputs):
            removed[above.id] = above
            open_values += above.inputs
    return tuple(removed.values())


def _needs_name(match: Match, outputs: tuple[Ref, ...]) -> bool:
    """Tell whether a root would become a second name of a value that a subgraph or an output knows by another name. A
    saved model would need an Identity for it, so nothing would be gained."""
    graph = match.graph
    for output, value in zip(outputs, match.root_values, strict=True):
        if output.node >= 0:
            continue
        match.record_read(value)
        if _is_captured(graph, value):
            return True
        if value in graph.roots() and output.external is not None:
            match.record_read(output.external)
            named = output.external in graph.roots() or output.external in graph.stored
            if named or output.external in graph.inputs or _is_captured(graph, output.external):
                return True
    return False


def _is_captured(graph: Graph, value: int) -> bool:
    return any(graph.nodes[node_id].captures for node_id in graph.consumers.get(value, ()))


def _unchanged(match: Match, replacement: Replacement, removed: tuple[Node, ...]) -> bool:
    """Tell whether the replacement computes the roots by the operators that compute them already."""
    if len(replacement.nodes) != len(removed):
        return False
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
