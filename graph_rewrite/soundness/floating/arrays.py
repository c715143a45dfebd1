"""Comparison of two arrays that should be equal up to rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

_GROSS = 16.0
_SUBNORMAL_STEPS = 1024
"""Roundings below the normal range of a type are absolute: so many steps of its smallest number are no difference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`error` is the largest difference relative to the scale of the output. Where that is too much, `message` says
    why, and `index` names the element (None where the arrays have different shapes or types)."""

    error: float
    index: tuple[int, ...] | None = None
    message: str = ""

    @property
    def differs(self) -> bool:
        """True where the arrays are more than roundings apart."""
        return bool(self.message)


def compare_arrays(
    a: Array, b: Array, tolerance: float, sensitivity: Callable[[float], float], noise: float = 0.0
) -> Comparison:
    """Compare `b` with the expected `a`; integers and booleans must be equal.

    Args:
        tolerance: for differences of floating-point numbers, relative to the scale.
        sensitivity: the scale, given the largest magnitude of `a`; asked where that magnitude itself is not enough.
        noise: differences up to this one are none, but for what is grosser than 16 times the tolerance.
    """
    if a.shape != b.shape or a.dtype != b.dtype:
        return Comparison(math.inf, None, f"{a.dtype}{list(a.shape)} became {b.dtype}{list(b.shape)}")
    if a.size == 0:
        return Comparison(0.0)
    if not is_float(a):
        unequal = a != b
        return Comparison(math.inf, _first(unequal), "they are not equal") if unequal.any() else Comparison(0.0)
    wide, found = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        same = (wide == found) | (np.isnan(wide) & np.isnan(found))
        difference = np.where(same, 0.0, np.abs(wide - found))
    broken = ~np.isfinite(difference)
    if broken.any():
        return Comparison(math.inf, _first(broken), "one of them is not finite")
    largest, scale = float(difference.max()), magnitude(wide)
    floor = _SUBNORMAL_STEPS * float(np.finfo(a.dtype).smallest_subnormal) if a.dtype != np.float64 else 0.0
    if largest <= floor:
        return Comparison(0.0)
    if largest > tolerance * scale:
        scale = sensitivity(scale)
    error = largest / scale if scale else math.inf
    if error <= tolerance or (largest <= noise and error <= _GROSS * tolerance):
        return Comparison(error)
    message = f"they differ by {error:.1e} of the scale {scale:.1e}, more than {tolerance:.1e}"
    return Comparison(error, _first(difference == largest), message)


def magnitude(array: Array) -> float:
    """The largest finite magnitude of a floating-point array, 0 of any other."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0)) if is_float(array) else 0.0


def is_float(array: Array) -> bool:
    """Return whether the elements are floating-point numbers."""
    # bfloat16 is no floating-point type to numpy itself.
    return array.dtype.kind == "f" or bool(array.dtype.name == "bfloat16")


def _first(mask: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(mask)[0])
