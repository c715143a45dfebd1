"""``rewritegym report``: the HTML report of a result whose JSON was kept."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from agents.optimization.output import check_regular
from agents.reporting.html import OptimizationReport, write_report
from graph_rewrite.errors import UserError
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True, slots=True)
class ReportArguments:
    """Write the report of an earlier result from its JSON. It has no drawings and no table of operators, which need the
    models: `rewritegym optimize --report` has all of it.

    Exit status: 0 when the report was written, 2 for a mistake in the arguments or the file.
    """

    result: tyro.conf.Positional[Path]
    """What `rewritegym optimize --json` printed."""
    report: tyro.conf.Positional[Path]
    """The HTML file to write."""
    overwrite: bool = False
    """Replace the file if there is one."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: ReportArguments = parse(ReportArguments, argv, "rewritegym report")
    return run_command(lambda: report(arguments))


def report(arguments: ReportArguments) -> int:
    """Read the JSON and write the report; return the exit code."""
    target = arguments.report
    if target.is_dir() or not target.parent.is_dir():
        raise UserError(f"{target}: name a file in a folder that exists")
    check_regular(target, str(target))
    if target.exists() and not arguments.overwrite:
        raise UserError(f"{target} exists: name another file, or replace it with --overwrite")
    write_report(OptimizationReport.from_json(_read(arguments.result)), target)
    print(f"report: {target}")
    return 0


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: this is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise UserError(f"{path}: this JSON is no result of an optimisation but a {type(found).__name__}")
    return found
