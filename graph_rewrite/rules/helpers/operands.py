"""Operands of matched operators: their order, and what else reads them."""

from __future__ import annotations

from collections.abc import Iterable

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rules.helpers.axes import stripped
from graph_rewrite.rules.helpers.constants import varies_along


def operands(m: Match, label: str) -> tuple[Ref, ...]:
    """Return the inputs of the matched node with this label in the order that they have in the graph. A target that
    uses it is the same for both orders in which commuting operands match."""
    return tuple(m.ref(value) for value in m.node(label).inputs if value is not None)


def in_order(m: Match, label: str, first: Ref, replaced: Ref, other: Ref) -> tuple[Ref, Ref]:
    """Return `(replaced, other)` as the two operands of the matched node: `replaced` stands where `first` stood."""
    return (replaced, other) if m.node(label).inputs[0] == first.external else (other, replaced)


def ordered(first: Ref, second: Ref) -> bool:
    """Compare two values in an arbitrary but fixed order of a graph's values, so that an equation which is symmetric in
    two of them gives one rewrite and not two."""
    return (first.external or 0) <= (second.external or 0)


def has_bias(m: Match, product: Ref) -> bool:
    """Tell whether the Add of a constant bias per column is all that reads a product. Rules for the pair apply then,
    and one for the product alone would only leave the bias behind."""
    readers = m.consumers(product)
    if len(readers) != 1 or readers[0].op != "Add" or readers[0].domain or m.is_output(product):
        return False
    others = [value for value in readers[0].inputs if value is not None and value != product.external]
    constant = m.graph.constants.get(others[0]) if others else None
    return constant is not None and varies_along(Ref(constant.type), 1, product.shape[-1])


def refuse_broadcast_scale(parameters: Iterable[Ref | None], axes: int) -> Refusal | None:
    """Refuse a scale or shift of a normalisation that varies along more than the axes, the last ones, that it
    normalises."""
    wide = any(p is not None and len(stripped(p.shape)) > axes for p in parameters)
    return Refusal("a scale or shift varies along more than the normalised axes") if wide else None
