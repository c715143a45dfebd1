"""The interpretation of a graph's floating-point constants as exact numbers.

Exactly: every finite float is a dyadic rational. Ideally: a literal that is a rounded short decimal, simple fraction or
root is that number, and what is so negative that a Softmax ignores it is minus infinity; a proof about the ideal
numbers leaves their rounding to floating-point checks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from graph_rewrite.soundness.domains.domain import Array, Domain, Unsupported

Exact = tuple[Fraction | float, str]
"""A rational number, or an infinity, times the irrational number called by a symbol ("" for 1)."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The precision with which literals of an element type are recognised: their relative error, which covers two
    rounded literals and the rounding of their product, and how many digits short numbers have."""

    error: float
    denominator: int
    digits: int
    inverse_digits: int
    root_digits: int


SINGLE = Precision(error=1.8e-7, denominator=64, digits=6, inverse_digits=4, root_digits=3)
HALF = Precision(error=7e-4, denominator=8, digits=2, inverse_digits=1, root_digits=1)
_LARGEST_SIZE = 128
"""Scales of attention are decimals over the root of a head size up to this one."""
_KNOWN: Mapping[float, Exact] = {
    math.sqrt(2.0): (Fraction(1), "sqrt 2"), math.sqrt(0.5): (Fraction(1, 2), "sqrt 2"),
    math.sqrt(2.0 / math.pi): (Fraction(1), "sqrt(2/pi)"), 0.044715: (Fraction(44715, 10**6), ""),
    1.702: (Fraction(1702, 1000), ""), 1 / 1.702: (Fraction(1000, 1702), ""),
}  # fmt: skip
"""Constants of activations."""
_FEW = 4
"""Constants of at most so many different values are literals; others are weights, which are read exactly."""
HIDDEN = -1e9
"""Numbers up to this one, added to scores, are read ideally as minus infinity."""


class Interpretation:
    """An interpretation of floats as elements of a domain: exact, or ideal where `ideal`. `notes` collects what was not
    read exactly."""

    def __init__(self, ideal: bool) -> None:
        self.ideal = ideal
        self.notes: dict[str, None] = {}

    def number(self, value: float, precision: Precision = SINGLE) -> Exact:
        """One literal, such as an attribute."""
        if not math.isfinite(value):
            return float(value), ""
        if not self.ideal:
            return Fraction(value), ""
        found = idealised(value, precision)
        if found != (Fraction(value), ""):
            self.notes[f"{value:.9g} as {_text(found)}"] = None
        return found

    def array(self, domain: Domain, values: Array, mask: bool = False) -> Array:
        """A constant; very negative numbers of a `mask` are read ideally as minus infinity."""
        if values.dtype.kind not in "fiub" and values.dtype.name != "bfloat16":
            raise Unsupported(f"constants of type {values.dtype} are not numbers")
        flat = values.reshape(-1)
        if values.dtype.kind == "f" or values.dtype.name == "bfloat16":
            flat = flat.astype(np.float64)
        if mask and self.ideal and np.any(hidden := (flat <= HIDDEN) & np.isfinite(flat)):
            self.notes[f"{flat[hidden][0]:.9g} as minus infinity"] = None
            flat = np.where(hidden, -np.inf, flat)
        distinct, where = np.unique(flat, return_inverse=True)
        precision = HALF if values.dtype.itemsize == 2 else SINGLE
        literal = precision if len(distinct) <= _FEW else None
        elements = [domain.literal(*self._element(value, literal)) for value in distinct.tolist()]
        if not elements:
            return domain.array([], values.shape)
        return np.asarray(domain.array(elements, (len(elements),))[where.reshape(-1)].reshape(values.shape))

    def _element(self, value: Any, literal: Precision | None) -> Exact:
        if not isinstance(value, float):
            return Fraction(int(value)), ""
        if literal is not None or not math.isfinite(value):
            return self.number(value, literal or SINGLE)
        return Fraction(value), ""


def idealised(value: float, precision: Precision = SINGLE) -> Exact:
    """The number that a literal was most likely rounded from.

    Short dyadic numbers are themselves; else the constants of activations, and, in single precision, decimals of at
    most 6 digits, fractions with a denominator up to 64, reciprocals of decimals of at most 4, roots of such fractions,
    decimals of 3 digits over a root, or the number itself.
    """
    exact = Fraction(value)
    if (exact.denominator <= 1024 and abs(value) < 1e6 and precision is SINGLE) or exact.denominator <= 16:
        return exact, ""
    for number, found in _KNOWN.items():
        if math.isclose(number, value, rel_tol=precision.error):
            return found
    for candidate in (
        _decimal(value, precision.digits), exact.limit_denominator(precision.denominator),
        1 / _decimal(1 / value, precision.inverse_digits),
    ):  # fmt: skip
        if math.isclose(candidate, value, rel_tol=precision.error):
            return candidate, ""
    square = Fraction(value * value).limit_denominator(precision.denominator)
    if math.isclose(math.sqrt(square), abs(value), rel_tol=precision.error):
        return root(square, negative=value < 0)
    for number in range(2, _LARGEST_SIZE + 1):
        times = _decimal(value * math.sqrt(number), precision.root_digits)
        if math.isclose(times / math.sqrt(number), value, rel_tol=precision.error):
            factor, symbol = root(Fraction(1, number))
            return times * Fraction(factor), symbol
    return exact, ""


def root(square: Fraction, negative: bool = False) -> Exact:
    """The root of a positive rational number, as a rational times the root of a square-free integer."""
    number = square.numerator * square.denominator
    outside, d = 1, 2
    while d * d <= number:
        while number % (d * d) == 0:
            number, outside = number // (d * d), outside * d
        d += 1
    value = Fraction(-outside if negative else outside, square.denominator)
    return value, "" if number == 1 else f"sqrt {number}"


def _decimal(value: float, digits: int) -> Fraction:
    """The nearest decimal of so many digits."""
    return Fraction(f"{value:.{digits - 1}e}")


def _text(found: Exact) -> str:
    value, symbol = found
    return " * ".join(part for part in (str(value) if value != 1 or not symbol else "", symbol) if part)
