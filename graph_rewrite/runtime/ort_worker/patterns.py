"""Patterns of extreme inputs: what random inputs of magnitude 1 do not show."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .narrow_floats import epsilon, is_narrow

Array = NDArray[Any]

FLOAT_PATTERNS = {
    "small": "values of 1e-4",
    "large": "values of 1e4",
    "zeros": "zeros",
    "ones": "equal values",
    "one-hot": "one-hot values",
}
"""Patterns of floats, with how a message calls them."""
INDEX_PATTERNS = {"lowest": "the lowest index everywhere", "highest": "the highest index everywhere"}
"""Patterns of integers."""
ABSENT = "absent"
"""The pattern of optional inputs that are left out."""
PATTERNS = {**FLOAT_PATTERNS, **INDEX_PATTERNS, ABSENT: "inputs without the optional ones"}

_ROUNDINGS = 4.0


def patterned_floats(array: Array, pattern: str, rng: np.random.Generator) -> Array:
    """Return floats in a pattern, made out of standard normal ones. Patterns of integers change nothing."""
    if pattern == "small":
        return np.asarray(array * array.dtype.type(1e-4))
    if pattern == "large":
        return np.asarray(array * array.dtype.type(1e4))
    if pattern not in FLOAT_PATTERNS:
        return array
    made = np.full_like(array, 1.0 if pattern == "ones" else 0.0)
    if pattern == "one-hot" and made.size:
        made.flat[int(rng.integers(made.size))] = 1.0
    return made


def patterned_integers(array: Array, pattern: str, low: int, high: int) -> Array:
    """Return integers of [low, high) in a pattern. Patterns of floats change nothing."""
    if pattern not in INDEX_PATTERNS:
        return array
    return np.full_like(array, low if pattern == "lowest" else max(low, high - 1))


def disturbed(value: Any) -> Any:
    """Return floats that differ by a few roundings of their scale (that of 1 where all are zero), and other values as
    they are: a model's response shows what rounding may change in its outputs. Of a sequence all elements differ so."""
    if isinstance(value, list):
        return [disturbed(element) for element in value]
    if value is None or not value.size or (value.dtype.kind != "f" and not is_narrow(value)):
        return value
    array: Array = value
    scale = float(np.abs(array[np.isfinite(array)].astype(np.float64)).max(initial=0.0)) or 1.0
    step = _ROUNDINGS * epsilon(array) * scale
    noise = np.random.default_rng(0).uniform(-step, step, array.shape)
    with np.errstate(over="ignore"):
        return np.asarray(array.astype(np.float64) + noise).astype(array.dtype)
