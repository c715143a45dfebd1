"""``rewritegym inspect``: what a model holds, where its time goes, and which rules match."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from graph_rewrite.errors import UserError
from graph_rewrite.inspection.display import show
from graph_rewrite.inspection.inspect import inspect_model
from graph_rewrite.latency.provider import CpuProvider, resolve_provider
from graph_rewrite.runtime import Deployment
from graph_rewrite.runtime.custom_ops import library_paths, missing_operators
from graph_rewrite.symbolic.bindings import bind
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import check_threads, physical_cores
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.system.durations import parse_seconds
from graph_rewrite.task.models import parse_shapes
from graph_rewrite.task.workspace import workspace


@dataclass(frozen=True)
class InspectArguments:
    """Tell what an ONNX model holds, where its time goes on this machine, and which rules match it.

    Nothing is written. Exit status: 0, or 2 for a mistake in the arguments or the model, and where the time limit is
    over before the model is read.
    """

    model: tyro.conf.Positional[Path]
    """The ONNX file."""
    shape: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """The shape of an input with symbolic dimensions, as name:1,128; may be repeated. By default usual ones that the
    model accepts."""
    threads: int | None = None
    """Threads per inference of the profile; by default one per physical core that this process may use."""
    provider: CpuProvider = "cpu"
    """The runtime of the profile: ONNX Runtime on the CPU, or openvino."""
    custom_ops: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """A library with operators of custom domains that the model uses; may be repeated."""
    profile: bool = True
    """Run the model for some seconds, on the CPU, to see where its time goes."""
    time_limit: str = "60s"
    """Time for everything, such as 90, 120s or 10m. What is not told by then is said to be missing."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


def main(argv: Sequence[str] | None = None, began: float | None = None) -> int:
    """Inspect a model; return the exit status. `began` is when the time limit began, by `time.monotonic`; now by
    default."""
    began = time.monotonic() if began is None else began
    arguments = parse(InspectArguments, argv, "rewritegym inspect", pairs=True)
    return run_command(lambda: _inspect(arguments, began))


def _inspect(arguments: InspectArguments, began: float) -> int:
    threads = physical_cores() if arguments.threads is None else check_threads(arguments.threads)
    deployment = Deployment("cpu", threads, custom_ops=library_paths(arguments.custom_ops))
    provider = resolve_provider(arguments.provider)
    missing_operators(deployment.custom_ops, ())
    workspace()  # what is written on the way lies there, and goes with it
    try:
        with ending_at(began + parse_seconds(arguments.time_limit)):
            shapes = _shapes(arguments, deployment)
            found = inspect_model(
                arguments.model, shapes, provider=provider, threads=threads, profile=arguments.profile,
                custom_ops=deployment.custom_ops,
            )  # fmt: skip
    except OutOfTime:
        raise UserError(
            f"{arguments.model}: --time-limit {arguments.time_limit} is over before the model is read: give more time"
        ) from None
    if arguments.json:
        print(json.dumps(found.to_json(), indent=2))
    else:
        show(Console(), found)
    return 0


def _shapes(arguments: InspectArguments, deployment: Deployment) -> Mapping[str, tuple[int, ...]]:
    """Return the shapes given, completed by usual ones where the model may be run to try them."""
    given = parse_shapes(arguments.shape)
    if not arguments.profile:
        return given
    try:
        return bind(arguments.model, arguments.shape, deployment).shapes
    except UserError:
        if given:
            raise
        return {}  # what can be told without shapes is told
