"""Windows in which rewrites are tried: both sides as they are timed, and what their time says of the whole window."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.difference import Difference
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.synthetic_weights import with_synthetic_weights
from graph_rewrite.latency.windows.thinning import thin
from graph_rewrite.latency.windows.window import WindowPair, shape_key


def trial_pair(window: Graph, after: Graph, sites: int) -> WindowPair:
    """Return a window before and after a chain of rewrites as it is timed: thinner at its borders, with synthetic
    weights.

    Args:
        sites: number of alike sites in the whole graph.
    """
    return synthetic_pair(*thin(window, after), sites)


def synthetic_pair(before: Graph, after: Graph, sites: int) -> WindowPair:
    """Return both sides of a window with synthetic weights.

    Args:
        sites: number of alike sites in the whole graph.
    """
    before, after = map(with_synthetic_weights, (before, after))
    return WindowPair(before, after, sites, f"{shape_key(before)}:{shape_key(after)}")


def timed_part(window: Graph, thinned: Graph) -> float:
    """Return the estimated share of a window's time that is timed once it is thinned."""
    return estimated_seconds(thinned) / estimated_seconds(window)


def saved_share(timed: Difference, part: float) -> tuple[float, float, float]:
    """Return the share of the whole window's time that a chain saves, half of its 95% interval, and the seconds that
    the whole window takes.

    Args:
        timed: the timing of a `trial_pair`.
        part: its `timed_part`.
    """
    seconds = timed.window_seconds / part
    scale = timed.sites * seconds
    return timed.seconds / scale, timed.half / scale, seconds
