"""Windows: the subgraphs around changes, timed alone, where a whole model is too noisy to show what a rewrite saves."""

from graph_rewrite.latency.windows.difference import Difference
from graph_rewrite.latency.windows.extraction import NotSeparable
from graph_rewrite.latency.windows.traffic import traffic_of
from graph_rewrite.latency.windows.window import (
    ChangedNodes,
    WindowPair,
    changed_windows,
    changes_by_kind,
    window_around,
)
from graph_rewrite.latency.windows.window_meter import NotTimed, WindowMeter

__all__ = [
    "ChangedNodes",
    "Difference",
    "NotSeparable",
    "NotTimed",
    "WindowMeter",
    "WindowPair",
    "changed_windows",
    "changes_by_kind",
    "traffic_of",
    "window_around",
]
