"""JSON that every reader takes: the format has no infinity and no NaN, which Python writes all the same."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def finite(value: Any) -> Any:
    """Return plain values with None in the place of numbers that are not finite."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def json_text(values: object) -> str:
    """Return values as one line of JSON; numbers that are not finite are null."""
    return json.dumps(finite(values), allow_nan=False)
