"""Products of matrices modulo 2^31 - 1 at the speed of BLAS: residues as two limbs of 16 bits in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

P = 2**31 - 1
LONGEST = 2**19
"""Products that one float64 sums without rounding: each is below 2^34 (Karatsuba's middle term), a sum below 2^53."""

Residues = npt.NDArray[np.int64]
_Float = npt.NDArray[np.float64]


class Limbs:
    """A matrix of residues split for multiplication: `high` * 2^16 + `low`, and their sum."""

    __slots__ = ("both", "high", "low")

    def __init__(self, residues: npt.NDArray[Any]) -> None:
        self.high: _Float = (residues >> 16).astype(np.float64)
        self.low: _Float = (residues & 0xFFFF).astype(np.float64)
        self.both: _Float = self.high + self.low


def multiply(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> Residues:
    """Return numpy.matmul of residues in [0, P), modulo P, for arrays [..., m, k] and [..., k, n] of int64.

    Three products in float64 are exact (Karatsuba and Ofman 1962), as long as at most `LONGEST` terms are summed;
    longer sums are divided.
    """
    length = a.shape[-1]
    if length <= LONGEST:
        return product(Limbs(a), Limbs(b))
    result: Residues = multiply(a[..., :LONGEST], b[..., :LONGEST, :])
    return (result + multiply(a[..., LONGEST:], b[..., LONGEST:, :])) % P


def product(a: Limbs, b: Limbs) -> Residues:
    """Return the product of two matrices whose inner dimension is at most `LONGEST`, modulo P."""
    low, high = np.matmul(a.low, b.low), np.matmul(a.high, b.high)
    middle = np.matmul(a.both, b.both)
    middle -= low
    middle -= high
    # 2^32 = 2 and 2^31 = 1 modulo P; every term is below 2^53.
    total = _folded(middle) << 16
    total += low.astype(np.int64)
    total += high.astype(np.int64) << 1
    return _reduced(total)


def _folded(x: _Float) -> Residues:
    """Return numbers below 2^54 that are congruent modulo P, and below 2^32."""
    whole = x.astype(np.int64)
    return (whole & P) + (whole >> 31)


def _reduced(x: Residues) -> Residues:
    """Return residues of non-negative numbers below 2^62."""
    x = (x & P) + (x >> 31)
    x = (x & P) + (x >> 31)
    return np.where(x >= P, x - P, x)
