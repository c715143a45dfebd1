"""Lookup of the cases of a rule: by its name, by its class, or from the rule itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.soundness.cases import (
    bands,
    blocked,
    channel_padding,
    convolution,
    embedding,
    moves,
    pooling,
    products,
    projections,
    quantised,
    rows,
    substitutions,
)

CASES: Mapping[str, Callable[[Any], Iterable[Graph]]] = {
    **bands.CASES,
    **blocked.CASES,
    **channel_padding.CASES,
    **convolution.CASES,
    **embedding.CASES,
    **moves.CASES,
    **pooling.CASES,
    **products.CASES,
    **projections.CASES,
    **quantised.CASES,
    **rows.CASES,
}
"""Functions of a registered rule that give its cases, by the rule's name."""


def cases_of(rule: Rule) -> Iterable[Graph]:
    """Return source graphs at which a rule applies, beside those that are made from its pattern; often there are none.

    A rule outside this package, such as one in a user's file, gives its own by a method `cases(self)`.
    """
    own: Callable[[], Iterable[Graph]] | None = getattr(rule, "cases", None)
    if own is not None:
        return own()
    if isinstance(rule, SubstitutionRule):
        return substitutions.small_graphs(rule)
    made = CASES.get(rule.name)
    return () if made is None else made(rule)
