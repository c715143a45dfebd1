"""``rewritegym apply``: the rewrites of an earlier result on retrained weights or a new export of the model, without a
search."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.conclusion.conclude import saved_and_checked
from agents.conclusion.recordings import actions_of, recording_for, recording_or_none, write_recording
from agents.optimization.comparison_options import ComparisonOptions
from agents.optimization.options import shape_texts
from agents.optimization.output import check_output, default_output
from agents.optimization.remembering import suited
from agents.reporting.progress import print_json
from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.errors import UserError
from graph_rewrite.latency import ProviderChoice
from graph_rewrite.mutate.mutant_rules import read_mutant_rules
from graph_rewrite.onnx_files.model_file import check_openable
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.replay import Recording, Replay, read_recording, replay
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.runtime import MOST_THREADS, Deployment
from graph_rewrite.runtime.custom_ops import library_paths
from graph_rewrite.symbolic.bindings import DimensionBindings, bind
from graph_rewrite.symbolic.generalise import generalise
from graph_rewrite.symbolic.inputs import symbolic_inputs
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import check_threads, physical_cores
from graph_rewrite.task.problem import Problem, open_problem

EXIT_NOT_WRITTEN = 1


@dataclass(frozen=True, slots=True)
class ApplyArguments:
    """Apply the recorded rewrites of an earlier result to another file of the same architecture: retrained weights, or
    a new export. Nothing is searched or measured; the outputs are compared with the model's before it is written.

    Exit status: 0 when a checked model was written, 1 when a rewrite does not fit or the outputs differ and nothing
    was written, 2 for a mistake in the arguments or the files.
    """

    actions: tyro.conf.Positional[Path]
    """The recorded actions: <result>.actions.json, or the JSON of a result or a report."""
    input: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="MODEL")]
    """The ONNX file."""
    output: tyro.conf.Positional[Path | None] = None
    """The file to write; by default <input>.optimized.onnx beside the input."""
    partial: bool = False
    """Leave out rewrites that do not fit, and name them."""
    shape: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """The shape at which the rewrites of a model with symbolic dimensions are found, as name:1,128; by default the
    recorded one. May be repeated."""
    static: bool = False
    """Write a model of that shape; otherwise symbolic dimensions stay."""
    threads: int | None = None
    """Threads per inference as deployed; by default as recorded."""
    provider: ProviderChoice | None = None
    """Execution provider of ONNX Runtime, or openvino; by default as recorded."""
    custom_ops: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """A library with operators of custom domains that the model uses; may be repeated."""
    comparison: tyro.conf.OmitArgPrefixes[ComparisonOptions] = field(default_factory=ComparisonOptions)
    overwrite: bool = False
    """Replace the output file if there is one."""
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    began = time.monotonic()
    arguments: ApplyArguments = parse(ApplyArguments, argv, "rewritegym apply")
    return run_command(lambda: apply(arguments, stderr_console(), began))


def apply(arguments: ApplyArguments, console: Console, began: float) -> int:
    """Replay, compare and write; return the exit code."""
    recording = read_recording(arguments.actions)
    if not recording.steps:
        raise UserError(f"{arguments.actions} records no rewrites: its search kept the original")
    path = arguments.input
    check_openable(path)
    output = check_output(path, arguments.output or default_output(path), overwrite=arguments.overwrite)
    libraries = library_paths(arguments.custom_ops)
    bindings = bind(path, arguments.shape or _recorded_shapes(recording, path), Deployment(custom_ops=libraries))
    problem = _problem(arguments, recording, bindings)
    if arguments.threads is not None:
        recording = suited(recording, problem)
    found = replay(
        recording, problem.model.graph, problem.rewriter, partial=arguments.partial, strict=arguments.comparison.strict
    )
    for difference in found.differences:
        console.print(str(difference), soft_wrap=True, markup=False)
    checked, message = _checked(arguments, found, problem, bindings)
    written = None
    if checked is not None and checked.outcome.ok:
        written = checked.write_to(output)
        write_recording(_applied(recording, found, problem), output)
    entry = {**_entry(arguments, recording, found, checked, written), "message": message}
    entry["seconds"] = round(time.monotonic() - began, 2)
    if arguments.json:
        print_json(entry)
    else:
        _print(Console(), arguments, entry)
    return 0 if written is not None else EXIT_NOT_WRITTEN


def _recorded_shapes(recording: Recording, path: Path) -> list[str]:
    """Return the recorded shapes as texts of `--shape`: of the inputs of that name that leave their shape open, or,
    where names differ, of as many open inputs in their order. None where the open inputs are others."""
    known = symbolic_inputs(load_once(path))
    names = [*known.symbolic, *sorted(known.open)]
    if set(recording.shapes) <= set(names):
        return list(shape_texts(recording.shapes))
    alike = len(names) == len(recording.shapes)
    return list(shape_texts(dict(zip(names, recording.shapes.values(), strict=True)))) if alike else []


def _applied(recording: Recording, found: Replay, problem: Problem) -> Recording | None:
    """Return the recording of what was applied, for the model and the shapes at hand; None where it cannot be made."""
    if found.complete:
        return recording_for(problem, recording)
    made = recording_or_none(problem, actions_of(found.applied), found.graph, recording.rules)
    return None if made is None else replace(made, environment=recording.environment)


def _problem(arguments: ApplyArguments, recording: Recording, bindings: DimensionBindings) -> Problem:
    """Open the model for the deployment that is asked for, or else the recorded one."""
    provider = arguments.provider or recording.deployment.get("provider", "auto")
    threads = recording.deployment.get("threads", physical_cores())
    if arguments.threads is not None:
        threads = check_threads(arguments.threads)
    # More than the cores of this machine are right: the result may be for another, and nothing is timed here.
    elif not (type(threads) is int and 1 <= threads <= MOST_THREADS):
        raise UserError(f"{arguments.actions}: the recorded number of threads is {threads!r}: say --threads")
    if provider not in get_args(ProviderChoice):
        raise UserError(f"{arguments.actions}: the recorded provider is {provider!r}: say --provider")
    if recording.granularity not in get_args(Granularity):
        raise UserError(f"{arguments.actions}: there is no granularity {recording.granularity!r}")
    return open_problem(
        f"file:{arguments.input}", provider=provider, threads=threads, rules=recording.rules,
        granularity=cast(Granularity, recording.granularity), shapes=bindings.shapes or None, cached=False,
        limits=arguments.comparison.limits_with(), input_data=arguments.comparison.input_data,
        custom_ops=arguments.custom_ops, mutants=read_mutant_rules(recording.mutants),
    )  # fmt: skip


def _checked(
    arguments: ApplyArguments, found: Replay, problem: Problem, bindings: DimensionBindings
) -> tuple[CheckedModel | None, str]:
    """Return the replayed model with the outcome of comparing it, and a message; None where there is nothing to
    compare."""
    if not found.applied:
        return None, "nothing is written, since no rewrite fits"
    if not (found.complete or arguments.partial):
        return None, "nothing is written, since a rewrite does not fit; --partial leaves it out"
    if arguments.static or bindings.inputs.is_static:
        checked = saved_and_checked(problem, found.graph)
        return checked, checked.outcome.message
    made = generalise(problem, actions_of(found.applied), bindings)
    if made.checked is None:
        why = made.message or "they hold for one shape alone"
        return None, f"nothing is written: {why}; --static writes a model of one shape"
    fewer = [f"{one.rule} at {one.where}: {one.reason}" for one in made.left_out]
    return made.checked, "; ".join([*filter(None, [made.checked.outcome.message]), *fewer])


def _entry(
    arguments: ApplyArguments, recording: Recording, found: Replay, checked: CheckedModel | None, written: Path | None
) -> dict[str, Any]:
    """Return what `--json` prints."""
    left_out = [str(difference) for difference in found.differences if difference.left_out]
    return {
        "model": str(arguments.input),
        "actions": str(arguments.actions),
        "onnx_path": None if written is None else str(written),
        "verified": checked is not None and checked.outcome.ok,
        "max_rel_error": None if checked is None else checked.outcome.max_rel_error,
        "same_architecture": found.same_architecture or not recording.fingerprint,
        "steps": len(recording.steps),
        "applied": found.steps,
        "rewrites": [{"rule": s.rule, "where": s.description, "sites": s.count} for s in found.applied],
        "left_out": left_out,
        "deployment": None if checked is None else checked.deployment.to_json(),
        "custom_ops": [] if checked is None else list(checked.deployment.custom_ops),
    }


def _print(console: Console, arguments: ApplyArguments, entry: dict[str, Any]) -> None:
    def say(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    if not entry["same_architecture"]:
        say(f"{arguments.input} has another structure than the model that the rewrites were recorded for")
    say(f"{entry['applied']} of {entry['steps']} recorded rewrites applied")
    if entry["onnx_path"] is None:
        say(f"no file was written: {entry['message']}")
        return
    say(entry["message"] or f"outputs agree, largest difference {entry['max_rel_error']:.1e} of their scale")
    say(f"written: {entry['onnx_path']} in {entry['seconds']:.1f} s")
    flags = "".join(f" --custom-ops {library}" for library in entry["custom_ops"])
    say(f"measure what it gains on this machine: rewritegym check {entry['onnx_path']}{flags}")
