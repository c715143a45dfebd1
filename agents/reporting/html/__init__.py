"""The report of an optimisation: one HTML file that needs no network and no script."""

from agents.reporting.html.page import html_report, write_report
from agents.reporting.html.report import OptimizationReport

__all__ = ["OptimizationReport", "html_report", "write_report"]
