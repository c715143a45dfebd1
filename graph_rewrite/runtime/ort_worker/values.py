"""Comparison of the values of two models: how far apart they are, and whether values tell anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_EXACT = "biuOSU"
_SAME = 1e-6
"""Relative to the scale of a value: what it must change by from input to input to tell anything."""


def compare_values(original: Any, optimised: Any) -> tuple[float, str]:
    """Return the largest difference relative to the largest finite magnitude of `original`, and what else is wrong.

    Floats may differ; all other elements must be equal. NaN and infinities must stand in the same places. Values are
    arrays, lists of values (sequences), mappings of values, single numbers or None (an empty optional).
    """
    if isinstance(original, list) and isinstance(optimised, list):
        if len(original) != len(optimised):
            return np.inf, f"has {len(optimised)} elements instead of {len(original)}"
        return _worst([compare_values(a, b) for a, b in zip(original, optimised, strict=True)])
    if isinstance(original, Mapping) and isinstance(optimised, Mapping):
        if original.keys() != optimised.keys():
            return np.inf, "has other keys"
        return _worst([compare_values(value, optimised[key]) for key, value in original.items()])
    if isinstance(original, float) and isinstance(optimised, float):
        original, optimised = np.array(original), np.array(optimised)
    if not isinstance(original, np.ndarray) or not isinstance(optimised, np.ndarray):
        same = type(original) is type(optimised) and original == optimised
        return (0.0, "") if same else (np.inf, "is of another kind")
    if original.dtype != optimised.dtype or original.shape != optimised.shape:
        return np.inf, (
            f"is {optimised.dtype}{list(optimised.shape)} instead of {original.dtype}{list(original.shape)}"
        )
    if original.dtype.kind in _EXACT:
        return (0.0, "") if np.array_equal(original, optimised) else (np.inf, "has other integers, booleans or strings")
    return _compare_floats(original, optimised)


def _worst(found: Sequence[tuple[float, str]]) -> tuple[float, str]:
    return max(found, default=(0.0, ""))


def _wide(value: Array) -> Array:
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def _compare_floats(original: Array, optimised: Array) -> tuple[float, str]:
    a, b = _wide(original), _wide(optimised)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return np.inf, "has NaN or infinity in other places"
    scale = float(np.abs(a[finite]).max(initial=0.0))
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return (0.0, "") if difference == 0.0 else (difference / scale if scale else np.inf, "")


def largest(value: Any) -> float:
    """Return the largest finite magnitude in a value; 0 for one that is no array of floats."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in _EXACT:
        return 0.0
    wide = _wide(value)
    return float(np.abs(wide[np.isfinite(wide)]).max(initial=0.0))


def beyond_tolerances(original: Any, optimised: Any, rtol: float, atol: float) -> str:
    """Return the first element that differs by more than `atol + rtol * |original|`, in words; empty where there is
    none. Values are of one type and shape; only floats count."""
    if isinstance(original, list):
        pairs = zip(original, optimised, strict=True)
        return next((text for a, b in pairs if (text := beyond_tolerances(a, b, rtol, atol))), "")
    if not isinstance(original, np.ndarray) or original.dtype.kind in _EXACT:
        return ""
    a, b = _wide(original), _wide(optimised)
    bad = np.isfinite(a) & ~(np.abs(a - b) <= atol + rtol * np.abs(a))
    if not bad.any():
        return ""
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"is {b[index]:.7g} instead of {a[index]:.7g} at {list(index)}, beyond the tolerances rtol={rtol:g} and"
        f" atol={atol:g} ({int(bad.sum())} of {bad.size} elements)"
    )


def is_constant(value: Any) -> bool:
    """Return whether all elements of a floating-point output (of several elements) are the same, or none is finite."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in _EXACT or value.size < 2:
        return False
    finite = value[np.isfinite(value)]
    return bool(finite.size == 0 or (finite.size == value.size and np.all(finite == finite[0])))


def tells_nothing(values: Sequence[Any]) -> bool:
    """Return whether a value of a model is the same on all inputs, so that agreement with it proves little: its value
    on each input is given. On one input alone it is one with no elements, or equal ones."""
    if len(values) == 1:
        return _is_empty(values[0]) or is_constant(values[0])
    return all(_same(values[0], value) for value in values[1:])


def _is_empty(value: Any) -> bool:
    return value.size == 0 if isinstance(value, np.ndarray) else value is None or value == []


def _same(one: Any, other: Any) -> bool:
    error, problem = compare_values(one, other)
    return not problem and error <= _SAME
