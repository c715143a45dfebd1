"""optimize.py, which also counts what it finds in the cache of measurements: `counted.py COUNTS ARGUMENTS...`"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.commands.optimize import main
from graph_rewrite.latency import MeasurementCache

_get = MeasurementCache.get
_counts = {"asked": 0, "found": 0}


def _counted(self: MeasurementCache, *keys: Mapping[str, Any]) -> dict[str, Any] | None:
    values = _get(self, *keys)
    _counts["asked"] += 1
    _counts["found"] += values is not None
    return values


if __name__ == "__main__":
    MeasurementCache.get = _counted  # type: ignore[method-assign]
    status = main(sys.argv[2:])
    Path(sys.argv[1]).write_text(json.dumps(_counts))
    sys.exit(status)
