"""Toom-Cook's algorithm for short convolutions, known as Winograd's: m outputs of a filter of r taps by m + r - 1
products instead of m * r.

    y = A^T ((G g) * (B^T d)),  y[i] = sum over k of d[i + k] g[k]

The filter as a polynomial is evaluated at m + r - 2 points and at infinity, and so is, transposed, the data (A. Lavin
and S. Gray, Fast Algorithms for Convolutional Neural Networks, 2016, section 4; B. Barabasz et al., Error Analysis and
Improving the Accuracy of Winograd Convolution, 2020, on the choice of points). Matrices are exact rationals.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from math import lcm

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

PAIRS = (Fraction(1), Fraction(2), Fraction(1, 2), Fraction(4), Fraction(1, 4))
"""Points besides 0 and infinity, each with its negative: small numbers and powers of two, whose powers are exact and
grow slowly."""
LARGEST_TILE = 2 + 2 * len(PAIRS)


@dataclass(frozen=True)
class ToomCook:
    """F(m, r): `outputs` m, `taps` r, the points p > 0 used with their negatives, and the three matrices.

    `data` is B^T [n, n], all integers; `filters` is G [n, r]; n = m + r - 1. Rows are in the order of the points 0, p,
    -p for each p, and infinity.
    """

    outputs: int
    taps: int
    points: tuple[Fraction, ...]
    data: Matrix
    filters: Matrix

    @property
    def tile(self) -> int:
        """Return the number n of products, and of data that a tile reads."""
        return self.outputs + self.taps - 1

    @cached_property
    def results(self) -> Matrix:
        """A^T [m, n]."""
        rows = []
        for i in range(self.outputs):
            powers = [Fraction(int(i == 0)), *(q**i for p in self.points for q in (p, -p))]
            rows.append((*powers, Fraction(int(i == self.outputs - 1))))
        return tuple(rows)

    @property
    def saving(self) -> Fraction:
        """Return the multiplications of the direct algorithm per product."""
        return Fraction(self.outputs * self.taps, self.tile)

    @property
    def weight_growth(self) -> Fraction:
        """Return the elements of the transformed filters per element of the filters."""
        return Fraction(self.tile, self.taps)

    @cached_property
    def amplification(self) -> float:
        """Return the factor by which magnitudes on the way may exceed those of the direct algorithm: the largest sum
        over the products of |A^T| |G| |B^T|, per tap. It is 1 for the direct algorithm; rounding errors grow with
        it."""
        sums = [sum(map(abs, g)) * sum(map(abs, b)) for g, b in zip(self.filters, self.data, strict=True)]
        totals = [sum((abs(a) * s for a, s in zip(row, sums, strict=True)), Fraction()) for row in self.results]
        return float(max(totals) / self.taps)


@cache
def toom_cook(outputs: int, taps: int) -> ToomCook:
    """Return F(m, r) for an even m + r - 1: the points 0, pairs p and -p, and infinity.

    Raises:
        ValueError: the number of products is odd, below 2, or more than the points allow.
    """
    tile = outputs + taps - 1
    if min(outputs, taps) < 1 or tile % 2 or not 2 <= tile <= LARGEST_TILE:
        raise ValueError(
            f"F({outputs}, {taps}) has {tile} products; even numbers from 2 to {LARGEST_TILE} can be made: choose "
            "other outputs per tile"
        )
    pairs = PAIRS[: (tile - 2) // 2]
    points = (Fraction(0), *(q for p in pairs for q in (p, -p)))
    data, filters = [], []
    for j, point in enumerate(points):
        others = points[:j] + points[j + 1 :]
        row = (*_with_roots(others), Fraction(0))
        # The denominators of the data's transform go into the filters', which is applied before run time.
        scale = lcm(*(x.denominator for x in row))
        value = Fraction(scale)
        for other in others:
            value *= point - other
        data.append(tuple(scale * x for x in row))
        filters.append(tuple(point**k / value for k in range(taps)))
    last = _with_roots(points)
    scale = lcm(*(x.denominator for x in last))
    data.append(tuple(scale * x for x in last))
    filters.append((*(Fraction(0),) * (taps - 1), Fraction(1, scale)))
    return ToomCook(outputs, taps, pairs, tuple(data), tuple(filters))


def _with_roots(roots: tuple[Fraction, ...]) -> Row:
    """Return the coefficients, constant first, of the monic polynomial with these roots."""
    found: Row = (Fraction(1),)
    for root in roots:
        shifted = (Fraction(0), *found)
        found = tuple(a - root * b for a, b in zip(shifted, (*found, Fraction(0)), strict=True))
    return found
