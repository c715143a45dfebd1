"""The prime field against Python's integers, degrees against polynomials, and how literals are read."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.soundness.decision.degrees import Bound, Degrees
from graph_rewrite.soundness.domains.domain import Unsupported
from graph_rewrite.soundness.domains.interpretation import Interpretation, idealised, root
from graph_rewrite.soundness.domains.prime_field import MINUS_INFINITY, PLUS_INFINITY, P, PrimeField

elements = st.integers(0, P - 1)
FIELD = PrimeField(7)


def array(*values):
    return np.array(values, dtype=np.int64)


@given(elements, elements)
def test_arithmetic_is_that_of_integers_modulo_p(a, b):
    x, y = array(a), array(b)
    assert FIELD.add(x, y) == (a + b) % P
    assert FIELD.mul(x, y) == a * b % P
    assert FIELD.add(x, FIELD.neg(x)) == 0
    if b:
        assert FIELD.mul(FIELD.reciprocal(y), y) == 1


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False),
    st.floats(width=32, allow_nan=False, allow_infinity=False),
)
def test_floats_are_exact(a, b):
    x, y = (Interpretation(ideal=False).array(FIELD, np.array([value], np.float64)) for value in (a, b))
    assert FIELD.add(x, y)[0] == FIELD.literal(Fraction(a) + Fraction(b))
    assert FIELD.mul(x, y)[0] == FIELD.literal(Fraction(a) * Fraction(b))


def test_roots_of_the_field_are_roots():
    assert pow(FIELD.literal(Fraction(1), "sqrt 2"), 2, P) == 2
    five = FIELD.literal(Fraction(1), "sqrt 5")
    squares = {pow(n, (P - 1) // 2, P) == 1 for n in (5,)}
    assert (pow(five, 2, P) == 5) == squares.pop()


@given(st.lists(elements, min_size=1, max_size=4), st.lists(elements, min_size=1, max_size=4))
def test_maxima_are_associative_commutative_and_idempotent(left, right):
    def largest(values):
        return FIELD.maximum([array(value) for value in values])

    both = largest([largest(left)[0], largest(right)[0]])
    assert both == largest([*reversed(right), *left, left[0]])
    assert largest([left[0], left[0]]) == left[0]


def test_infinities():
    x = FIELD.variables("x", (3,))
    low, high = array(MINUS_INFINITY), array(PLUS_INFINITY)
    assert (FIELD.add(x, low) == MINUS_INFINITY).all()
    assert (FIELD.neg(low) == PLUS_INFINITY).all()
    np.testing.assert_array_equal(FIELD.maximum([x, low]), x)
    assert (FIELD.maximum([x, high]) == PLUS_INFINITY).all()
    assert (FIELD.function("Exp", [low]) == 0).all()
    for impossible in (lambda: FIELD.mul(x, low), lambda: FIELD.reciprocal(low), lambda: FIELD.add(low, high)):
        with pytest.raises(Unsupported, match="infinit"):
            impossible()


def test_functions_have_their_properties_and_no_others():
    x, y = FIELD.variables("x", (50,)), FIELD.variables("y", (50,))
    tanh = FIELD.function("Tanh", [x])
    np.testing.assert_array_equal(FIELD.function("Tanh", [FIELD.neg(x)]), FIELD.neg(tanh))
    np.testing.assert_array_equal(FIELD.function("Floor", [FIELD.function("Floor", [x])]), FIELD.function("Floor", [x]))
    assert FIELD.function("Erf", [array(0)]) == 0
    assert FIELD.function("Exp", [array(0)]) == 1
    assert FIELD.function("Sqrt", [array(9)]) == 3
    for name in ("Exp", "Sigmoid", "Tanh"):
        f = lambda z, name=name: FIELD.function(name, [z])  # noqa: E731
        assert not (f(FIELD.add(x, y)) == FIELD.add(f(x), f(y))).any()
        assert not (f(f(x)) == f(x)).any()
    assert not (FIELD.function("Sigmoid", [x]) == tanh).any()
    assert not (FIELD.function("Pow", [x, y]) == FIELD.function("Pow", [y, x])).any()


@pytest.mark.parametrize(("value", "wanted"), [
    (1 / 3, (Fraction(1, 3), "")), (0.25, (Fraction(1, 4), "")), (0.044715, (Fraction(44715, 10**6), "")),
    (1e-5, (Fraction(1, 10**5), "")), (math.sqrt(0.5), (Fraction(1, 2), "sqrt 2")),
    (-math.sqrt(3), (Fraction(-1), "sqrt 3")),
    (1 / 1.702, (Fraction(1000, 1702), "")), (0.3 / math.sqrt(5), (Fraction(3, 50), "sqrt 5")),
    (math.sqrt(2 / math.pi), (Fraction(1), "sqrt(2/pi)")), (7.0, (Fraction(7), "")),
])  # fmt: skip
def test_literals_are_read_as_what_they_were_rounded_from(value, wanted):
    assert idealised(float(np.float32(value))) == wanted


@given(st.floats(min_value=2**-20, max_value=2**20, width=32))
def test_no_reading_is_further_off_than_rounding(value):
    number, symbol = idealised(value)
    factor = {"": 1.0, "sqrt(2/pi)": math.sqrt(2 / math.pi)}.get(symbol) or math.sqrt(int(symbol.split()[1]))
    assert float(number) * factor == pytest.approx(value, rel=1e-7)


@given(st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=1000))
def test_roots_are_exact(square):
    number, symbol = root(square)
    assert number**2 * (int(symbol.split()[1]) if symbol else 1) == square


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 5), elements)
def test_degrees_bound_how_often_a_difference_is_hidden(n, m, seed):
    """(x + 1)^n (y + 1)^m has degree n + m; a polynomial in one variable has at most so many roots."""
    degrees = Degrees()
    x, y, one = (
        degrees.variables("x", ()),
        degrees.variables("y", ()),
        degrees.array([degrees.literal(Fraction(1))], ()),
    )
    product = one
    for factor, times in ((x, n), (y, m)):
        for _ in range(times):
            product = degrees.mul(product, degrees.add(factor, one))
    assert product["n"] == n + m
    assert product["d"] == 0
    inverse = degrees.reciprocal(product)
    assert (inverse["n"], inverse["d"]) == (0, n + m)
    assert Bound(n + m, 0, 0.0).per_trial == (n + m) / P


def test_a_bound_is_stated_or_refused():
    assert "error at most 1.0e-28" in Bound(1, 0, 0.0).text(3)
    assert "too high" in Bound(1e12, 0, 0.0).text(3)
    assert Bound(1, 100, 4.0).per_trial > 1e-6


def test_other_seeds_give_other_elements():
    assert not (PrimeField(1).variables("x", (9,)) == PrimeField(2).variables("x", (9,))).any()
    np.testing.assert_array_equal(PrimeField(1).variables("x", (9,)), PrimeField(1).variables("x", (9,)))
