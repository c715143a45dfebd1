"""egglog as an oracle: on algebraic rule sets both reach the same equivalences and the same least tree cost. And the
phase-ordering example of the literature."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import pytest
from egglog.bindings import EggSmolError, ExtractBest
from egglog.bindings import EGraph as Egglog

from graph_rewrite.egraph import apply_rule, saturate
from graph_rewrite.egraph.costs import TreeCostTracker, costed
from graph_rewrite.egraph.extract import extract
from tests.graph_rewrite.egraph.algebra import (
    PHASE_ORDERING_LIMIT,
    PHASE_ORDERING_TERM,
    Term,
    TermRule,
    add_term,
    find_term,
    phase_ordering_rules,
    term_egraph,
)

X, Y, Z = "?x", "?y", "?z"
ASSOCIATE = [
    TermRule("left", ("Plus", X, ("Plus", Y, Z)), ("Plus", ("Plus", X, Y), Z)),
    TermRule("right", ("Plus", ("Plus", X, Y), Z), ("Plus", X, ("Plus", Y, Z))),
]
COMMUTE = [TermRule("swap", ("Plus", X, Y), ("Plus", Y, X))]
DISTRIBUTE = [
    TermRule("spread", ("Times", X, ("Plus", Y, Z)), ("Plus", ("Times", X, Y), ("Times", X, Z))),
    TermRule("factor", ("Plus", ("Times", X, Y), ("Times", X, Z)), ("Times", X, ("Plus", Y, Z))),
]
TRANSPOSE = [
    TermRule("out", ("Product", ("T", X), ("T", Y)), ("T", ("Product", Y, X))),
    TermRule("in", ("T", ("Product", X, Y)), ("Product", ("T", Y), ("T", X))),
    TermRule("sum", ("T", ("Plus", X, Y)), ("Plus", ("T", X), ("T", Y))),
    TermRule("unsum", ("Plus", ("T", X), ("T", Y)), ("T", ("Plus", X, Y))),
    TermRule("twice", ("T", ("T", X)), X),
]
SETS = {
    "associativity": (ASSOCIATE, ["Plus"]),
    "associativity and commutativity": (ASSOCIATE + COMMUTE, ["Plus"]),
    "distributivity": (DISTRIBUTE + COMMUTE, ["Plus", "Times"]),
    "transposes": (TRANSPOSE, ["Plus", "Product", "T"]),
}
ARITY = {"Plus": 2, "Times": 2, "Product": 2, "T": 1}
LEAVES = ("a", "b", "c", "d")


class Oracle:
    """egglog over the same terms and rules."""

    def __init__(self, rules: Sequence[TermRule]) -> None:
        self.egraph = Egglog()
        operators = " ".join(f"({op} {' '.join(['E'] * count)})" for op, count in ARITY.items())
        leaves = " ".join(f"({leaf})" for leaf in LEAVES)
        self.run(f"(datatype E {leaves} {operators})")
        for rule in rules:
            self.run(f"(rewrite {egglog_text(rule._source)} {egglog_text(rule._target)})")

    def run(self, text: str) -> list[Any]:
        return self.egraph.run_program(*self.egraph.parse_program(text))

    def equal(self, left: Term, right: Term) -> bool:
        try:
            self.run(f"(check (= {egglog_text(left)} {egglog_text(right)}))")
        except EggSmolError:
            return False
        return True

    def cost(self, term: Term) -> int:
        (best,) = self.run(f"(extract {egglog_text(term)})")
        assert isinstance(best, ExtractBest)
        return int(best.cost)


def egglog_text(term: Term) -> str:
    if isinstance(term, str):
        return term[1:] if term.startswith("?") else f"({term})"
    return f"({term[0]} {' '.join(map(egglog_text, term[1:]))})"


def random_term(rng: random.Random, operators: Sequence[str], size: int) -> Term:
    fitting = [op for op in operators if size > ARITY[op]]
    if not fitting:
        return rng.choice(LEAVES)
    op = rng.choice(fitting)
    if ARITY[op] == 1:
        return (op, random_term(rng, operators, size - 1))
    left = rng.randrange(1, size - 1)
    return (op, random_term(rng, operators, left), random_term(rng, operators, size - 1 - left))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("seed", range(3))
def test_egglog_reaches_the_same(name: str, seed: int) -> None:
    rules, operators = SETS[name]
    rng = random.Random(seed)
    terms = [random_term(rng, operators, size) for size in (7, 7, 5, 3)]
    # Cycles stay: egglog has no filter, and the equivalences are to be the same.
    egraph = term_egraph(*terms)
    oracle = Oracle(rules)
    for i, term in enumerate(terms):
        oracle.run(f"(let $t{i} {egglog_text(term)})")
    assert saturate(egraph, rules, iterations=30, node_limit=5000, cycles="allow", match_limit=None).saturated
    oracle.run("(run-schedule (saturate (run)))")
    probes = [*terms, *(shuffled(rng, term) for term in terms for _ in range(6))]
    known = [term for term in probes if find_term(egraph, term) is not None]
    for left, right in itertools.combinations(known, 2):
        assert (find_term(egraph, left) == find_term(egraph, right)) == oracle.equal(left, right), (left, right)
    for term in terms:
        egraph.roots = (add_term(egraph, term),)
        assert extract(costed(egraph).graph, "tree").estimate == oracle.cost(term)
    sizes = [int(line.split(":")[1]) for op in ARITY for line in sizes_of(oracle, op)]
    assert egraph.size - sum(find_term(egraph, leaf) is not None for leaf in LEAVES) == sum(sizes)


def sizes_of(oracle: Oracle, op: str) -> list[str]:
    (output,) = oracle.run(f"(print-size {op})")
    return [f"{op}: {output.size}"]


def shuffled(rng: random.Random, term: Term) -> Term:
    """The term with operands exchanged here and there: equal, or not, by the rules."""
    if isinstance(term, str):
        return term
    operands = [shuffled(rng, operand) for operand in term[1:]]
    if rng.random() < 0.4:
        rng.shuffle(operands)
    return (term[0], *operands)


def test_commutative_operators_need_no_rule() -> None:
    """Add is commutative by itself here; egglog gets a rule for it."""
    egraph = term_egraph(("Add", ("Add", "a", "b"), "c"), ("Add", "c", ("Add", "b", "a")))
    assert egraph.roots[0] == egraph.roots[1]
    rules = [TermRule("left", ("Add", X, ("Add", Y, Z)), ("Add", ("Add", X, Y), Z))]
    other = term_egraph(
        ("Add", ("Add", "a", "b"), "c"), ("Add", "a", ("Add", "b", "c")), ("Add", "b", ("Add", "a", "c"))
    )
    assert saturate(other, rules, iterations=20).saturated
    assert len({other.find(root) for root in other.roots}) == 1


def test_filtering_cycles_loses_no_cheaper_term() -> None:
    for seed in range(5):
        term = random_term(random.Random(seed), ["Plus", "Product", "T"], 9)
        costs = []
        for cycles in ("filter", "allow"):
            egraph = term_egraph(term)
            saturate(egraph, TRANSPOSE, iterations=30, node_limit=3000, cycles=cycles)  # type: ignore[arg-type]
            costs.append(extract(costed(egraph).graph, "tree").estimate)
        assert costs[0] == costs[1]


def test_the_order_of_rules_decides_what_fits_below_the_limit() -> None:
    """(a * 2) / 2 with a limit of 10 e-nodes (Hartmann et al., PACT'24, figure 2)."""
    rules = {rule.name: rule for rule in phase_ordering_rules()}
    sequential = term_egraph(PHASE_ORDERING_TERM)
    result = saturate(sequential, list(rules.values()), node_limit=PHASE_ORDERING_LIMIT)
    assert result.stop == "node limit"
    assert TreeCostTracker(sequential).root_cost() == 5, "a * 2 / 2 is all there is"

    # What a search does: one rule at a time on forks, the reward by tracked costs.
    start = term_egraph(PHASE_ORDERING_TERM)
    best = TreeCostTracker(start)
    assert best.root_cost() == 5
    sizes = []
    for name in ("Divide", "Cancel", "One"):
        fork = best.egraph.fork()
        follower = best.fork(fork)
        assert apply_rule(fork, rules[name]).changed
        follower.update()
        sizes.append(fork.size)
        best = follower
    assert best.root_cost() == 1
    assert max(sizes) < PHASE_ORDERING_LIMIT
    assert best.egraph.find(best.egraph.roots[0]) == find_term(best.egraph, "a")
    assert start.size == 4

    complete = term_egraph(PHASE_ORDERING_TERM)
    saturate(complete, list(rules.values()), node_limit=200)
    assert TreeCostTracker(complete).root_cost() == 1, "without the limit saturation finds it"
