"""The table of the runtimes that were compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from agents.reporting.progress import table_of


def runtimes_table(runtimes: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row per runtime: the speed-up of the original and of the result in it, over the original in
    ONNX Runtime; the one that is deployed is marked."""
    columns = ("original", "result", "95% interval", "ms")
    table = table_of("in each runtime, against the original in ONNX Runtime", ("runtime",), columns)
    for found in runtimes:
        interval = found["speedup_ci95"]
        table.add_row(
            found["runtime"] + (" (deployed)" if found["chosen"] else ""), _times(found["plain_speedup"]),
            _times(found["speedup"]), "-" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
            "-" if found["latency_ms"] is None else f"{found['latency_ms']:.2f}",
        )  # fmt: skip
    return table


def runtime_lines(runtimes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each runtime whose result was not timed."""
    return [f"{found['runtime']}: {found['message']}" for found in runtimes if found["speedup"] is None]


def _times(speedup: float | None) -> str:
    return "-" if speedup is None else f"x{speedup:.3f}"
