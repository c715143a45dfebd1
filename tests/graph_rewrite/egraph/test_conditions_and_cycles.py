"""Rules on e-graphs that would close a cycle, or whose conditions look beyond the pattern."""

from __future__ import annotations

from typing import Any

import pytest

from graph_rewrite import Refusal, Rule
from graph_rewrite.egraph import apply_rule, saturate
from graph_rewrite.egraph.costs import costed
from graph_rewrite.egraph.extract import METHODS, extract
from graph_rewrite.rewriting.faults import RuleFaults
from tests.graph_rewrite.egraph.algebra import TermRule, term_egraph
from tests.graph_rewrite.egraph.test_rules import acyclic


def test_a_target_that_reads_its_own_source_is_left_out() -> None:
    egraph = term_egraph(("f", "a"))
    report = apply_rule(egraph, TermRule("grow", ("f", "?x"), ("f", ("f", "?x"))))
    assert report.applied == 1  # f(f(a)) = f(a): a is equal to nothing new, but f reads its own class
    assert report.filtered == 1
    assert acyclic(egraph)
    allowed = term_egraph(("f", "a"))
    apply_rule(allowed, TermRule("grow", ("f", "?x"), ("f", ("f", "?x"))), cycles="allow")
    assert not acyclic(allowed)
    for method in METHODS:
        assert extract(costed(allowed).graph, method).acyclic


class Pair(Rule):
    """f(x), g(y) = h(x, y), k(x, y): two roots that may depend on each other"""

    def source(self, op: Any, x: Any) -> Any:
        return op.f(x), op.g(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        joined = op.h(x, m.root(0))
        return joined, op.k(joined)


def test_matches_that_would_close_a_cycle_are_skipped() -> None:
    egraph = term_egraph(("f", "a"), ("g", "a"))
    report = apply_rule(egraph, Pair())
    assert (report.matches, report.cyclic, report.applied) == (1, 1, 0)


class Beyond(Rule):
    """f(x) = g(x), where x is read once and made by h"""

    def source(self, op: Any, x: Any) -> Any:
        return op.f(x)

    def check(self, m: Any, x: Any) -> Refusal | None:
        producer = m.producer(x)
        if len(m.consumers(x)) != 1 or producer is None or producer.op != "h":
            return Refusal("x is read elsewhere, or not made by h")
        return None

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.g(x)


def test_conditions_beyond_the_pattern_need_one_answer() -> None:
    rule = Beyond()
    assert apply_rule(term_egraph(("f", ("h", "a"))), rule).applied == 1
    assert apply_rule(term_egraph(("f", ("h", "a")), ("k", ("h", "a"))), rule).refused == 1
    several = term_egraph(("f", ("h", "a")), "b")
    several.union(several.args(several.members(several.roots[0])[0])[0], several.roots[1])
    several.rebuild()
    report = apply_rule(several, rule)
    assert report.reasons == {"several operators compute the value": 1}
    twice = term_egraph(("f", ("h", "a")), ("k", ("h", "a")))
    twice.union(*twice.roots)
    twice.rebuild()
    assert apply_rule(twice, rule).reasons == {"several operators that compute the same read the value": 1}


def test_a_condition_beyond_the_pattern_is_asked_again() -> None:
    egraph = term_egraph(("f", ("h", "a")), ("k", ("h", "a")))
    rule = Beyond()
    assert apply_rule(egraph, rule).refused == 1
    assert apply_rule(egraph, rule).refused == 1, "readers may have changed, so the match is tried again"


class Faulty(TermRule):
    """A rule whose target has a bug."""

    def target(self, op: Any, m: Any, *variables: Any) -> Any:
        raise KeyError("a bug")


def test_a_bug_in_a_rule_goes_through_or_is_counted() -> None:
    rule = Faulty("faulty", ("f", "?x"), "?x")
    with pytest.raises(KeyError) as raised:
        apply_rule(term_egraph(("f", "a")), rule)
    assert "rule faulty" in raised.value.__notes__[0]
    faults, working = RuleFaults(), TermRule("one", ("g", "?x"), "?x")
    egraph = term_egraph(("f", "a"), ("f", "b"), ("g", "a"))
    done = saturate(egraph, [rule, working], k_multi=0, faults=faults)
    assert faults.counts == {"faulty": 2}
    assert "KeyError" in faults.tracebacks["faulty"]
    assert done.by_rule()["one"].applied == 1
