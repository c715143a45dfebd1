"""The HTML report of an optimisation."""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.optimization.outcome import Optimization
from agents.optimization.output import check_regular, check_writable
from agents.reporting.html import write_report
from agents.reporting.html.evidence import report_of
from graph_rewrite.errors import UserError

REPORT_S = 6.0
"""Seconds of the time limit that are left for a report, most of them for loading both models once."""
REPORT_SHARE = 0.1
"""The most that this may be of the time limit."""


def reserved_seconds(limit: float, report: Path | None) -> float:
    """Return the seconds of a time limit to leave for a report."""
    return 0.0 if report is None else min(REPORT_S, REPORT_SHARE * limit)


def check_report(report: Path, model: Path, output: Path | None, *, overwrite: bool) -> None:
    """Check that a report may be written, before any time is spent.

    Raises:
        UserError: the model or the output itself, a folder that does not exist or that nothing can be written to, or a
            file that must not be replaced.
    """
    if report.resolve() in [path.resolve() for path in (model, output) if path is not None]:
        raise UserError(f"--report {report} is the model: name another file for the report")
    if not report.parent.is_dir():
        raise UserError(f"--report {report}: there is no folder {report.parent}; make it first")
    if report.is_dir():
        raise UserError(f"--report {report} is a folder: name a file in it, such as {report / 'report.html'}")
    check_regular(report, f"--report {report}")
    if report.exists() and not overwrite:
        raise UserError(f"--report {report} exists: name another file, or replace it with --overwrite")
    check_writable(report.parent, f"--report {report}")


def write_report_of(outcome: Optimization, entry: Mapping[str, Any], report: Path) -> Path:
    """Write the report of an outcome.

    Args:
        entry: everything that is known of the result (`Optimization.entry`).

    Raises:
        OSError: the file cannot be written.
    """
    left = outcome.began + outcome.options.seconds - time.monotonic()
    found = report_of(outcome.result, outcome.problem, entry, timeout_s=max(0.0, left / 2))
    return write_report(found, report)


def try_report(outcome: Optimization, entry: Mapping[str, Any], report: Path, console: Console) -> str | None:
    """Write the report of an outcome whose model is written already. Return its path; None where it failed, which is
    said on the console and changes nothing about the model."""
    try:
        return str(write_report_of(outcome, entry, report))
    except OSError as error:
        console.print(f"the report is not written: {error}", style="yellow", soft_wrap=True, markup=False)
    except Exception:  # a bug here must be seen, but not take the end of the command with it
        text = traceback.format_exc()
        console.print(f"the report is not written, by a bug:\n{text}", style="yellow", soft_wrap=True, markup=False)
    return None
