"""Integers as functions of the symbols: the simplest formula that gives an observed integer at every binding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

_MOST_FACTORS = 3
_DIVISORS = (2, 4, 8, 16, 32, 64)
_LARGEST = 2**52
"""Beyond it least squares in float64 could not be rounded to the right integers."""


@dataclass(frozen=True, slots=True)
class Monomial:
    """`factor` times the product of some symbols."""

    factor: int
    symbols: tuple[str, ...]

    def at(self, values: Mapping[str, int]) -> int:
        """Return the value at a binding of the symbols."""
        product = self.factor
        for symbol in self.symbols:
            product *= values[symbol]
        return product


@dataclass(frozen=True, slots=True)
class Formula:
    """The sum of `terms` and `constant`, divided by `divisor` and rounded down, plus `offset`."""

    terms: tuple[Monomial, ...] = ()
    constant: int = 0
    divisor: int = 1
    offset: int = 0

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def at(self, values: Mapping[str, int]) -> int:
        """Return the value at a binding of the symbols."""
        return (sum(term.at(values) for term in self.terms) + self.constant) // self.divisor + self.offset


def fit(observed: Sequence[int], bindings: Sequence[Mapping[str, int]]) -> Formula | None:
    """Return the simplest formula that gives the observed integer at every binding; None where none of a few forms
    does.

    Tried in this order: a constant; a sum of one, two or three products of symbols, with factors and a constant; a
    quotient by a power of 2, as strided convolutions give, rounded down. A form is tried only where there are more
    bindings than numbers to choose in it.

    Args:
        observed: an integer per binding.
        bindings: the values of the symbols.
    """
    if len(set(observed)) == 1:
        return Formula(constant=observed[0])
    if max(map(abs, observed)) > _LARGEST:
        return None
    symbols = [s for s in bindings[0] if len({values[s] for values in bindings}) > 1]
    products = [p for size in range(1, _MOST_FACTORS + 1) for p in combinations(symbols, size)]
    for count in range(1, _MOST_FACTORS + 1):
        if len(observed) <= count + 1:
            break
        for chosen in combinations(products, count):
            for constant in (False, True):
                found = _linear(observed, bindings, chosen, constant)
                if found is not None:
                    return found
    return _quotient(observed, bindings, symbols)


def _linear(
    observed: Sequence[int],
    bindings: Sequence[Mapping[str, int]],
    products: Sequence[tuple[str, ...]],
    with_constant: bool,
) -> Formula | None:
    columns = [[Monomial(1, product).at(values) for values in bindings] for product in products]
    if with_constant:
        columns.append([1] * len(bindings))
    matrix = np.array(columns, dtype=np.float64).T
    solution, _, rank, _ = np.linalg.lstsq(matrix, np.array(observed, dtype=np.float64), rcond=None)
    if rank < len(columns) or np.abs(solution).max() > _LARGEST:
        return None
    factors = [round(float(factor)) for factor in solution]
    terms = tuple(Monomial(f, p) for f, p in zip(factors, products, strict=False) if f)
    formula = Formula(terms, factors[-1] if with_constant else 0)
    return formula if _holds(formula, observed, bindings) else None


def _quotient(observed: Sequence[int], bindings: Sequence[Mapping[str, int]], symbols: Sequence[str]) -> Formula | None:
    for symbol in symbols:
        for divisor in _DIVISORS:
            for constant in range(divisor):
                plain = Formula((Monomial(1, (symbol,)),), constant, divisor)
                offset = observed[0] - plain.at(bindings[0])
                formula = Formula(plain.terms, constant, divisor, offset)
                if _holds(formula, observed, bindings):
                    return formula
    return None


def _holds(formula: Formula, observed: Sequence[int], bindings: Sequence[Mapping[str, int]]) -> bool:
    return all(formula.at(values) == seen for values, seen in zip(bindings, observed, strict=True))
