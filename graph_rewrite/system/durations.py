"""Times as users write them."""

from __future__ import annotations

import re

from graph_rewrite.errors import UserError

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_MOST = 1e9
"""More than any search takes, in any unit; what lies beyond is a slip."""


def parse_seconds(text: str) -> float:
    """Return the seconds that a text such as 90, 120s, 1.5m or 2h stands for.

    Raises:
        UserError: another text, or no time at all.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS or not 0.0 < float(found[1]) <= _MOST:
        raise UserError(
            f"--time-limit {text[:100]!r} is no time: give seconds, minutes or hours, such as 90, 120s, 10m or 1h"
        )
    return float(found[1]) * _UNITS[found[2]]
