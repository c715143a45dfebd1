"""The verifier on single rules."""

from dataclasses import replace
from typing import Any

import pytest

from graph_rewrite import Refusal
from graph_rewrite.rules.certification import Certificate
from graph_rewrite.rules.substitutions.rule_files import shipped_rules
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.soundness.verification.refutation import Refutation
from graph_rewrite.soundness.verification.verifier import decade, verify
from tests.graph_rewrite.soundness.verification.certified import AbsTwice


@pytest.mark.parametrize(("error", "text"), [(0.0, "0"), (3e-7, "1e-06"), (1e-7, "1e-07"), (2.0, "1e+01")])
def test_decades(error: float, text: str) -> None:
    assert decade(error) == text


def test_a_rule_without_instances_is_refused() -> None:
    class Never(AbsTwice):
        """Abs(Abs(x)) = Abs(x), never"""

        def check(self, m: Any, x: Any) -> Any:
            return Refusal("never")

    found = verify(Never(), fast=True)
    assert isinstance(found, Refutation)
    assert "no instance at which it applies" in str(found)


def test_a_rule_that_is_data_is_evaluated_at_all_small_shapes() -> None:
    merge = next(rule for rule in shipped_rules("taso") if rule.name == "Taso125")
    assert merge.substitution.conditions == ("one group",)
    found = verify(merge, fast=False, limit=1)
    assert isinstance(found, Certificate)
    assert found.methods["prime-field, small shapes"] > 1000
    wide = replace(merge.substitution, conditions=())
    refuted = verify(SubstitutionRule(wide, "Wide", "mine", "generated"), fast=False, limit=1)
    assert isinstance(refuted, Refutation)
    assert "x0: [1, 2, 1, 1], x1: [2, 1, 1, 1]" in str(refuted)
