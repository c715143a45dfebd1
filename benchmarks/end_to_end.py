"""Optimise the zoo's models with one agent: `python -m benchmarks.end_to_end [--models vgg19 csrnet]`.

Every model gets the same agent and budget. The reported speed-up is the confirming measurement of
`agents.conclusion.conclude`, taken after the search against the original at ORT_ENABLE_ALL. The results file is written
after every model, so --resume continues an interrupted run; --again measures the file's results anew. With --clock cpu
(one thread only) times are CPU times of the thread, which other programs on the machine disturb less; the file names
the clock.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from agents.commands.common import stderr_console
from agents.conclusion.recordings import recording_or_none
from agents.core.base import Budget
from agents.core.config import load_config, model_uri
from agents.core.registry import make_agent
from agents.reporting.progress import search_display
from agents.reporting.runs import result_entry, write_json
from graph_rewrite import zoo
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency import JUDGE, Clock
from graph_rewrite.latency.device import device_name
from graph_rewrite.replay import Recording, replay
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.limits import SIZE_GROWTH, ResultLimits
from graph_rewrite.task.problem import Problem, open_problem
from graph_rewrite.task.replay import ReplayError

RESULTS = Path(__file__).parent / "results"
AGAIN = replace(JUDGE, min_instances=10)
"""More sessions say what a result is worth whose minute of measurement other load on the machine has spoilt."""
WIDTH = 200
"""Columns of the table where it goes into a file."""


@dataclass(frozen=True)
class Arguments:
    """Optimise models of the zoo with one agent."""

    models: tuple[str, ...] = ()
    """Names of the zoo, zoo://NAME?PARAMETER=VALUE, or ONNX files; the whole zoo by default."""
    agent: str = "regional"
    """The agent, by name, with options."""
    seconds: float = 600.0
    """Seconds for each search."""
    measurements: int = 1000
    """Measurements for each search."""
    threads: int = 1
    """Threads per inference."""
    clock: Clock = "wall"
    """Clock of the measurements: wall, or cpu for the thread's own time."""
    max_size_growth: float = SIZE_GROWTH
    """Most bytes of weights of a result, as a multiple of the original's."""
    error_budget: float | None = None
    """Largest difference of any output on several inputs, relative to its scale."""
    standard_ops_only: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """No operators outside the ONNX standard."""
    seed: int = 0
    out: Path | None = None
    """The results file; by default end_to_end-AGENT-tN.json among the results of the benchmarks."""
    resume: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Keep what the results file has, and skip its models."""
    again: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Search nothing: take the rewrites in the results file, of these models or of all, and measure them anew with ten
    sessions a side. What the search ended with stays in `searched`."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""

    @property
    def path(self) -> Path:
        if self.out is not None:
            return self.out
        plain = "".join(c if c.isalnum() else "-" for c in self.agent)
        return RESULTS / f"end_to_end-{plain}-t{self.threads}{'-standard' if self.standard_ops_only else ''}.json"

    def setting(self) -> dict[str, Any]:
        """Return the settings that all results of one file share."""
        return {
            "agent": self.agent,
            "threads": self.threads,
            "clock": self.clock,
            "device": device_name("cpu"),
            "max_size_growth": self.max_size_growth,
            "error_budget": self.error_budget,
            "standard_ops_only": self.standard_ops_only,
        }


def problem_of(model: str, arguments: Arguments) -> Problem:
    """Open a model of the zoo or a file as a problem."""
    config = load_config(model)
    limits = ResultLimits(arguments.max_size_growth, arguments.error_budget, arguments.standard_ops_only)
    return open_problem(
        model_uri(model, dict(config.model)), provider="cpu", threads=arguments.threads,
        granularity=config.env.granularity, rules=config.env.rules, cached=False, limits=limits, clock=arguments.clock,
    )  # fmt: skip


def row_of(model: str, arguments: Arguments, console: Console) -> dict[str, Any]:
    """Search one model and return `result_entry` of its result, with the wall-clock seconds of the whole."""
    started = time.monotonic()
    problem = problem_of(model, arguments)
    agent = make_agent(arguments.agent)
    with search_display(console, f"{model}: {agent.name}") as update:
        budget = Budget(arguments.measurements, arguments.seconds)
        result = agent.optimize(problem, budget, seed=arguments.seed, progress=update)
    problem.meter.close()
    if not math.isfinite(result.latency.baseline_ms):
        raise MachineError("the original was not measured: its worker ran out of time or memory")
    entry = result_entry(result, problem, None)
    recording = recording_or_none(problem, result.actions, result.graph, load_config(model).env.rules)
    return {
        "model": model,
        "baseline_ms": result.latency.baseline_ms,
        "budget_seconds": arguments.seconds,
        "wall_seconds": round(time.monotonic() - started, 1),
        **{name: value for name, value in entry.items() if name not in ("onnx_path", "trajectory")},
        "actions": None if recording is None else replace(recording, model="").to_json(),
    }


def measured_again(row: dict[str, Any], arguments: Arguments) -> dict[str, Any]:
    """Return a row with its rewrites applied and measured anew.

    Raises:
        ReplayError: a rewrite is not offered any more.
        RuntimeError: the rewritten model could not be measured.
    """
    problem = problem_of(row["model"], arguments)
    found = replay(Recording.from_json(row), problem.model.graph, problem.rewriter)
    if not found.complete:
        raise ReplayError(str(found.first_difference))
    latency = problem.confirm(found.graph, AGAIN)
    problem.meter.close()
    if not latency.ok:
        raise MachineError(latency.message)
    searched = row.get("searched", {name: row[name] for name in ("speedup", "speedup_ci95")})
    return {
        **row, "baseline_ms": latency.baseline_ms, "speedup": latency.speedup, "speedup_ci95": list(latency.ci95),
        "latency_ms": latency.ms, "searched": searched,
    }  # fmt: skip


def again(arguments: Arguments, console: Console) -> dict[str, Any]:
    """Measure the results of the results file anew; the file is written after each."""
    found: dict[str, Any] = {
        "setting": arguments.setting(),
        "results": known_results(replace(arguments, resume=True)),
    }
    if not found["results"]:
        raise UserError(f"{arguments.path} has no results to measure again; search first, without --again")
    for place, row in enumerate(found["results"]):
        if not row["rewrites"] or (arguments.models and row["model"] not in arguments.models):
            continue
        try:
            found["results"][place] = measured_again(row, arguments)
        except (ReplayError, RuntimeError) as error:  # the others go on
            console.print(f"{row['model']}: {error}")
            continue
        write_json(arguments.path, found)
        console.print(f"{row['model']}: x{row['speedup']:.3f}, now x{found['results'][place]['speedup']:.3f}")
    return found


def table(found: dict[str, Any]) -> Table:
    """Return a table with a row per model."""
    setting = found["setting"]
    title = f"{setting['agent']}, {setting['threads']} thread(s), {setting['clock']} clock, {setting['device']}"
    made = Table(title=title)
    for heading in ("model", "original ms", "speed-up", "95%", "error", "weights", "peak", "seconds", "sites", "rules"):
        made.add_column(heading, justify="left" if heading in ("model", "rules") else "right")
    for row in found["results"]:
        memory, (low, high) = row["memory"], row["speedup_ci95"]
        grown = {name: memory["after"][name] / max(1, memory["before"][name]) for name in ("weights", "peak")}
        made.add_row(
            row["model"], f"{row['baseline_ms']:.2f}", f"{row['speedup']:.3f}", f"{low:.3f} to {high:.3f}",
            f"{row['max_rel_error']:.0e}", f"x{grown['weights']:.2f}", f"x{grown['peak']:.2f}",
            f"{row['seconds']:.0f}", str(sum(row["rule_histogram"].values())),
            ", ".join(row["rule_histogram"]) or row["message"],
        )  # fmt: skip
    return made


def known_results(arguments: Arguments) -> list[dict[str, Any]]:
    """Return the rows that the results file already holds, where they are to be kept.

    Raises:
        ValueError: the file was made with other settings, or is no file of this benchmark.
    """
    if not arguments.resume or not arguments.path.exists():
        return []
    try:
        stored = json.loads(arguments.path.read_text())
        setting, results = stored["setting"], list(stored["results"])
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{arguments.path} is no results file of this benchmark ({error}); choose another --out"
        ) from error
    if setting != (wanted := arguments.setting()):
        differing = ", ".join(name for name in wanted if setting.get(name) != wanted[name])
        raise UserError(f"{arguments.path} was made with another {differing}; choose another --out, or do not --resume")
    return results


def run(arguments: Arguments, console: Console) -> dict[str, Any]:
    """Run all models; the file is written after each."""
    found: dict[str, Any] = {"setting": arguments.setting(), "results": known_results(arguments)}
    done = {row["model"] for row in found["results"]}
    for model in arguments.models or tuple(zoo.names()):
        if model in done:
            console.print(f"{model}: in {arguments.path.name} already")
            continue
        try:
            found["results"].append(row_of(model, arguments, console))
        except RuntimeError as error:  # of this model, on this day: the others go on, and --resume tries it again
            console.print(f"{model}: {error}")
            continue
        arguments.path.parent.mkdir(parents=True, exist_ok=True)
        write_json(arguments.path, found)
        console.print(f"{model}: x{found['results'][-1]['speedup']:.3f}")
    return found


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.end_to_end")

    def command() -> int:
        found = (again if arguments.again else run)(arguments, stderr_console())
        if arguments.json:
            print(json.dumps(found))
        else:
            Console(width=None if sys.stdout.isatty() else WIDTH).print(table(found))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
