"""optimize.py, rewritegym optimize: an ONNX file in, a faster and checked ONNX file out."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console

from agents.commands.common import parse, stderr_console
from agents.commands.signals import ending_search
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.registry import make_agent
from agents.reporting.progress import (
    baseline_ms,
    deployment_table,
    print_json,
    print_warnings,
    results_table,
    rewrites_table,
    search_display,
)
from agents.reporting.runs import result_entry
from graph_rewrite.errors import UserError
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.task.limits import SIZE_GROWTH, ResultLimits
from graph_rewrite.task.models import parse_shapes
from graph_rewrite.task.problem import Problem, open_problem

AUTO = "regional"
"""The agent that `auto` stands for: it finds most in a minute or two, on models that nobody prepared."""
CONCLUSION_SHARE = 0.3
"""Share of the time limit that measuring, checking and writing the result may take."""
CONCLUSION_S = 90.0
"""Most seconds of it: a careful measurement takes no longer."""
WRITING_S = 0.5
"""Seconds of it that are left for writing the result, when the checks have come to their end."""
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class OptimizeArguments:
    """Make an ONNX model faster. The result computes the same and is never slower; if nothing is surely faster, it is
    a copy of the original.

    Exit status: 0 when a checked model was written (or --dry-run ended), 1 when no model agrees with the original, 2
    for a mistake in the arguments or the model, 130 when interrupted twice or while the model is opened.
    """

    input: tyro.conf.Positional[Path]
    """The ONNX file."""
    output: tyro.conf.Positional[Path | None] = None
    """The file to write; by default <input>.optimized.onnx beside the input."""
    shape: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The shape of an input with symbolic dimensions, as name:1,128; may be repeated."""
    time_limit: str = "120s"
    """Time for everything from loading to writing, such as 90, 120s or 10m."""
    threads: int | None = None
    """Threads per inference as deployed; by default all cores that this process may use."""
    provider: Literal["auto", "cpu", "cuda"] = "auto"
    """Execution provider of ONNX Runtime; auto takes CUDA where a device answers."""
    agent: str = "auto"
    """The search method, with options: regional, greedy:beam=2, ...; auto is regional."""
    rules: str = "default"
    """Rule sets, separated by commas: default, generated, taso, or all."""
    standard_ops_only: bool = False
    """Bring in no operators outside the ONNX standard, such as those of com.microsoft."""
    fixed_deployment: bool = False
    """Leave ONNX Runtime's optimisers as they are."""
    max_size_growth: float = SIZE_GROWTH
    """Most bytes of weights that the result may have, as a multiple of the original's."""
    error_budget: float | None = None
    """Largest difference of any output on several inputs, relative to its scale (default 1e-4 in float32)."""
    cpu_clock: bool = False
    """Count the time that the thread computes, for a machine that runs other things too; needs --threads 1."""
    seed: int = 0
    """Seed of everything that is random."""
    overwrite: bool = False
    """Replace the output file if there is one."""
    dry_run: bool = False
    """Search and check, but write no file."""
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    begin = time.monotonic()
    arguments: OptimizeArguments = parse(OptimizeArguments, argv, "rewritegym optimize")
    return run_command(lambda: optimize(arguments, stderr_console(), begin))


def optimize(arguments: OptimizeArguments, console: Console, begin: float) -> int:
    """Search, check and write; `begin` is when the time limit began, by `time.monotonic`."""
    limit = parse_seconds(arguments.time_limit)
    output = _output(arguments)
    agent = make_agent(AUTO if arguments.agent == "auto" else arguments.agent)
    problem = _open(arguments)
    conclusion = min(CONCLUSION_S, CONCLUSION_SHARE * limit)
    seconds = max(1.0, limit - conclusion - (time.monotonic() - begin))
    ends = begin + limit - WRITING_S
    budget = Budget(measurements=10**9, seconds=seconds, conclusion_s=conclusion, deadline=ends)
    with ending_search(console) as watch, search_display(console, agent.name, counts=False) as update:
        console.print(_headline(arguments, problem), soft_wrap=True, markup=False)

        def progress(search: Search) -> None:
            watch(search)
            update(search)

        result = agent.optimize(problem, budget, seed=arguments.seed, progress=progress)
        written = None if arguments.dry_run else _write(result, output)
    entry = result_entry(result, problem, written)
    entry["seconds"] = round(time.monotonic() - begin, 1)
    print_warnings(console, entry)
    if arguments.json:
        print_json(_summary(entry, problem))
    else:
        _print(Console(), arguments, entry)
    return 0 if result.verified else 1


def parse_seconds(text: str) -> float:
    """Return the seconds that a text such as 90, 120s, 1.5m or 2h stands for.

    Raises:
        UserError: another text, or no time at all.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _UNITS or not float(found[1]):
        raise UserError(
            f"--time-limit {text!r} is no time: give seconds, minutes or hours, such as 90, 120s, 10m or 1h"
        )
    return float(found[1]) * _UNITS[found[2]]


def _output(arguments: OptimizeArguments) -> Path:
    """The file to write, checked before any time is spent."""
    given = arguments.input
    output = arguments.output or given.with_name(f"{given.stem}.optimized.onnx")
    if output.resolve() == given.resolve():
        raise UserError(f"{output} is the input: name another output file")
    if not output.parent.is_dir():
        raise UserError(f"{output}: there is no folder {output.parent}; make it first")
    if output.exists() and not (arguments.overwrite or arguments.dry_run):
        raise UserError(f"{output} exists: name another output file, or replace it with --overwrite")
    return output


def _open(arguments: OptimizeArguments) -> Problem:
    threads = available_cores() if arguments.threads is None else arguments.threads
    if threads > available_cores():
        raise UserError(f"--threads {threads}: this process may use {available_cores()} cores")
    if arguments.cpu_clock and threads != 1:
        raise UserError("--cpu-clock counts one thread: add --threads 1")
    return open_problem(
        f"file:{arguments.input}", provider=arguments.provider, threads=threads, rules=arguments.rules,
        deployment_choices=not arguments.fixed_deployment, shapes=parse_shapes(arguments.shape) or None, cached=False,
        limits=ResultLimits(arguments.max_size_growth, arguments.error_budget, arguments.standard_ops_only),
        clock="cpu" if arguments.cpu_clock else "wall",
    )  # fmt: skip


def _headline(arguments: OptimizeArguments, problem: Problem) -> str:
    deployment = problem.deployment
    return f"{arguments.input} on {deployment.provider} with {deployment.threads} thread(s): {problem.model.report}"


def _write(result: OptimizationResult, output: Path) -> Path | None:
    """Write the checked file; an original that is kept is copied byte by byte."""
    return result.checked.write_to(output) if result.verified else None


def _summary(entry: dict[str, Any], problem: Problem) -> dict[str, Any]:
    """Return the object that `--json` prints."""
    same = (
        "speedup", "speedup_ci95", "latency_ms", "verified", "max_rel_error", "deployment", "seconds", "measurements",
        "onnx_path", "message", "memory", "rule_faults", "failed_measurements", "first_error", "savings",
    )  # fmt: skip
    rewrites = [
        {"rule": r["rule"], "where": r["description"], "sites": r["sites"], "saved_ms": r["saved_ms"]}
        for r in entry["rewrites"]
    ]
    return {
        "model": problem.model.uri,
        "baseline_ms": baseline_ms(entry),
        "rewrites": rewrites,
        **{k: entry[k] for k in same},
    }


def _print(console: Console, arguments: OptimizeArguments, entry: dict[str, Any]) -> None:
    console.print(results_table(str(arguments.input), [entry]))
    console.print(deployment_table([entry]))
    console.print(rewrites_table(entry) if entry["rewrites"] else entry["message"])
    if entry["onnx_path"] is None:
        console.print("no file was written")
        return
    console.print(f"written: {entry['onnx_path']}", soft_wrap=True, markup=False)
    console.print(f'open it with rewritegym.session("{entry["onnx_path"]}")', soft_wrap=True, markup=False)
