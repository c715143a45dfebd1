"""optimize.py, rewritegym optimize: an ONNX file in, a faster and checked ONNX file out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.commands.signals import SearchWatch, ending_search
from agents.core.base import Search
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.output import check_output, default_output, saved
from agents.optimization.remembering import NAME as MEMORY
from agents.optimization.reports import check_report, reserved_seconds, try_report
from agents.optimization.run import optimize_model
from agents.reporting.progress import (
    deployment_table,
    dynamic_lines,
    improvement_log,
    print_json,
    print_warnings,
    results_table,
    rewrites_table,
    search_display,
    summary_line,
    threads_table,
)
from agents.reporting.runtimes import runtime_lines, runtimes_table
from graph_rewrite.delivery.bundles.code import bundle_code
from graph_rewrite.delivery.bundles.manifest import read_bundle
from graph_rewrite.delivery.deployment_code import deployment_code
from graph_rewrite.onnx_files.model_file import check_openable
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.system.huge_pages import TUNABLE, TUNABLES, are_asked_for
from graph_rewrite.system.signals import answer_signals, interrupting_on_term
from graph_rewrite.task.problem import Problem


@dataclass(frozen=True, slots=True)
class OptimizeArguments:
    """Make an ONNX model faster. The result computes the same and is never slower; if nothing is surely faster, it is
    a copy of the original.

    Exit status: 0 when a checked model was written (or --dry-run ended), also after Ctrl-C or SIGTERM; 1 when no model
    agrees with the original; 2 for a mistake in the arguments or the model, and where the time limit is over before the
    model is open; 130 when interrupted before the model is open, or while the result is written. With 2 and 130 no
    model is written.
    """

    input: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
    """The ONNX file."""
    output: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[OUTPUT]")] = None
    """The file to write; by default <input>.optimized.onnx beside the input. With --specialise a folder, by default
    <input>.optimized."""
    search: tyro.conf.OmitArgPrefixes[OptimizeOptions] = field(default_factory=OptimizeOptions)
    overwrite: bool = False
    """Replace the output file if there is one."""
    report: Path | None = None
    """Write an HTML report to this file: what was gained by which rewrites, with drawings, and how to deploy it."""
    dry_run: bool = False
    """Search and check, but write no model."""
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""
    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """Tell every new best as the search finds it, with its last rewrite."""


_AS_IT_IS: dict[str, Any] = {"soft_wrap": True, "markup": False}


def main(argv: Sequence[str] | None = None, began: float | None = None) -> int:
    """Entry point; returns the exit code. `began` is when the time limit began, by `time.monotonic`; now by default."""
    began = time.monotonic() if began is None else began
    arguments: OptimizeArguments = parse(OptimizeArguments, argv, "rewritegym optimize")
    with interrupting_on_term():
        return run_command(lambda: _begin(arguments, began))


def _begin(arguments: OptimizeArguments, began: float) -> int:
    answer_signals()
    return optimize(arguments, stderr_console(), began)


def optimize(arguments: OptimizeArguments, console: Console, began: float) -> int:
    """Search, check and write; `began` is when the time limit began, by `time.monotonic`."""
    path, options = arguments.input, arguments.search
    bundle = options.specialise
    check_openable(path)
    output = arguments.output or default_output(path, bundle=bundle)
    output = check_output(path, output, overwrite=arguments.overwrite, bundle=bundle, dry=arguments.dry_run)
    if arguments.report is not None:
        check_report(arguments.report, path, output, overwrite=arguments.overwrite)
    with ending_search(console, began + options.seconds) as watch:
        outcome, written = _search(arguments, output, console, began, watch)
        entry = outcome.entry(written)
        if arguments.report is not None:
            entry["report"] = None if watch.hurried else try_report(outcome, entry, arguments.report, console)
        print_warnings(console, entry)
        if arguments.json:
            print_json({**outcome.summary(written, entry), "report": entry.get("report")})
        else:
            _print(Console(), path, entry)
    return 0 if outcome.verified else 1


def _search(
    arguments: OptimizeArguments, output: Path, console: Console, began: float, watch: SearchWatch
) -> tuple[Optimization, Path | None]:
    """Search, check and write; return the outcome and the file that was written."""
    path, options = arguments.input, arguments.search
    with search_display(console, options.agent_spec, counts=False) as update:
        tell = improvement_log(console)

        def opened(problem: Problem) -> None:
            console.print(_headline(path, problem), soft_wrap=True, markup=False)

        def progress(search: Search) -> None:
            watch(search)
            update(search)
            if arguments.verbose:
                tell(search)

        reserved = reserved_seconds(options.seconds, arguments.report)
        outcome = optimize_model(path, options, began=began, reserved=reserved, opened=opened, progress=progress)
        return outcome, None if arguments.dry_run else saved(outcome, output)


def _headline(path: Path, problem: Problem) -> str:
    deployment = problem.deployment
    return f"{path} on {deployment.provider} with {threads_in_words(deployment.threads)}: {problem.model.report}"


def _print(console: Console, path: Path, entry: dict[str, Any]) -> None:
    console.print(summary_line(str(path), entry), **_AS_IT_IS)
    console.print(results_table("", [entry]))
    if entry["threads"]:
        console.print(threads_table(entry["threads"]))
    if entry["runtimes"]:
        console.print(runtimes_table(entry["runtimes"]))
    for line in runtime_lines(entry["runtimes"]):
        console.print(line, **_AS_IT_IS)
    console.print(deployment_table([entry]))
    if entry["rewrites"]:
        console.print(rewrites_table(entry))
    if entry["rewrites"] and entry["agent"] == MEMORY:
        console.print(entry["message"], **_AS_IT_IS)
    for line in dynamic_lines(entry["dynamic"]):
        console.print(line, **_AS_IT_IS)
    if entry.get("report"):
        console.print(f"report: {entry['report']}", **_AS_IT_IS)
    else:
        console.print("--report report.html writes all this as a page with drawings", **_AS_IT_IS)
    if entry["onnx_path"] is None:
        console.print("no file was written")
    else:
        _tell_file(console, entry)


def _tell_file(console: Console, entry: dict[str, Any]) -> None:
    """Print the file, or the folder of a bundle, and the code that opens it, which comes last, to be copied."""
    folder = entry["dynamic"].get("bundle")
    written, custom_ops = folder or entry["onnx_path"], tuple(entry["custom_ops"])
    console.print(f"written: {written}", **_AS_IT_IS)
    libraries = f", custom_ops={list(custom_ops)}" if custom_ops else ""
    call = f'rewritegym.session("{written}"{libraries})'
    pages = f" in a process with {TUNABLES}={TUNABLE}, as it was measured" if are_asked_for() else ""
    console.print(f"open it with {call}, or without RewriteGym{pages}:\n", **_AS_IT_IS)
    if folder:
        code = bundle_code(read_bundle(folder), custom_ops)["python"]
    else:
        deployment = replace(Deployment.from_json(entry["deployment"]), custom_ops=custom_ops)
        code = deployment_code(deployment, written)["python"]
    console.print(code, highlight=False, end="", **_AS_IT_IS)
