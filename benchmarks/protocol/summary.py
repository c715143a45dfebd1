"""Means over the models of a table, for people, and what the controls say of the table itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from benchmarks.protocol.contestants import ORIGINAL
from benchmarks.protocol.judging.intervals import interquartile_mean, over_models
from benchmarks.protocol.table import Row, counts

MANY_SEEDS = 5
"""Seeds from which the interquartile mean is shown beside the geometric mean."""

Series = tuple[str, str, float | None]
"""Kind, agent and budget."""


def ratios_by_model(rows: Sequence[Row]) -> dict[Series, dict[str, list[list[float]]]]:
    """Return the log ratios of rows by series and model: a list of sessions per seed. A kept original has the ratio 1
    in every session, and so has a run that failed, since its user keeps the original. Series of which no run counts are
    left out."""
    found: dict[Series, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    counted = {_series(row) for row in rows if counts(row) and row["agent"] != ORIGINAL}
    for row in rows:
        if _series(row) in counted:
            found[_series(row)][row["model"]].append(row["sessions"] if counts(row) else [])
    for models in found.values():
        for runs in models.values():
            most = max(1, *map(len, runs))
            runs[:] = [sessions or [0.0] * most for sessions in runs]
    return found


def _series(row: Row) -> Series:
    return row["kind"], row["agent"], row["budget_s"]


def controls_held(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how many originals were judged against themselves, and how many of the intervals hold 1."""
    judged = [row for row in rows if row["agent"] == ORIGINAL and row["kind"] == "control" and counts(row)]
    held = [row for row in judged if row["speedup_ci95"][0] <= 1.0 <= row["speedup_ci95"][1]]
    return {"original_against_itself": {"judgements": len(judged), "hold_one": len(held)}} if judged else {}


def slower(rows: Sequence[Row]) -> list[Row]:
    """Return the rows of ours that are surely slower than the original: each is a defect."""
    return [r for r in rows if counts(r) and r["kind"] == "agent" and r["speedup_ci95"][1] < 1.0]


def summary_table(rows: Sequence[Row]) -> Table:
    """Return a table with a row per agent, control and peer: the mean over models, in which a run that failed counts as
    1.0."""
    table = Table(title="Speed-up over ONNX Runtime with all its optimisations, geometric mean over models")
    for heading in ("kind", "name", "budget s", "models", "speed-up", "95%", "failed", "surely slower"):
        table.add_column(heading, justify="left" if heading in ("kind", "name") else "right")
    left_out: dict[Series, int] = defaultdict(int)
    for row in rows:
        left_out[_series(row)] += not counts(row)
    below = slower(rows)
    known = ratios_by_model(rows)
    for series, missing in left_out.items():
        kind, name, budget = series
        if name == ORIGINAL:
            continue
        cells = [kind, name, "" if budget is None else f"{budget:g}", str(len(known.get(series, ())))]
        if series in known:
            mean = over_models(known[series])
            shown = f"{mean.speedup:.3f}"
            if max(len(runs) for runs in known[series].values()) >= MANY_SEEDS:
                shown += f" (IQM {interquartile_mean(known[series]).speedup:.3f})"
            cells += [shown, f"{mean.low:.3f} to {mean.high:.3f}"]
        else:
            cells += ["", ""]
        worse = sum(_series(row) == series for row in below)
        table.add_row(*cells, str(missing or ""), str(worse or ""))
    for held in controls_held(rows).values():
        table.caption = f"originals against themselves: {held['hold_one']} of {held['judgements']} intervals hold 1"
    return table
