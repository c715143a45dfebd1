"""The real numbers as a domain: elements are exact fractions where they are known, else terms of z3.

What functions mean beyond their name: see `axioms`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from graph_rewrite.soundness.domains.domain import Array, DivisorIsZero, Unsupported
from graph_rewrite.soundness.domains.effort import Effort

Element = Any
"""A Fraction, a float that is infinite, or a z3 term."""

_HALF = Fraction(1, 2)


class Reals:
    """Variables are z3 constants called `name[i,j]`, or the elements of `values` where it has them.

    Building terms stops with `Unsupported` where `effort` is used up.
    """

    def __init__(self, values: Mapping[str, Array] | None = None, effort: Effort | None = None) -> None:
        self._values, self._effort = values or {}, effort

    def literal(self, value: Fraction | float, symbol: str = "") -> Element:
        if isinstance(value, float) and math.isnan(value):
            raise Unsupported("a constant is not a number")
        return _mul(value, z3.Real(symbol)) if symbol else value

    def array(self, elements: Sequence[Element], shape: tuple[int, ...]) -> Array:
        result = np.empty(len(elements), dtype=object)
        result[:] = list(elements)
        return result.reshape(shape)

    def variables(self, name: str, shape: tuple[int, ...]) -> Array:
        given = self._values.get(name)
        if given is not None:
            return self.array([Fraction(element) for element in given.reshape(-1).tolist()], shape)
        return self.array([z3.Real(f"{name}{list(index)}") for index in np.ndindex(*shape)], shape)

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        given = self._values.get(name)
        if given is not None:
            return self.array([bool(element) for element in given.reshape(-1).tolist()], shape)
        return self.array([z3.Bool(f"{name}{list(index)}") for index in np.ndindex(*shape)], shape)

    def _each(self, function: Callable[..., Element], *args: Array) -> Array:
        arrays = np.broadcast_arrays(*args)
        if self._effort is not None:
            self._effort.build(arrays[0].size)
        columns = (array.reshape(-1).tolist() for array in arrays)
        return self.array([function(*row) for row in zip(*columns, strict=True)], arrays[0].shape)

    def add(self, a: Array, b: Array) -> Array:
        return self._each(_add, a, b)

    def mul(self, a: Array, b: Array) -> Array:
        return self._each(_mul, a, b)

    def neg(self, a: Array) -> Array:
        return self._each(lambda x: -x, a)

    def reciprocal(self, a: Array) -> Array:
        return self._each(_reciprocal, a)

    def maximum(self, args: Sequence[Array]) -> Array:
        result = args[0]
        for other in args[1:]:
            result = self._each(_max, result, other)
        return np.asarray(result)

    def function(self, name: str, args: Sequence[Array]) -> Array:
        return self._each(lambda *row: apply(name, row), *args)

    def less(self, a: Array, b: Array) -> Array:
        return self._each(lambda x, y: x < y if _numbers(x, y) else _term(x) < _term(y), a, b)

    def equal(self, a: Array, b: Array) -> Array:
        return self._each(lambda x, y: x == y if _numbers(x, y) else _term(x) == _term(y), a, b)

    def both(self, a: Array, b: Array) -> Array:
        return self._each(lambda x, y: x and y if _bools(x, y) else z3.And(x, y), a, b)

    def negation(self, a: Array) -> Array:
        return self._each(lambda x: not x if _bools(x) else z3.Not(x), a)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return self._each(_select, condition, a, b)

    def infinite(self, a: Array) -> Array:
        signs = [int(math.copysign(1, x)) if isinstance(x, float) else 0 for x in a.reshape(-1).tolist()]
        return np.array(signs, dtype=np.int64).reshape(a.shape)


def _numbers(*elements: Element) -> bool:
    return all(isinstance(e, (Fraction, float)) for e in elements)


def _bools(*elements: Element) -> bool:
    return all(isinstance(e, (bool, np.bool_)) for e in elements)


def _term(element: Element) -> Any:
    if isinstance(element, float):
        raise Unsupported("an infinity is computed with")
    return z3.Q(element.numerator, element.denominator) if isinstance(element, Fraction) else element


def _add(a: Element, b: Element) -> Element:
    if isinstance(a, float) or isinstance(b, float):
        if isinstance(a, float) and isinstance(b, float) and a != b:
            raise Unsupported("infinities of opposite sign are added")
        return a if isinstance(a, float) else b
    if _numbers(a, b):
        return a + b
    if _numbers(a) and a == 0:
        return b
    return a if _numbers(b) and b == 0 else _term(a) + _term(b)


def _mul(a: Element, b: Element) -> Element:
    if isinstance(a, float) or isinstance(b, float):
        raise Unsupported("an infinity is multiplied")
    if _numbers(a, b):
        return a * b
    for known, other in ((a, b), (b, a)):
        if _numbers(known) and known in (0, 1):
            return other if known == 1 else Fraction(0)
    return _term(a) * _term(b)


def _reciprocal(a: Element) -> Element:
    if isinstance(a, Fraction):
        if not a:
            raise DivisorIsZero
        return 1 / a
    return 1 / _term(a)


def _max(a: Element, b: Element) -> Element:
    if _numbers(a, b):
        return max(a, b)
    for known, other in ((a, b), (b, a)):
        if isinstance(known, float):
            return other if known < 0 else known
    a, b = _term(a), _term(b)
    return a if a.eq(b) else z3.If(a >= b, a, b)


def _select(condition: Element, a: Element, b: Element) -> Element:
    if _bools(condition):
        return a if condition else b
    return z3.If(condition, _term(a), _term(b))


def _floor(x: Element) -> Element:
    return Fraction(math.floor(x)) if isinstance(x, Fraction) else z3.ToReal(z3.ToInt(x))


def _round(x: Element) -> Element:
    """To the nearest integer, halves to the even one."""
    if isinstance(x, Fraction):
        return Fraction(round(x))
    up = z3.ToInt(x + _term(_HALF))
    tie = z3.And(z3.ToReal(up) == x + _term(_HALF), up % 2 == 1)
    return z3.ToReal(z3.If(tie, up - 1, up))


def _sign(x: Element) -> Element:
    if isinstance(x, Fraction):
        return Fraction((x > 0) - (x < 0))
    return z3.If(x > 0, z3.RealVal(1), z3.If(x < 0, z3.RealVal(-1), z3.RealVal(0)))


_INTERPRETED: Mapping[str, Callable[[Element], Element]] = {
    "Floor": _floor, "Ceil": lambda x: -_floor(-x), "Round": _round, "Sign": _sign,
}  # fmt: skip


def apply(name: str, args: Sequence[Element]) -> Element:
    """A function of elements: by its definition, by its value where that is rational, else as a term."""
    first = args[0]
    if name == "Exp" and isinstance(first, float) and first < 0:
        return Fraction(0)
    if name in _INTERPRETED and not isinstance(first, float):
        return _INTERPRETED[name](first)
    if name == "Quotient" and _numbers(*args):
        if not args[1]:
            raise DivisorIsZero
        quotient = abs(first) // abs(args[1])
        return Fraction(quotient if (first < 0) == (args[1] < 0) else -quotient)
    if isinstance(first, Fraction):
        if name.startswith("Cast") and first in (0, 1):
            return first
        if name == "Exp" and first == 0:
            return Fraction(1)
        if name in ("Sin", "Tanh", "Erf") and first == 0:
            return Fraction(0)
        if name == "Sqrt" and first >= 0:
            root = Fraction(math.isqrt(first.numerator), math.isqrt(first.denominator))
            if root * root == first:
                return root
    function = z3.Function(name, *(z3.RealSort(),) * (len(args) + 1))
    return function(*(_term(argument) for argument in args))


def axioms(name: str, value: Any, argument: Any, *others: Any) -> list[Any]:
    """Return what is known about `value`, the function called `name` at `argument`, and `others` where it has
    several."""
    if name == "Quotient":
        return [z3.Implies(others[0] == 1, value == argument)]
    if name == "Exp":
        return [value > 0, z3.Implies(argument <= 0, value <= 1), z3.Implies(argument >= 0, value >= 1)]
    if name == "Sigmoid":
        return [value > 0, value < 1]
    if name in ("Tanh", "Erf", "Softsign"):
        return [value > -1, value < 1, (value > 0) == (argument > 0), (value < 0) == (argument < 0)]
    if name == "Softplus":
        return [value > 0, value > argument]
    if name == "Sqrt":
        return [value >= 0, z3.Implies(argument >= 0, value * value == argument)]
    if name in ("Sin", "Cos"):
        return [value >= -1, value <= 1]
    if name.startswith("Cast"):
        return [z3.Implies(argument == n, value == n) for n in (0, 1)]
    return [value >= 1] if name == "Cosh" else []
