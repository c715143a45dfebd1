"""Rules for `--strict`: those that keep every value, also the ones that networks do not compute with."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import certification

NO_KERNEL = "a run in ONNX Runtime where that has no kernel for the source"
"""The loss in a certificate that says nothing about values."""


def strict_rules(rules: Sequence[Rule]) -> tuple[Rule, ...]:
    """Return the rules whose target gives what their source gives for every input, as far as their certificates know:
    NaN and infinities, numbers near the ends of the range, and the sign of zero. A rule without a certificate is left
    out."""
    return tuple(rule for rule in rules if not losses(rule))


def losses(rule: Rule) -> frozenset[str]:
    """Return what a rule does not keep: what it declares itself, and what its verification found."""
    certificate = certification.load(rule.name, rule.origin)
    found = {"anything that a certificate would name"} if certificate is None else {*certificate.lost} - {NO_KERNEL}
    return rule.lossy | found
