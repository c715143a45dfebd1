"""The rows of a results file, and the file itself."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.protocol.contestants import ORIGINAL
from benchmarks.protocol.judging.judgement import Judgement, Ruling
from benchmarks.protocol.searches.runs import DONE, Run
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.system.atomic_files import replace_file

Row = dict[str, Any]
FIELDS = (
    "model", "agent", "kind", "seed", "budget_s", "speedup", "speedup_ci95", "baseline_ms", "latency_ms", "seconds",
    "measurements", "verified", "max_rel_error", "size_growth", "rewrites", "failure",
)  # fmt: skip
"""What every row has; None (null) where it does not apply or is not known. `failure` is the reason why a row does not
count, and empty where it counts."""
_OF_SEARCH = (
    "pricing_s", "actions", "rule_faults", "deployment", "search", "interference", "repeated", "side_by_side", "commit",
    "runtimes",
)  # fmt: skip


class SharedMeasurementError(MachineError):
    """Two seeds have the very same latency: one measurement was taken for two."""


def run_row(run: Run, outcome: dict[str, Any], judgement: Judgement | None) -> Row:
    """Return the row of a run. Of what the search says of its result nothing counts; a kept original is what it is
    compared with, and has speed-up 1 without being judged."""
    row = _empty(run.model, run.name, run.kind, run.seed, run.budget_s)
    row |= {"threads": run.threads, "batch": run.batch}
    if outcome["status"] != DONE:
        return row | {"failure": outcome["reason"] or outcome["status"]}
    row |= {name: outcome[name] for name in ("seconds", "measurements", "size_growth", "rewrites", "max_rel_error")}
    row |= {name: outcome[name] for name in _OF_SEARCH if name in outcome}
    row |= {"message": outcome["reason"], "curve": [[s, x] for s, _, x in outcome["trajectory"]]}
    row["kept_original"] = outcome["kept_original"]
    if not outcome["verified"]:
        return row | {"failure": outcome["reason"] or "its outputs differ from the original's"}
    if outcome["kept_original"]:
        baseline = _baseline(judgement) or outcome["search"]["baseline_ms"]
        return row | {
            "speedup": 1.0, "speedup_ci95": [1.0, 1.0], "baseline_ms": baseline, "latency_ms": baseline,
            "verified": True, "sessions": [],
        }  # fmt: skip
    return row | _judged(judgement, run.contestant, outcome["max_rel_error"])


def peer_row(model: str, name: str, judgement: Judgement | None, *, seconds: float | None, setting: Row) -> Row:
    """Return the row of a peer that was prepared in some seconds."""
    row = _empty(model, name, "peer", None, None) | setting | {"seconds": seconds, "measurements": 0}
    return row | _judged(judgement, name, None)


def original_row(model: str, seed: int, judgement: Judgement, name: str, setting: Row) -> Row:
    """Return the row of the original judged against itself."""
    row = _empty(model, ORIGINAL, "control", seed, None) | setting | {"size_growth": 1.0, "measurements": 0}
    return row | _judged(judgement, name, None)


def missing_row(model: str, name: str, kind: str, reason: str, setting: Row) -> Row:
    """Return the row of what is not there: it is reported and not hidden."""
    return _empty(model, name, kind, None, None) | setting | {"failure": reason}


def _empty(model: str, agent: str, kind: str, seed: int | None, budget_s: float | None) -> Row:
    known = {"model": model, "agent": agent, "kind": kind, "seed": seed, "budget_s": budget_s}
    return {**dict.fromkeys(FIELDS), **known, "verified": False, "rewrites": [], "failure": ""}


def _judged(judgement: Judgement | None, name: str, error: float | None) -> Row:
    if judgement is None or name not in judgement.verdicts:
        return {"failure": "it was not judged"}
    verdict = judgement.verdicts[name]
    return {
        "speedup": verdict.wall and verdict.wall.speedup,
        "speedup_ci95": verdict.wall and verdict.wall.limits,
        "cpu_speedup": verdict.cpu and verdict.cpu.speedup,
        "cpu_speedup_ci95": verdict.cpu and verdict.cpu.limits,
        "baseline_ms": verdict.baseline_ms,
        "latency_ms": verdict.latency_ms,
        "verified": verdict.verified,
        "max_rel_error": _worst(error, verdict),
        "sessions": list(verdict.sessions),
        "failure": verdict.failure,
        **({"judged_as": verdict.judged_as} if verdict.judged_as else {}),
        **judgement.facts,
    }


def _worst(error: float | None, verdict: Ruling) -> float | None:
    """Return the larger error of the search's own check and the judgement; None where it is not finite."""
    worst = max((e for e in (error, verdict.max_rel_error) if e is not None), default=math.inf)
    return worst if math.isfinite(worst) else None


def _baseline(judgement: Judgement | None) -> float | None:
    """Return the original's milliseconds in a judgement, in the middle of those beside each contestant."""
    found = [] if judgement is None else [v.baseline_ms for v in judgement.verdicts.values() if v.baseline_ms]
    return sorted(found)[len(found) // 2] if found else None


def counts(row: Row) -> bool:
    """Return whether a row has a speed-up that means something."""
    return bool(row["verified"]) and row["speedup"] is not None and not row["failure"]


def check_no_shared_measurement(rows: Sequence[Row]) -> None:
    """Refuse rows of which two seeds share a measurement, unless they are the same model and say so.

    Raises:
        SharedMeasurementError: two seeds of an agent, budget and model have the same latency, to the last digit, in the
            judgement or in their own search. Originals that were kept are not measured, and pass.
    """
    by_run: dict[tuple[Any, ...], dict[tuple[str, float], int | None]] = defaultdict(dict)
    for row in rows:
        if row["seed"] is None or row.get("kept_original"):
            continue
        run = (row["model"], row["agent"], row["budget_s"], row.get("threads"), row.get("batch"))
        searched = (row.get("search") or {}).get("latency_ms")
        judged = None if row.get("judged_as") else row["latency_ms"]
        for where, latency in (("judged", judged), ("searched", searched)):
            if not latency:
                continue
            other = by_run[run].setdefault((where, latency), row["seed"])
            if other != row["seed"]:
                raise SharedMeasurementError(
                    f"{row['model']}, {row['agent']}: seeds {other} and {row['seed']} have the same latency"
                    f" ({where}: {latency} ms), so one measurement was taken for two; remove both runs and begin anew"
                )


def own_key(row: Row) -> tuple[Any, ...]:
    """Return what tells a row from the others of its file."""
    return tuple(row[name] for name in ("model", "agent", "kind", "seed", "budget_s"))


def merged(old: Sequence[Row], new: Sequence[Row]) -> list[Row]:
    """Return old rows with new ones instead of those of the same run, which come last."""
    replaced = {own_key(row) for row in new}
    return [*(row for row in old if own_key(row) not in replaced), *new]


def read_rows(path: Path, machine: dict[str, Any]) -> list[Row]:
    """Return the rows of a results file; none where there is no such file.

    Raises:
        UserError: it is no results file, or that of another machine.
    """
    if not path.exists():
        return []
    try:
        stored = json.loads(path.read_text())
        made_on, rows = _hardware(stored["machine"]), list(stored["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no results file of this benchmark ({error!r}); choose another --out") from error
    if made_on != _hardware(machine):
        raise UserError(f"{path} was made on another machine ({made_on}); choose another --out")
    return rows


def _hardware(machine: dict[str, Any]) -> str:
    """Return the names of a machine's processor and, where the table runs on one, of its device."""
    return " with ".join([machine["cpu"], *([machine["gpu"]] if "gpu" in machine else [])])


def table_files(folder: Path) -> list[Path]:
    """Return the results files of `benchmarks.results` in the folders below one: those that name their protocol."""
    return [path for path in sorted(folder.glob("*/*.json")) if "protocol" in json.loads(path.read_text())]


def write_results(path: Path, head: dict[str, Any], rows: Sequence[Row]) -> list[Row]:
    """Write a results file, with the rows that it has already beside the new ones. Return all rows.

    Raises:
        UserError: as `read_rows`.
        SharedMeasurementError: two seeds share a measurement; the file is left as it is.
    """
    whole = merged(read_rows(path, head["machine"]), rows)
    check_no_shared_measurement(whole)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, as_text(head, whole))
    return whole


def as_text(head: dict[str, Any], rows: Sequence[Row]) -> str:
    """Return the content of a results file: JSON with a row per line, since rows hold whole recordings."""
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    before = json.dumps({**head, "rows": []}, indent=2).removesuffix("[]\n}")
    return f"{before}[\n{lines}\n]\n}}\n"
