"""A prime field as a domain: the integers modulo 2^31 - 1, in which polynomial identities are tested at random."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graph_rewrite.soundness.domains.domain import Array, DivisorIsZero, Unsupported

P = 2**31 - 1
"""The order of the prime field: products of two elements fit into int64."""
MINUS_INFINITY, PLUS_INFINITY = -1, -2
"""Stand for infinities beside the field's elements 0 to P - 1: masks add the one, bounds may be either."""

ODD = frozenset(
    ["Tanh", "Erf", "Sin", "Asin", "Sinh", "Asinh", "Atan", "Tan", "Atanh", "Softsign", "Sign", "Round", "Trunc"]
)  # fmt: skip
"""Functions with f(-x) = -f(x), hence f(0) = 0."""
EVEN = frozenset(("Cos", "Cosh"))
VANISHING = ODD | {"Sqrt", "Floor", "Ceil", "Elu", "Selu", "Celu", "Mish", "Float16"}
"""Functions with f(0) = 0."""
IDEMPOTENT = frozenset(("Sign", "Round", "Floor", "Ceil", "Float16", "BFloat16"))
"""Functions with f(f(x)) = f(x)."""


_SQUARES = tuple((n, n * n) for n in range(1, 33))
"""Roots that are known."""


def key64(*parts: object) -> int:
    """A 64-bit number out of any values with a faithful `repr`."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


class PrimeField:
    """The field of integers modulo P, vectorised: elements are int64.

    Variables are random elements. Two polynomials of degree d that are not equal agree at random elements with a
    probability of at most d / P (Schwartz 1980, Zippel 1979). Functions are random ones: an equality that holds for
    them holds for every function with the properties in `ODD`, `EVEN`, `VANISHING` and `IDEMPOTENT`. A maximum is a
    random function of the set of its arguments, where a maximum of maxima is that of the union.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._sets: dict[int, frozenset[int]] = {}
        self._images: dict[str, set[int]] = {}
        self.rational = True
        """No function or maximum was applied: outputs are rational functions of the inputs."""
        self.drew = False
        """Truth values were drawn at random: a trial tests one case, and proves nothing about the others."""

    def literal(self, value: Fraction | float, symbol: str = "") -> int:
        if isinstance(value, float):
            if np.isnan(value):
                raise Unsupported("a constant is not a number")
            return MINUS_INFINITY if value < 0 else PLUS_INFINITY
        element = value.numerator * pow(value.denominator, -1, P) % P
        return element * self._symbol(symbol) % P if symbol else element

    def _symbol(self, symbol: str) -> int:
        """An irrational number: the root of a number where the field has one, else an element of no properties."""
        number = int(symbol.removeprefix("sqrt ")) if symbol.startswith("sqrt ") else 0
        root = pow(number, (P + 1) // 4, P)  # P = 3 mod 4
        return root if number and root * root % P == number % P else key64(self._seed, "symbol", symbol) % (P - 1) + 1

    def array(self, elements: Sequence[Any], shape: tuple[int, ...]) -> Array:
        return np.array(elements, dtype=np.int64).reshape(shape)

    def variables(self, name: str, shape: tuple[int, ...]) -> Array:
        return np.random.default_rng(key64(self._seed, name)).integers(0, P, shape)

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        self.drew = True
        return np.random.default_rng(key64(self._seed, name)).integers(0, 2, shape).astype(np.bool_)

    def add(self, a: Array, b: Array) -> Array:
        if not _any_infinite(a, b):
            return np.asarray((a + b) % P)
        a, b = np.broadcast_arrays(a, b)
        if ((a < 0) & (b < 0) & (a != b)).any():
            raise Unsupported("infinities of opposite sign are added")
        return np.where(a < 0, a, np.where(b < 0, b, (a + b) % P))

    def mul(self, a: Array, b: Array) -> Array:
        if _any_infinite(a, b):
            raise Unsupported("an infinity is multiplied")
        return np.asarray(a * b % P)

    def neg(self, a: Array) -> Array:
        return np.where(a < 0, -3 - a, -a % P)  # exchanges the two infinities

    def reciprocal(self, a: Array) -> Array:
        if _any_infinite(a):
            raise Unsupported("an infinity is a divisor")
        if not np.all(a):
            raise DivisorIsZero
        result, power, exponent = np.ones_like(a), a, P - 2
        while exponent:
            result = result * power % P if exponent & 1 else result
            power, exponent = power * power % P, exponent >> 1
        return result

    def maximum(self, args: Sequence[Array]) -> Array:
        arrays = np.broadcast_arrays(*args)
        rows = np.stack([array.reshape(-1) for array in arrays], axis=-1).tolist()
        return np.array([self._largest(row) for row in rows], dtype=np.int64).reshape(arrays[0].shape)

    def _largest(self, row: Sequence[int]) -> int:
        members = frozenset[int]().union(*(self._sets.get(value, (value,)) for value in row)) - {MINUS_INFINITY}
        if PLUS_INFINITY in members:
            return PLUS_INFINITY
        if len(members) < 2:
            return next(iter(members), MINUS_INFINITY)
        self.rational = False
        value = key64(self._seed, "maximum", sorted(members)) % P
        self._sets[value] = members
        return value

    def function(self, name: str, args: Sequence[Array]) -> Array:
        self.rational = False
        arrays = [np.asarray(a) for a in np.broadcast_arrays(*args)]
        first = arrays[0]
        if name in ODD or name in EVEN:
            arrays = [np.where(first < 0, first, np.minimum(first, -first % P))]
        state = np.full(first.shape, key64(self._seed, name), dtype=np.uint64)
        for array in arrays:
            state = _mixed(state ^ _mixed(array.astype(np.uint64)))
        result = (state % np.uint64(P)).astype(np.int64)
        if name in ODD:
            result = np.where(first > P // 2, -result % P, result)
        if name.split(" ")[0] in VANISHING:
            result = np.where(first == 0, 0, result)
        if name == "Exp":
            result = np.where(first == 0, 1, np.where(first == MINUS_INFINITY, 0, result))
        if name.startswith("Cast"):
            result = np.where((first == 0) | (first == 1), first, result)
        if name == "Quotient":
            result = np.where(arrays[1] == 1, first, result)
        if name == "Sqrt":
            for root, square in _SQUARES:
                result = np.where(first == square, root, result)
        if name in IDEMPOTENT:
            images = self._images.setdefault(name, set())
            result = np.where(np.isin(first, list(images)), first, result)
            images.update(result.reshape(-1).tolist())
        return result

    def less(self, a: Array, b: Array) -> Array:
        self.drew = True
        return np.where(a == b, False, self.function("Less", [a, b]) % 2 == 0)

    def equal(self, a: Array, b: Array) -> Array:
        self.drew = True
        low, high = np.minimum(a, b), np.maximum(a, b)
        return np.where(a == b, True, self.function("Equal", [low, high]) % 2 == 0)

    def both(self, a: Array, b: Array) -> Array:
        return np.logical_and(a, b)

    def negation(self, a: Array) -> Array:
        return np.logical_not(a)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def infinite(self, a: Array) -> Array:
        return np.where(a == MINUS_INFINITY, -1, np.where(a == PLUS_INFINITY, 1, 0))


def _any_infinite(*arrays: Array) -> bool:
    return any(bool((a < 0).any()) for a in arrays)


def _mixed(x: Array) -> Array:
    """A bijection of 64-bit numbers that scatters them (the finalizer of SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)))
