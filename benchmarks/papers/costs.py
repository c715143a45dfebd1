"""Tables of cost estimates: the sum of operators against the clock, and extraction methods against each other."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from benchmarks.papers.table import NOT_RUN, Published, grid

_FIXED_BELOW = 1e6


def show_discrepancy(published: Published, path: Path | None) -> list[str]:
    """Show X-RLflow's table 1: sum of operators and latency, in milliseconds, and their difference in per cent of the
    sum, as the paper has it. Ours come from `benchmarks.latency.discrepancy`."""
    ours = _by_model(path)
    rows = []
    for row in published["table 1"]["rows"]:
        found = ours.get(row["zoo"])
        cells = [NOT_RUN] * 3
        if found is not None:
            total, latency = found["sum_ms"], found["end_to_end_ms"]
            cells = [f"{total:.2f}", f"{latency:.2f}", f"{100 * abs(latency - total) / total:.1f}%"]
        theirs = [f"{row['cost_model_ms']:.2f}", f"{row['end_to_end_ms']:.2f}", f"{row['difference_pct']:g}%"]
        rows.append([row["zoo"], *theirs, *cells])
    headings = ("model", "theirs: sum, ms", "end to end, ms", "difference", "ours: sum, ms", "end to end, ms")
    return grid((*headings, "difference"), rows)


def show_extraction(published: Published, path: Path | None) -> list[str]:
    """Show PACT'24's table 1: what extraction methods estimate for an e-graph that holds one graph, relative to the
    integer program's. Ours come from `benchmarks.egraphs.extraction`, which counts operators and no milliseconds."""
    ours = _by_model(path)
    rows = []
    for row in published["table 1"]["rows"]:
        found, exact = ours.get(row["zoo"]), row["ilp_ms"]
        cells = [NOT_RUN] * 3
        if found is not None:
            cells = [_times(found[method] / found["ilp"]) for method in ("tree", "shared", "dag")]
        rows.append([row["zoo"], _times(row["default_ms"] / exact), _times(row["ours_ms"] / exact), *cells])
    return grid(
        ("model", "theirs: default cost function", "their cost function", "ours: `tree`", "`shared`", "`dag`"), rows
    )


def _by_model(path: Path | None) -> dict[str, dict[str, Any]]:
    if path is None:
        return {}
    return {row["model"]: row for row in json.loads(path.read_text("utf-8"))["rows"]}


def _times(ratio: float) -> str:
    """Return a ratio as a reader grasps it: huge ones as a power of ten."""
    if ratio < _FIXED_BELOW:
        return f"{ratio:,.2f}"
    power = math.floor(math.log10(ratio))
    return f"{ratio / 10**power:.1f}e{power}"
