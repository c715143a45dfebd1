"""``rewritegym doctor``: a report of this machine, and of the noise of its timings."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Annotated, Any

import rich
import tyro
from rich.table import Table

from graph_rewrite.errors import MachineError
from graph_rewrite.system.command_line import parse
from rewritegym import __version__

LIBRARIES = ("openvino", "torch", "torch-geometric", "gymnasium", "stable-baselines3", "sb3-contrib")
"""Shown beside the versions that the report itself names; their metadata is read, they are not imported."""

LABELS = {
    "cpu_flags": "CPU flags",
    "cpu": "CPU",
    "gpu": "GPU",
    "memory_pages": "memory pages of models",
    "peak_gflops": "peak GFLOP/s, one thread",
    "noise.model_ms": "noise: model timed, ms",
    "noise.between_runs_percent": "noise between runs, %",
    "noise.between_instances_percent": "noise between sessions, %",
    "noise.largest_percent": "noise, largest, %",
    "noise.ci95": "model against itself, 95% interval",
}
"""Names in the table of entries that would not explain themselves."""


@dataclass(frozen=True)
class Arguments:
    """Print provider, CPU flags, versions, peak GFLOP/s and the measured noise of this machine."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure (some seconds) and print a table, or JSON. Return 1 where ONNX Runtime cannot run a small model."""
    arguments = parse(Arguments, argv, "rewritegym doctor")
    from graph_rewrite.latency.noise import machine_report  # after --help, which needs no ONNX Runtime

    try:
        report = machine_report()
    except MachineError as error:
        print(f"rewritegym doctor: {error}", file=sys.stderr)
        return 1
    libraries = {name: _version(name) for name in LIBRARIES}
    report["versions"] = {"rewritegym": __version__, **report["versions"], **libraries}
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        rich.print(table(report))
    return 0


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def table(report: Mapping[str, Any]) -> Table:
    """Return the report as a table of two columns, with what is measured in words and units."""
    result = Table(show_header=False, title="This machine")
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for name, text in _rows(report):
        result.add_row(LABELS.get(name, name.removeprefix("versions.")), text)
    return result


def _rows(report: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in report.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _rows(value, f"{name}.")
        else:
            yield name, _text(value)


def _text(value: object) -> str:
    match value:
        case float():
            return f"{value:.4g}"
        case list() | tuple():
            return ", ".join(map(_text, value)) or "none"
        case None:
            return "none"
    return str(value)
