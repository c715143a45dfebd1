"""``rewritegym check``: a result, measured and compared with its original on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import onnx
import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.conclusion.recordings import actions_file, measured_with
from agents.optimization.comparison_options import ComparisonOptions
from agents.reporting.progress import print_json
from graph_rewrite.delivery.bundles.manifest import is_bundle, read_bundle
from graph_rewrite.delivery.deployed import recorded_deployment
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import JUDGE, Deployment, Latency
from graph_rewrite.latency.files import compare_files
from graph_rewrite.onnx_files.custom_domains import require_operators
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.normalisation.static_inputs import StaticInputs
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.replay import Recording, read_recording
from graph_rewrite.replay.strictness import step_losses
from graph_rewrite.rewriting.session_choices import LOSSY_SETTINGS
from graph_rewrite.rules import rule_set
from graph_rewrite.runtime.custom_ops import library_paths
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import available_cores, check_threads
from graph_rewrite.task.input_data import read_input_data
from graph_rewrite.task.meters import random_feeds
from graph_rewrite.task.models import Shapes, parse_shapes
from graph_rewrite.task.workspace import workspace

EXIT_DIFFERENT = 1
EXIT_NO_GAIN = 3
EXIT_SLOWER = 4
_WORST_FIRST = (EXIT_DIFFERENT, EXIT_SLOWER, EXIT_NO_GAIN, 0)


@dataclass(frozen=True, slots=True)
class CheckArguments:
    """Measure a result on this machine against its original, and compare their outputs. What was faster on one machine
    and version of ONNX Runtime may not be on another.

    Exit status: 0 when the outputs agree and the result is surely faster, 1 when the outputs differ, the result cannot
    be run or is not as strict as asked, 2 for a mistake in the arguments or the files, 3 when it is not surely faster,
    4 when it is surely slower.
    """

    optimized: tyro.conf.Positional[Path]
    """The result of `rewritegym optimize` or `rewritegym apply`; of a bundle each model is checked."""
    original: tyro.conf.Positional[Path | None] = None
    """The original; by default the file that <result>.actions.json names."""
    threads: int | None = None
    """Threads per inference; by default as recorded."""
    shape: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The shape of an input with symbolic dimensions, as name:1,128; by default the recorded one. May be repeated."""
    custom_ops: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A library with operators of custom domains that the models use; may be repeated."""
    seconds: float = 30.0
    """Most seconds for measuring."""
    comparison: tyro.conf.OmitArgPrefixes[ComparisonOptions] = field(default_factory=ComparisonOptions)
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: CheckArguments = parse(CheckArguments, argv, "rewritegym check")
    return run_command(lambda: check(arguments, stderr_console()))


def check(arguments: CheckArguments, console: Console) -> int:
    """Compare and measure; return the exit code."""
    if is_bundle(arguments.optimized):
        return _check_bundle(arguments, console)
    entry, status = _checked(arguments, console)
    if arguments.json:
        print_json(entry)
    else:
        Console().print(entry["verdict"], soft_wrap=True, markup=False)
    return status


def _check_bundle(arguments: CheckArguments, console: Console) -> int:
    """Compare and measure each model of a bundle at its own shapes; return the exit code of the worst. A model for all
    shapes that is the original itself is left out."""
    bundle = read_bundle(arguments.optimized)
    for flag, given in (("--shape", arguments.shape), ("--input-data", arguments.comparison.input_data)):
        if given:
            raise UserError(
                f"the models of {bundle.folder} have shapes of their own: leave {flag} out, or name one model"
            )
    bundle.verify()
    paths = [bundle.path(model) for model in bundle.models]
    found = list[tuple[dict[str, Any], int]]()
    for path in paths:
        recording = _recording(path)
        if recording is not None and not recording.steps:
            continue
        entry, status = _checked(replace(arguments, optimized=path), console)
        found.append((entry, status))
        if not arguments.json:
            Console().print(f"{path.name}: {entry['verdict']}", soft_wrap=True, markup=False)
    if arguments.json:
        print_json({"bundle": str(bundle.folder), "models": [entry for entry, _ in found]})
    elif not found:
        Console().print("the bundle holds the original alone", soft_wrap=True, markup=False)
    return min((status for _, status in found), key=_WORST_FIRST.index, default=EXIT_NO_GAIN)


def _checked(arguments: CheckArguments, console: Console) -> tuple[dict[str, Any], int]:
    """Return what `--json` prints of a model file, and the exit code."""
    began = time.monotonic()
    libraries = library_paths(arguments.custom_ops)
    deployment = replace(recorded_deployment(arguments.optimized), custom_ops=libraries)
    if arguments.threads is not None:
        deployment = replace(deployment, threads=check_threads(arguments.threads))
    recording = _recording(arguments.optimized)
    original = arguments.original or _named(arguments.optimized, recording)
    shapes = parse_shapes(arguments.shape) or (dict(recording.shapes) if recording is not None else {})
    graph = load(original, shapes)
    StaticInputs().run(graph)
    require_operators(graph, libraries)
    notes = _notes(graph, original, recording, deployment)
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True, markup=False)
    before, after = _runnable(original, shapes), _runnable(arguments.optimized, shapes)
    asked = arguments.comparison
    lost = _losses(arguments.optimized, recording, deployment) if asked.strict else ""
    data, limits = read_input_data(asked.input_data, graph), asked.limits_with()
    outcome = equivalent(
        before, after, deployment, tolerance=limits.tolerance(graph, deployment), rtol=limits.rtol, atol=limits.atol,
        data=data,
    )  # fmt: skip
    latency = None
    if outcome.ok and not lost:
        plan, feeds = replace(JUDGE, budget_s=max(1.0, arguments.seconds)), data or random_feeds(graph)
        latency = compare_files(before, after, deployment, workspace=workspace(), plan=plan, feeds=feeds)
    kept = recording is not None and not recording.steps
    verdict, status = (lost, EXIT_DIFFERENT) if outcome.ok and lost else judge(outcome, latency, kept)
    outcome = replace(outcome, ok=outcome.ok and not lost)
    entry = _entry(arguments, original, deployment, outcome, latency)
    entry |= {"notes": notes, "verdict": verdict, "seconds": round(time.monotonic() - began, 1)}
    return entry, status


def judge(outcome: Equivalence, latency: Latency | None, kept: bool = False) -> tuple[str, int]:
    """Return the verdict in words, and the exit status; `kept` says that the result is its original."""
    if not outcome.ok or latency is None:
        return f"the outputs differ from the original's: {outcome.message}", EXIT_DIFFERENT
    if not latency.ok:
        return f"the result cannot be measured here: {latency.message}", EXIT_DIFFERENT
    low, high = latency.ci95
    told = f"x{latency.speedup:.3f} ({low:.3f} to {high:.3f}), {latency.baseline_ms:.3f} ms before, {latency.ms:.3f} ms"
    if high < 1.0:
        return f"slower than its original on this machine: {told}; deploy the original, or optimize again", EXIT_SLOWER
    if low <= 1.0 and kept:
        return f"the result is its original, since nothing was surely faster: {told}", EXIT_NO_GAIN
    if low <= 1.0:
        return f"not surely faster than its original on this machine: {told}; optimize again here", EXIT_NO_GAIN
    return f"faster than its original, with equal outputs: {told}", 0


def _recording(optimized: Path) -> Recording | None:
    """Return the recording beside a result; None where there is none that can be read."""
    with suppress(UserError):
        return read_recording(actions_file(optimized))
    return None


def _named(optimized: Path, recording: Recording | None) -> Path:
    """Return the original that the recording names."""
    if recording is None or not recording.model:
        raise UserError(
            f"{actions_file(optimized)} does not say which file {optimized} was made from: name the original, as in "
            f"rewritegym check {optimized} original.onnx"
        )
    original = optimized.parent / recording.model
    if not original.is_file():
        raise UserError(
            f"the original {original} is not there any more: name it, as in rewritegym check {optimized} original.onnx"
        )
    return original


def _losses(optimized: Path, recording: Recording | None, deployment: Deployment) -> str:
    """Return which rewrite or setting of a result does not keep every value, in words; empty where all do.

    Raises:
        UserError: the rewrites are not recorded.
    """
    if recording is None:
        raise UserError(f"--strict reads the rewrites from {actions_file(optimized)}, and there is no such file")
    lost = [(name, words) for name, words in LOSSY_SETTINGS.items() if getattr(deployment.settings, name)]
    rules = {rule.name: rule for rule in rule_set("all")}
    lost += [(step.rule, words) for step in recording.steps if (words := step_losses(step, rules))]
    return "" if not lost else f"{lost[0][0]} does not keep every value ({lost[0][1]}), which --strict asks for"


def _runnable(path: Path, shapes: Shapes) -> Path:
    """Return a file that can be run: the model's own, or where it leaves shapes open a copy in which they are fixed."""
    inputs = onnx.load(str(path), load_external_data=False).graph.input
    dims = [dim for value in inputs for dim in value.type.tensor_type.shape.dim]
    if not shapes or all(dim.HasField("dim_value") and dim.dim_value >= 0 for dim in dims):
        return path
    return materialize(load(path, shapes), workspace())


def _notes(graph: Graph, original: Path, recording: Recording | None, deployment: Deployment) -> list[str]:
    """Return what differs from when the result was found, as far as it is recorded."""
    notes = []
    if recording is not None and recording.model_hash not in ("", graph.hash):
        notes.append(f"{original} has changed since the result was made")
    known = {} if recording is None else recording.environment
    for name, value in measured_with(deployment.provider).items():
        if known.get(name, value) != value:
            notes.append(f"found with {name} {known[name]}, here it is {value}")
    if deployment.threads > available_cores():
        notes.append(f"deployed to {deployment.threads} threads, here are {available_cores()} cores")
    return notes


def _entry(
    arguments: CheckArguments, original: Path, deployment: Deployment, outcome: Equivalence, latency: Latency | None
) -> dict[str, Any]:
    """Return what `--json` prints, without the verdict."""
    measured = latency is not None and latency.ok
    return {
        "optimized": str(arguments.optimized),
        "original": str(original),
        "verified": outcome.ok,
        "max_rel_error": outcome.max_rel_error,
        "speedup": latency.speedup if latency is not None and measured else None,
        "speedup_ci95": list(latency.ci95) if latency is not None and measured else None,
        "latency_ms": latency.ms if latency is not None and measured else None,
        "baseline_ms": latency.baseline_ms if latency is not None and measured else None,
        "deployment": deployment.to_json(),
        **measured_with(deployment.provider),
    }
