"""Numbers as people read them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from agents.reporting.html.markup import Html, figure, html

UNKNOWN = html("unknown")
TIMES = "\N{MULTIPLICATION SIGN}"


def milliseconds(value: float | None, *, unit: str = " ms") -> Html:
    """Return milliseconds with three digits that mean something."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    digits = 0 if value == 0.0 else min(5, max(0, 2 - math.floor(math.log10(abs(value)))))
    return figure(value, f"{value:.{digits}f}{unit}")


def megabytes(value: float | None) -> Html:
    """Return bytes as kB, MB or GB."""
    if value is None:
        return UNKNOWN
    size, unit = next(((s, u) for s, u in ((1e9, "GB"), (1e6, "MB")) if value >= s), (1e3, "kB"))
    return figure(value, f"{value / size:.{1 if value < 100 * size else 0}f} {unit}")


def times(value: float) -> Html:
    """Return a factor, such as 1.36 times."""
    return figure(value, f"{value:.3f}{TIMES}")


def interval(ends: Sequence[float | None]) -> Html:
    """Return the ends of an interval of factors."""
    low, high = ends
    return UNKNOWN if low is None or high is None else html(f"{low:.3f} to {high:.3f}")


def error(value: float | None) -> Html:
    """Return a small relative number."""
    return UNKNOWN if value is None else figure(value, f"{value:.1e}")


def counted(number: int, thing: str, things: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {thing if number == 1 else things or f'{thing}s'}"
