"""Reports for tests, and a reader of their structure."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

from agents.reporting.html import OptimizationReport
from agents.reporting.html.report import NearMiss, RewriteDetails
from graph_rewrite.delivery.footprint import ModelFootprint
from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, DrawnOperand

HOSTILE = "</title><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\udcff\0"
"""A name that a model may have."""
_VOID = {"meta", "br", "hr", "img"}


def entry(**changes: Any) -> dict[str, Any]:
    """The JSON of a result with three rewrites."""
    rewrites = [
        {"rule": "FuseA", "where": "FuseA at a: X -> Y", "sites": 2, "saved_ms": 1.25},
        {"rule": "EnableB", "where": "EnableB at b: X -> Y", "sites": 1, "saved_ms": -0.125},
        {"rule": "Together", "where": "Together at c: X -> Y", "sites": 1, "saved_ms": None},
    ]
    values = {
        "model": "file:/models/net.onnx", "speedup": 1.4375, "speedup_ci95": [1.4125, 1.4625], "baseline_ms": 11.5,
        "latency_ms": 8.0, "verified": True, "max_rel_error": 3.25e-07, "rewrites": rewrites, "seconds": 118.5,
        "deployment": {
            "provider": "cpu", "threads": 3, "optimization_level": "all", "disabled_optimizers": ["GeluFusion"],
        },
        "measurements": 41, "onnx_path": "/models/net.optimized.onnx", "message": "outputs agree on 5 inputs",
        "memory": {
            "before": {"weights": 4_000_000, "peak": 5_000_000}, "after": {"weights": 6_500_000, "peak": 7_000_000},
        },
        "savings": [
            {"steps": [1], "ms": 1.25, "source": "windows"}, {"steps": [2, 3], "ms": 0.75, "source": "whole model"},
        ],
        "improvements": [{"seconds": 1.5, "speedup": 1.0}, {"seconds": 30.0, "speedup": 1.45}],
        "failed_measurements": 2, "tried_measurements": 90, "first_error": "no kernel", "rule_faults": {},
        "warnings": [], "threads": [], "applications": 500,
    }  # fmt: skip
    return {**values, **changes}


def full_report(name: str = "conv1", **changes: Any) -> OptimizationReport:
    """A report with everything in it; `name` is that of a node, a value, a weight, and of much else."""
    node = DrawnNode("Conv", (DrawnOperand(name), DrawnOperand(name, constant=True)), (f"pads={name}",), label=name)
    before = Diagram((node, DrawnNode("Relu", (DrawnOperand(step=0),))), (DrawnOperand(step=1),), (name,))
    after = Diagram((DrawnNode("FusedConv", (DrawnOperand(name),)),), (DrawnOperand(step=0),), (name,))
    details = RewriteDetails("Relu(Conv(x, w)) = FusedConv(x, w)", (name, "conv2"), before, after)
    return OptimizationReport(
        entry(**changes), details=(details, details, RewriteDetails()),
        operators=({"Conv": 3, "Relu": 3}, {"com.microsoft.FusedConv": 3}), files=(4_100_000, 6_600_000),
        footprints=(ModelFootprint(0.25, 80_000_000), ModelFootprint(0.5, 90_000_000)),
        near_misses=(NearMiss("FuseC", f"the result of {name} is used elsewhere", 4, name),),
        code={"python": "import onnxruntime as ort", "cpp": "#include <onnxruntime_cxx_api.h>"},
        replay="rewritegym apply net.actions.json retrained.onnx",
        machine={"processor": "A CPU, family 1", "onnxruntime": "1.31.0"}, tolerance=1e-4,
    )  # fmt: skip


@dataclass
class Page(HTMLParser):
    """The elements and texts of a page; `balanced` tells whether every element ends where it should."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    figures: list[float] = field(default_factory=list)
    """Exact values of the numbers shown, in order."""
    texts: list[str] = field(default_factory=list)
    balanced: bool = True
    _open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "data":
            self.figures.append(float(dict(attrs)["value"] or "nan"))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.balanced = self.balanced and bool(self._open) and self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())

    def names(self) -> set[str]:
        """Names of all elements."""
        return {tag for tag, _ in self.tags}


def read(document: str) -> Page:
    page = Page()
    page.feed(document)
    page.close()
    page.balanced = page.balanced and not page._open
    return page
