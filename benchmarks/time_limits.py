"""Run `rewritegym optimize` on models as a user does, at several time limits, and judge every result anew.

    python -m benchmarks.time_limits --models bert vgg19 --limits 30 120 --threads 1

Each run is a process of its own with an empty cache. It knows nothing of earlier results; with `--shipped` it begins
with those that RewriteGym ships, as a user's first run does. `rewritegym check` then
measures the file that it wrote against the original, in sessions of its own. The results file is written after every
run; a run that it holds already is not repeated. It holds the recorded rewrites too, which
`benchmarks.recordings.known_results` takes.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from agents.commands.common import stderr_console
from agents.reporting.runs import write_json
from benchmarks import RESULTS
from benchmarks.protocol.machine.description import machine_name
from benchmarks.protocol.searches.runs import located
from graph_rewrite import zoo
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency.device import device_name
from graph_rewrite.system.commands import run_command

CHECK_S = 20.0
"""Seconds for measuring a result anew."""
SLACK = (0.1, 5.0)
"""A run may exceed its limit by this share of it, or by these seconds, whichever is more."""
MEASURED = (0, 3, 4)
"""Exit codes of `rewritegym check` that come with a measurement."""


@dataclass(frozen=True)
class Arguments:
    """Optimise models at several time limits, each in a fresh process, and judge the results anew."""

    models: tuple[str, ...] = ()
    """Names of the zoo, or zoo://NAME?PARAMETER=VALUE; the whole zoo by default."""
    limits: tuple[float, ...] = (120.0,)
    """Time limits in seconds."""
    threads: int = 1
    """Threads per inference."""
    shipped: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Begin with the results that RewriteGym ships."""
    out: Path = RESULTS / machine_name() / "time-limits.json"
    """The results file; by default of this machine."""
    again: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Repeat the runs that the results file holds already."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


def run_of(model: str, threads: int, limit: float, shipped: bool) -> dict[str, Any]:
    """Optimise one model with one time limit, and judge the result.

    Raises:
        MachineError: one of the two commands failed.
    """
    original = located(model, 1) if "://" in model else zoo.export(model)
    with tempfile.TemporaryDirectory(prefix="time-limits-") as folder:
        output = Path(folder) / "optimized.onnx"
        began = time.monotonic()
        found = _command(
            ["optimize", str(original), str(output), "--time-limit", f"{limit:g}s", "--threads", str(threads),
             *(() if shipped else ("--no-memory",))],
            Path(folder), (0,),
        )  # fmt: skip
        wall = time.monotonic() - began
        row = {
            "model": model, "limit_s": limit, "threads": threads, "shipped": shipped, "wall_s": round(wall, 2),
            **{name: found[name] for name in ("speedup", "speedup_ci95", "baseline_ms", "latency_ms", "verified",
                                              "max_rel_error", "measurements")},
            "rewrites": [{name: step[name] for name in ("rule", "sites")} for step in found["rewrites"]],
            "message": found.get("message", ""), "actions": found["actions"],
        }  # fmt: skip
        if not found["rewrites"]:
            return {**row, "judged": 1.0, "judged_ci95": [1.0, 1.0]}
        judged = _command(["check", str(output), str(original), "--seconds", f"{CHECK_S:g}"], Path(folder), MEASURED)
        return {**row, "judged": judged["speedup"], "judged_ci95": judged["speedup_ci95"]}


def _command(words: Sequence[str], folder: Path, fine: Sequence[int]) -> dict[str, Any]:
    """Run a command of rewritegym and return the object that it prints."""
    environment = {**os.environ, "REWRITEGYM_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "rewritegym", *words, "--json"], capture_output=True, text=True, env=environment,
        check=False,
    )  # fmt: skip
    if done.returncode not in fine:
        raise MachineError(f"rewritegym {words[0]} ended with {done.returncode}: {done.stderr.strip()[-2000:]}")
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def keeps_limit(row: dict[str, Any]) -> bool:
    """Return whether a run ended in its time limit, or little later."""
    share, seconds = SLACK
    return bool(row["wall_s"] <= row["limit_s"] + max(share * row["limit_s"], seconds))


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    """Return a table with a row per run, and the geometric mean of each limit and number of threads."""
    table = Table(title=f"rewritegym optimize, {device_name('cpu')}")
    for heading in (
        "model",
        "threads",
        "limit s",
        "begins with",
        "took s",
        "original ms",
        "said",
        "judged anew",
        "95%",
        "rules",
    ):
        table.add_column(heading, justify="left" if heading in ("model", "begins with", "rules") else "right")
    for row in rows:
        low, high = row["judged_ci95"]
        rules = ", ".join(dict.fromkeys(step["rule"] for step in row["rewrites"])) or row["message"]
        took = f"{row['wall_s']:.1f}" + ("" if keeps_limit(row) else " (late)")
        table.add_row(
            row["model"], str(row["threads"]), f"{row['limit_s']:g}", _start(row["shipped"]), took,
            f"{row['baseline_ms']:.2f}", f"{row['speedup']:.3f}", f"{row['judged']:.3f}", f"{low:.3f} to {high:.3f}",
            rules,
        )  # fmt: skip
    for (threads, limit, shipped), group in _groups(rows):
        mean = math.exp(sum(math.log(row["judged"]) for row in group) / len(group))
        late, slower = (sum(map(test, group)) for test in (lambda row: not keeps_limit(row), is_slower))
        table.add_row(
            f"geometric mean of {len(group)}", str(threads), f"{limit:g}", _start(shipped), f"{late} late",
            "", "", f"{mean:.3f}", f"{slower} slower", "",
        )  # fmt: skip
    return table


def _start(shipped: bool) -> str:
    return "shipped results" if shipped else "nothing"


def is_slower(row: dict[str, Any]) -> bool:
    """Return whether a result was judged surely slower than its original."""
    return bool(row["judged_ci95"][1] < 1.0)


def _setting(row: dict[str, Any]) -> tuple[int, float, bool]:
    return row["threads"], row["limit_s"], row["shipped"]


def _groups(rows: Sequence[dict[str, Any]]) -> Iterator[tuple[tuple[int, float, bool], list[dict[str, Any]]]]:
    for key in sorted(set(map(_setting, rows))):
        yield key, [row for row in rows if _setting(row) == key]


def known_rows(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a results file; none where there is no such file.

    Raises:
        UserError: it is no results file of this benchmark, or of another machine.
    """
    if not path.exists():
        return []
    try:
        stored = json.loads(path.read_text())
        machine, rows = stored["machine"], list(stored["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no results file of this benchmark ({error}); choose another --out") from error
    if machine != device_name("cpu"):
        raise UserError(f"{path} was made on another machine ({machine}); choose another --out")
    return rows


def run(arguments: Arguments, console: Console) -> list[dict[str, Any]]:
    """Make all runs that are not there yet; the file is written after each. Return its rows."""
    rows = known_rows(arguments.out)
    for limit in arguments.limits:
        for model in arguments.models or tuple(zoo.names()):
            setting = arguments.threads, limit, arguments.shipped
            others = [row for row in rows if (row["model"], _setting(row)) != (model, setting)]
            if not arguments.again and len(others) < len(rows):
                continue
            row = run_of(model, *setting)
            rows = [*others, row]
            arguments.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(arguments.out, {"machine": device_name("cpu"), "rows": rows})
            console.print(f"{model}, {limit:g} s: x{row['judged']:.3f} in {row['wall_s']:.1f} s", markup=False)
    return rows


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.time_limits")

    def command() -> int:
        rows = run(arguments, stderr_console())
        if arguments.json:
            print(json.dumps({"rows": rows}))
        else:
            Console(width=None if sys.stdout.isatty() else 200).print(table_of(rows))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
