"""``rewritegym doctor``: what this machine is, and how far its timings can be trusted."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import rich
import tyro
from rich.table import Table

from rewritegym import __version__


@dataclass(frozen=True)
class Arguments:
    """Print provider, CPU flags, versions, peak GFLOP/s and the measured noise of this machine."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Measures (some seconds) and prints a table, or JSON; returns 0."""
    arguments = tyro.cli(Arguments, args=argv, prog="rewritegym doctor")
    from graph_rewrite.latency.noise import machine_report  # after --help, which needs no ONNX Runtime

    report = {"rewritegym": __version__, **machine_report()}
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        rich.print(table(report))
    return 0


def table(report: Mapping[str, Any]) -> Table:
    """The report as a table of two columns; nested entries stand under dotted names."""
    result = Table(show_header=False, title="This machine")
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    for name, text in _rows(report):
        result.add_row(name, text)
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
            return "unknown"
    return str(value)
