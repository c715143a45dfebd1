"""Formulas are found from a few bindings and hold at all others."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.symbolic.integers import Formula, Monomial, fit

PAIRS = [(1, 32), (2, 32), (3, 32), (5, 32), (1, 11), (1, 18), (1, 5), (2, 11), (3, 18), (5, 5)]
BINDINGS = [{"b": b, "s": s} for b, s in PAIRS]
OTHERS = [{"b": b, "s": s} for b in (1, 4, 7) for s in (1, 2, 31, 64, 100)]

factors = st.integers(-8, 1024)


@settings(deadline=None, max_examples=60, derandomize=True)
@given(batch=factors, length=factors, product=factors, constant=st.integers(-50, 50))
def test_sums_of_products_are_recovered(batch: int, length: int, product: int, constant: int) -> None:
    def wanted(values: dict[str, int]) -> int:
        b, s = values["b"], values["s"]
        return batch * b + length * s + product * b * s + constant

    found = fit([wanted(values) for values in BINDINGS], BINDINGS)
    assert found is not None
    assert [found.at(values) for values in OTHERS] == [wanted(values) for values in OTHERS]


@settings(deadline=None, max_examples=60, derandomize=True)
@given(divisor=st.sampled_from([2, 4, 8]), shift=st.integers(0, 7), offset=st.integers(-3, 3))
def test_sizes_after_strides_are_recovered(divisor: int, shift: int, offset: int) -> None:
    wanted = Formula((Monomial(1, ("h",)),), shift % divisor, divisor, offset)
    seen = [{"h": h} for h in (224, 256, 160, 225, 288, 195, 230)]
    found = fit([wanted.at(values) for values in seen], seen)
    assert found is not None
    # Bindings that lie on one line tell no more; all residues that were seen are right.
    assert all(found.at(values) == wanted.at(values) for values in seen)
    if not found.is_constant and found.divisor == divisor:
        assert all(found.at({"h": h}) == wanted.at({"h": h}) for h in (224, 320, 352))


def test_a_constant_is_preferred_and_noise_has_no_formula() -> None:
    assert fit([7] * len(BINDINGS), BINDINGS) == Formula(constant=7)
    assert fit([3, 1, 4, 1, 5, 9, 2, 6, 5, 3], BINDINGS) is None
    assert fit([2**60 + values["b"] for values in BINDINGS], BINDINGS) is None


def test_few_bindings_allow_few_numbers() -> None:
    assert fit([4, 9], [{"b": 1}, {"b": 2}]) is None
    assert fit([3, 6, 9], [{"b": 1}, {"b": 2}, {"b": 3}]) == Formula((Monomial(3, ("b",)),))
