"""A report as one HTML file."""

from __future__ import annotations

from pathlib import Path

from agents.reporting.html import sections
from agents.reporting.html.markup import Html, tag
from agents.reporting.html.report import OptimizationReport
from agents.reporting.html.style import STYLE
from agents.reporting.html.substitutions import substitutions
from graph_rewrite.system.atomic_files import replace_file

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Nothing is loaded and nothing runs, whatever a model's names contain."""


def html_report(report: OptimizationReport) -> str:
    """Return a report as an HTML document. It needs no network and no script."""
    what = "kept as it is" if report.is_original else f"{report.speedup:.2f} times as fast"
    head = tag(
        "head", tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"), tag("meta", name="generator", content="RewriteGym"),
        tag("title", f"{report.model}: {what}"), tag("style", Html(STYLE)),
    )  # fmt: skip
    body = tag(
        "body", tag("main", sections.headline(report), sections.comparison(report), substitutions(report),
        sections.operators(report), sections.validation(report), sections.search(report), sections.deployment(report),
        sections.machine(report)), tag("footer", tag("p", "Made by RewriteGym.")),
    )  # fmt: skip
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def write_report(report: OptimizationReport, path: Path) -> Path:
    """Write a report as a whole: readers find the old file or the new one.

    Raises:
        OSError: the folder is missing or cannot be written.
    """
    replace_file(path, html_report(report))
    return path
