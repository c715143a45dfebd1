"""Tables of a file of `benchmarks.headroom`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures.tables import markdown, milliseconds
from graph_rewrite.errors import UserError

Entry = Mapping[str, Any]
MOST_OPERATORS = 3
"""Operators of a model that a cell names."""


def read_headroom(path: Path) -> str:
    """Return the tables of a headroom file; empty where there is none.

    Raises:
        UserError: it is no file of `benchmarks.headroom`.
    """
    if not path.is_file():
        return ""
    try:
        return headroom_tables(json.loads(path.read_text()))
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no file of benchmarks.headroom ({error!r})") from error


def rests_of(path: Path) -> dict[str, str]:
    """Return by model the operators with the most time above their limits in our result, or in the original where that
    is our result; empty where there is no file.

    Raises:
        UserError: it is no file of `benchmarks.headroom`.
    """
    if not read_headroom(path):
        return {}
    entries = json.loads(path.read_text())["models"]
    return {one["model"]: _rest(one["ours"] or one["original"]) for one in entries if "failure" not in one}


def headroom_tables(found: Entry) -> str:
    """Return three tables: limits and work, distances by contestant, and the operators that hold the rest."""
    entries = [entry for entry in found["models"] if "failure" not in entry]
    failed = [
        f"{entry['model']} was not profiled: {entry['failure']}" for entry in found["models"] if entry not in entries
    ]
    contestants = list(dict.fromkeys(one["contestant"] for entry in entries for one in entry["contestants"]))
    peaks = entries[0]["peaks"] if entries else None
    said = [] if peaks is None else [
        f"Peaks of this machine with {found['threads']} thread(s): {peaks['gflops']:.0f} GFLOP/s, "
        f"{peaks['gigabytes']:.0f} GB/s from the cache. The limit of a model is the time that the kernels of its "
        "original need at least at these peaks, for their operations or their bytes, whichever is more.",
    ]  # fmt: skip
    return "\n\n".join(
        part.rstrip("\n") for part in [
            *said, markdown(_limits(entries)),
            "Share of the limit that each reaches, by its judged latency. More than 100% needs fewer operations than "
            "the original has: Winograd, Toom-Cook, Strassen.",
            markdown(_shares(entries, contestants)),
            "The operators with the most time above their limits, in percent of all such time, in the original and in "
            "our result:",
            markdown(_rests(entries)), *failed,
        ]
    ) + "\n"  # fmt: skip


def _limits(entries: Sequence[Entry]) -> list[list[str]]:
    """Return work and limit; the operations of our result beside those of the original."""
    table = [[
        "model", "GFLOP", "GB", "limit", "of it arithmetic", "GFLOP executed by ours", "GFLOP/s, ours, effective",
        "executed", "ours of its own limit",
    ]]  # fmt: skip
    for entry in entries:
        original, ours = entry["original"], entry["ours"]
        reached = next(
            (one for one in entry["contestants"] if one["contestant"] != "original" and one["executed_gflops"]), None
        )
        table.append([
            entry["model"], f"{original['gflop']:.3g}", f"{original['gigabytes']:.2g}",
            milliseconds(original["least_ms"]), f"{original['compute_bound']:.0%}",
            entry.get("ours_missing", "") if ours is None else f"{ours['gflop']:.3g}",
            *(("", "", "") if reached is None else (
                f"{reached['effective_gflops']:.0f}", f"{reached['executed_gflops']:.0f}",
                f"{reached['of_own_limit']:.0%}",
            )),
        ])  # fmt: skip
    return table


def _shares(entries: Sequence[Entry], contestants: Sequence[str]) -> list[list[str]]:
    table = [["model", *contestants]]
    for entry in entries:
        reached = {one["contestant"]: one["of_limit"] for one in entry["contestants"]}
        table.append([entry["model"], *(f"{reached[name]:.0%}" if name in reached else "" for name in contestants)])
    return table


def _rests(entries: Sequence[Entry]) -> list[list[str]]:
    table = [["model", "original", "ours"]]
    table += [[entry["model"], _rest(entry["original"]), _rest(entry["ours"])] for entry in entries]
    return table


def _rest(side: Entry | None) -> str:
    if side is None:
        return ""
    most = side["rest"][:MOST_OPERATORS]
    return ", ".join(f"{one['operator']} {one['share']:.0%} ({milliseconds(one['rest_ms'])})" for one in most)
