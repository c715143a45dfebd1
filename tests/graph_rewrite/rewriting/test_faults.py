"""Exceptions in a rule's own code: they surface, or a collector counts them by rule."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from graph_rewrite import Refusal, Rewriter, Rule
from graph_rewrite.egraph import apply_rule, from_graph
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.rewriting.faults import RuleFaults
from tests.graph_rewrite.rules.checking import model


class Relus(Rule):
    """Relu(x) = Max(x, 0)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Max(x, op.constant(np.float32(0)))


class FailsInCheck(Relus):
    """Relu(x) = Max(x, 0), with a bug in the condition"""

    def check(self, m: Any, x: Any) -> Refusal | None:
        raise KeyError("no such attribute")


class FailsInTarget(Relus):
    """Relu(x) = Max(x, 0), with a bug in the target"""

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Max(x, op.constant(np.zeros(2).reshape(3)))


class TooManyOutputs(Relus):
    """Relu(x) = Max(x, 0), twice"""

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x, x


class Nothing(Relus):
    """Relu(x) = Max(x, 0), forgotten"""

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return None


class Invalid(Relus):
    """Relu(x) = Max(x, 0), where it can be"""

    def target(self, op: Any, m: Any, x: Any) -> Any:
        raise InvalidRewriteError("there is no such graph")


FAULTY = [FailsInCheck(), FailsInTarget(), TooManyOutputs(), Nothing()]
GRAPH = "(float[4] x) => (z) { y = Relu(x) z = Relu(y) }"


@pytest.mark.parametrize("rule", FAULTY, ids=lambda rule: rule.name)
def test_a_bug_goes_through_and_names_the_rule(rule):
    with pytest.raises((KeyError, ValueError, AttributeError)) as caught:
        Rewriter([rule]).candidates(model(GRAPH))
    assert any(f"rule {rule.name}" in note for note in caught.value.__notes__)


def test_a_collector_counts_by_rule_and_the_others_go_on():
    faults, graph = RuleFaults(), model(GRAPH)
    found = Rewriter([*FAULTY, Relus()], granularity="site", deployment=False, faults=faults).candidates(graph)
    assert [candidate.rule for candidate in found] == ["Relus", "Relus"]
    assert faults.counts == {rule.name: 2 for rule in FAULTY}
    assert "rule FailsInCheck raised 2 times" in str(faults)
    assert "KeyError: 'no such attribute'" in faults.tracebacks["FailsInCheck"]
    assert "in check" in faults.tracebacks["FailsInCheck"]


def test_explain_says_that_the_rule_has_a_bug():
    faults = RuleFaults()
    reasons = [refusal.reason for refusal in Rewriter([FailsInCheck()], faults=faults).explain(model(GRAPH))]
    assert reasons == ["the rule has a bug: KeyError: 'no such attribute'"] * 2


def test_an_invalid_rewrite_is_no_fault():
    faults = RuleFaults()
    rewriter = Rewriter([Invalid()], deployment=False, faults=faults)
    assert not rewriter.candidates(model(GRAPH))
    assert [refusal.reason for refusal in rewriter.explain(model(GRAPH))] == ["there is no such graph"] * 2
    assert not faults


def test_narrowed_enumeration_counts_as_well():
    faults = RuleFaults()
    rewriter = Rewriter([Relus(), FailsInCheck()], faults=faults)
    assert not rewriter.candidates_by(model(GRAPH), ["FailsInCheck"])
    assert faults.counts == {"FailsInCheck": 2}


def test_a_bug_in_an_e_graph_names_the_rule():
    with pytest.raises(KeyError) as caught:
        apply_rule(from_graph(model(GRAPH)), FailsInCheck())
    assert any("rule FailsInCheck" in note for note in caught.value.__notes__)


def test_collectors_of_several_processes_add_up():
    ours, theirs = RuleFaults(), RuleFaults()
    ours.record("A", KeyError("first"))
    theirs.record("A", KeyError("second"))
    theirs.record("B", ValueError("third"))
    ours.add(pickle.loads(pickle.dumps(theirs)))
    assert ours.counts == {"A": 2, "B": 1}
    assert "first" in ours.tracebacks["A"]
    assert "third" in ours.tracebacks["B"]
