"""All node test cases of `onnx` in one process, by `make node-cases`.

Outcomes are written to a file line by line. A run that is repeated goes on where the one before ended, and counts a
case in which that one died as crashed.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.coverage_of_models.node_cases import RAN, Outcome, judged, node_cases
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains

MOST_REFUSED = 0.03
"""Part of the cases that ONNX Runtime runs which may be refused."""
PATIENCE = 10.0
"""A case that is refused is tried again with so many times the time."""
_STARTED = "started"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the cases that are not done yet; return 1 where one is wrong or crashed, or too many are refused."""
    asked = _arguments(arguments)
    names = list(node_cases())[asked.first :: asked.step][: asked.count]
    names = [name for name in names if asked.only in name]
    done = {} if asked.afresh else _read(asked.results)
    if asked.afresh:
        asked.results.unlink(missing_ok=True)
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    options: dict[str, Any] = {"memory": False}
    if asked.planted:
        options = OPTIONS
    with asked.results.open("a", encoding="utf-8") as results, planted_gains() if asked.planted else nullcontext():
        for number, name in enumerate(names, 1):
            if name not in done:
                _write(results, {"name": name, "status": _STARTED})
                done[name] = _safely(name, asked.time_limit, options)
                _write(results, asdict(done[name]))
            if sys.stderr.isatty() or number % 50 == 0 or number == len(names):
                print(f"{number} of {len(names)}: {name} {done[name].status}", file=sys.stderr, flush=True)
    return _report([done[name] for name in names], asked.json)


def _arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--step", type=int, default=1, help="take every so many-th case")
    parser.add_argument("--count", type=int, default=10**9, help="number of cases")
    parser.add_argument("--only", default="", help="a part of the names of the cases to run")
    parser.add_argument("--time-limit", type=float, default=1.0, help="seconds per optimisation")
    parser.add_argument(
        "--planted", action="store_true", help="let every rewrite seem to gain, so that results have some"
    )
    parser.add_argument("--results", type=Path, default=Path("build/node-cases.jsonl"), help="the file of outcomes")
    parser.add_argument("--afresh", action="store_true", help="forget the outcomes that are in that file")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    return parser.parse_args(arguments)


def _safely(name: str, time_limit: float, options: dict[str, Any]) -> Outcome:
    case = node_cases()[name]
    try:
        found = judged(case, time_limit, **options)
        # Inputs that a model runs on may take longer to find than the limit of all others allows.
        return found if found.status != "refused" else judged(case, PATIENCE * time_limit, **options)
    except Exception:  # whatever it is, it is a bug to list beside the others
        return Outcome(name, "", "crashed", traceback.format_exc())


def _read(path: Path) -> dict[str, Outcome]:
    if not path.exists():
        return {}
    found: dict[str, Outcome] = {}
    for line in path.read_text("utf-8").splitlines():
        entry = json.loads(line)
        if entry["status"] == _STARTED:
            found[entry["name"]] = Outcome(entry["name"], "", "crashed", "the process died in this case")
        else:
            found[entry["name"]] = Outcome(**entry)
    return found


def _write(results: Any, entry: dict[str, Any]) -> None:
    results.write(json.dumps(entry) + "\n")
    results.flush()


def summary(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the numbers of cases by outcome, and the names and messages of those that are not equal."""
    counts = Counter(outcome.status for outcome in outcomes)
    run_by_ort = sum(counts[status] for status in RAN)
    return {
        "cases": len(outcomes),
        "run_by_onnxruntime": run_by_ort,
        "as_expected_by_onnxruntime": sum(o.as_expected for o in outcomes if o.status in RAN),
        **{status: counts[status] for status in RAN},
        "refused_share": counts["refused"] / run_by_ort if run_by_ort else 0.0,
        "seconds": round(sum(outcome.seconds for outcome in outcomes), 1),
        "not_equal": [asdict(o) for o in outcomes if o.status in ("refused", "wrong", "crashed")],
    }


def _report(outcomes: Sequence[Outcome], as_json: bool) -> int:
    found = summary(outcomes)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        console = Console()
        counted = Table("outcome", "cases", title="Node test cases")
        for key, value in found.items():
            if key != "not_equal":
                counted.add_row(key.replace("_", " "), f"{value:.1%}" if key == "refused_share" else str(value))
        console.print(counted)
        listed = Table("case", "outcome", "message", title="Not equal")
        for entry in found["not_equal"]:
            listed.add_row(entry["name"], entry["status"], entry["message"])
        if listed.row_count:
            console.print(listed)
    return int(bool(found["wrong"] or found["crashed"] or found["refused_share"] >= MOST_REFUSED))


if __name__ == "__main__":
    sys.exit(main())
