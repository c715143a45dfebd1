"""A small rule of the tests' own, and certificates of rules."""

from dataclasses import replace
from typing import Any

from graph_rewrite import Rule
from graph_rewrite.rules.certification import Certificate
from graph_rewrite.soundness.verification.verifier import verify


class AbsTwice(Rule):
    """Abs(Abs(x)) = Abs(x)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(op.Abs(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Abs(x)


def certified(rule: Rule, **changes: Any) -> Certificate:
    found = verify(rule, fast=False, limit=2)
    assert isinstance(found, Certificate), found
    return replace(found, **changes)
