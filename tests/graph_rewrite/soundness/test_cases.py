"""Cases: source graphs that are written down for rules."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules import find_rule
from graph_rewrite.soundness.cases.lookup import CASES, cases_of


@pytest.mark.parametrize("name", sorted(CASES))
def test_cases_are_of_a_rule_that_applies_to_one_of_them(name):
    rule = find_rule(name)
    rewriter = Rewriter([rule.at_any_size], deployment=False)
    assert any(rewriter.candidates(graph) for graph in cases_of(rule))


def test_most_rules_need_none():
    assert not list(cases_of(find_rule("TransposeAfterUnary")))
