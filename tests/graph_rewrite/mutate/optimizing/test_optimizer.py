"""The optimizer: which mutants become rules, by planted prices."""

from __future__ import annotations

import math

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.mutate.optimizing.optimizer import FoundRules, Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices, flops_of_product, operators_of_program, price_of_program
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.search import Limits
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.soundness.floating.comparison import compare
from tests.graph_rewrite.mutate.programs import conv

LIMITS = Limits(seconds=1e6, depth=2, keep=0.8)


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def two_images(sites: int = 1) -> Graph:
    lines = "".join(f"y{i} = Conv<pads=[1,1,1,1]>(z{i}, w) z{i + 1} = Relu(y{i}) " for i in range(sites))
    text = f"(float[2,4,6,6] x) => (z{sites}) {{ z0 = Identity(x) {lines} }}"
    return model(text, w=weights(4, 4, 3, 3))


def by_images(spec: OperatorSpec) -> float:
    """A convolution costs by the images of its batch, everything else a little."""
    shape = spec.input_types[0]
    return 10.0 * shape[1][0] if spec.op == "Conv" and shape is not None else 0.1


def test_what_costs_less_becomes_a_rule_that_applies_and_computes_the_same() -> None:
    graph = two_images(sites=2)
    found = Optimizer(Prices(by_images), LIMITS, rounds=1).rules_of(graph)
    assert found.complete
    assert 0 < len(found.rules) <= 3
    for each in found.rules:
        assert each.ms < each.original_ms == 20.0
        assert each.sites == 2
        candidates = Rewriter([each.rule], deployment=False).candidates(graph)
        assert candidates[0].count == 2
        assert compare(graph, candidates[0].apply(), seed=0).worst_error < 1e-5
        assert each.rule.certificate["rounds"][0]["repair"] in ("gap", "halo", "recompute", "map", "none")
    assert found.best_first()[0] is min(found.rules, key=lambda each: each.ms).rule


def test_nothing_that_costs_more_becomes_a_rule() -> None:
    def by_layouts(spec: OperatorSpec) -> float:
        return 1.0 if spec.op == "Conv" else 100.0

    assert not Optimizer(Prices(by_layouts), LIMITS, rounds=1).rules_of(two_images()).rules


def test_a_second_round_mutates_what_the_first_found() -> None:
    """The first round puts the images side by side, the second one puts halves of the wide image side by side."""

    def by_height(spec: OperatorSpec) -> float:
        shape = spec.input_types[0]
        return 10.0 * shape[1][0] + shape[1][2] if spec.op == "Conv" and shape is not None else 0.0

    graph = model("(float[2,2,4,4] x) => (z) { y = Conv(x, w) z = Relu(y) }", w=weights(2, 2, 1, 1))
    now = iter(range(10**7))
    optimizer = Optimizer(Prices(by_height), Limits(4000, 2, 0.9), rounds=2, clock=lambda: float(next(now)))
    (best, *_) = sorted(optimizer.rules_of(graph).rules, key=lambda each: each.ms)
    assert best.ms < 14.0  # one image of height 4
    assert len(best.rule.certificate["rounds"]) == 2
    (candidate,) = Rewriter([best.rule], deployment=False).candidates(graph)
    assert compare(graph, candidate.apply(), seed=0).worst_error < 1e-5


def test_an_end_in_the_middle_keeps_what_was_found() -> None:
    asked = iter(range(10**7))
    found = Optimizer(Prices(by_images), LIMITS, rounds=1, stop=lambda: next(asked) > 900).rules_of(two_images())
    assert not found.complete
    assert found.rules


def test_a_search_is_not_complete_if_one_round_of_a_subprogram_was_cut_short() -> None:
    """The first round has a part of the time. It is over in the middle of it, and no further round uses up the rest."""
    graph = model("(float[2,2,4,4] x) => (z) { y = Conv<pads=[1,1,1,1]>(x, w) z = Relu(y) }", w=weights(2, 2, 3, 3))
    now = iter(range(10**7))

    def nothing_pays(spec: OperatorSpec) -> float:
        return 0.0 if spec.op == "Conv" else 100.0

    optimizer = Optimizer(Prices(nothing_pays), Limits(600, 3, 0.5), rounds=2, clock=lambda: float(next(now)))
    found = optimizer.rules_of(graph)
    assert next(now) < 600, "there was time left"
    assert (found.searched, found.cut, found.complete) == (1, 1, False)
    assert str(found) == (
        "subprograms searched: 1 (1 of them cut short), mutants that cost less: 0; more time may find more"
    )


def test_a_search_that_came_to_its_end_says_so() -> None:
    found = Optimizer(Prices(by_images), LIMITS, rounds=1).rules_of(two_images())
    assert (found.cut, found.complete) == (0, True)
    assert str(found) == f"subprograms searched: 1, mutants that cost less: {len(found.rules)}"


def test_an_exception_loses_nothing_that_was_found() -> None:
    """Ctrl-C may come in the middle of an operator's timing."""
    graph = model(
        "(float[2,2,4,4] x) => (p, q) { a = Conv(x, w) p = Relu(a) b = Conv(x, v) q = Sigmoid(b) }",
        w=weights(2, 2, 1, 1), v=weights(3, 2, 1, 1),
    )  # fmt: skip
    found = FoundRules()

    def interrupting(spec: OperatorSpec) -> float:
        if found.rules:
            raise KeyboardInterrupt
        return by_images(spec)

    with pytest.raises(KeyboardInterrupt):
        Optimizer(Prices(interrupting), LIMITS, rounds=1).rules_of(graph, found)
    assert found.rules


def test_what_is_too_large_or_cannot_be_timed_is_refused_with_a_reason() -> None:
    small = Limits(seconds=1e6, work=10)
    assert [str(reason) for _, reason in Optimizer(Prices(by_images), small).rules_of(two_images()).refused] == [
        "too large to be proved at its real shape"
    ]
    assert "cannot be timed" in str(
        Optimizer(Prices(lambda spec: math.inf), LIMITS).rules_of(two_images()).refused[0][1]
    )


def test_operators_over_constants_cost_nothing() -> None:
    made = program(2, [step("diagonal", 1, count=2, source=0, target=1), conv(0, 2)])
    shapes = ((1, 4, 6, 6), (6, 2, 3, 3))
    assert [spec.op for spec in operators_of_program(made, shapes, {1})] == ["Conv"]
    assert [spec.op for spec in operators_of_program(made, shapes, ())] == ["Concat", "Mul", "Conv"]
    assert price_of_program(made, shapes, {1}, Prices(by_images)) == 10.0


def test_a_program_that_does_not_fit_costs_infinitely_much() -> None:
    assert price_of_program(program(2, [conv(0, 1)]), ((1, 3, 6, 6), (6, 2, 3, 3)), (), Prices(by_images)) == math.inf


def test_a_program_is_priced_no_further_than_it_may_cost() -> None:
    asked: list[str] = []

    def noting(spec: OperatorSpec) -> float:
        asked.append(spec.op)
        return 10.0

    made = program(2, [conv(0, 1), conv(2, 1, dilation=2, pad=2), conv(3, 1, dilation=3, pad=3)])
    shapes = ((1, 4, 6, 6), (4, 4, 3, 3))
    assert price_of_program(made, shapes, {1}, Prices(noting), most=20.0) == math.inf
    assert len(asked) == 1, "the others cannot take much less than the first"
    assert price_of_program(made, shapes, {1}, Prices(noting), most=30.1) == 30.0


def test_products_that_must_cost_too_much_are_not_timed() -> None:
    """No product computes much faster than the fastest that was timed, whatever its price turns out to be."""
    asked: list[tuple[int, ...]] = []

    def by_work(spec: OperatorSpec) -> float:
        assert spec.input_types[0] is not None
        asked.append(spec.input_types[0][1])
        return flops_of_product(spec) / 1000.0

    prices, one, filters = Prices(by_work), program(2, [conv(0, 1)]), (4, 4, 3, 3)
    ms = price_of_program(one, ((1, 4, 6, 6), filters), {1}, prices)
    assert price_of_program(one, ((9, 4, 6, 6), filters), {1}, prices, most=5 * ms) == math.inf
    assert asked == [(1, 4, 6, 6)]
    assert price_of_program(one, ((2, 4, 6, 6), filters), {1}, prices, most=5 * ms) == pytest.approx(2 * ms)
    assert price_of_program(one, ((9, 4, 6, 6), filters), {1}, prices) == pytest.approx(9 * ms)
