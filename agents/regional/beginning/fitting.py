"""Known graphs, fitted to the machine at hand: of their changes those are kept that pay here."""

from __future__ import annotations

from agents.core.base import Search
from agents.regional.chains import Timer, time_cut
from agents.searching.known_starts import Start
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency.windows import ChangedNodes, NotSeparable, changes_by_kind
from graph_rewrite.latency.windows.trial import synthetic_pair

FITTING_SHARE = 0.15
"""Share of the search's seconds that are left in which the changes of a known graph are timed."""


def fitted(search: Search, timer: Timer, start: Start) -> Start | None:
    """Time the changes of a known graph window by window, and return it without those that save less than the weights
    which they add must; None where it stays as it is.

    What a change gains depends on the machine, and what its weights must gain on the user. The changes that add most
    weights are timed first; those for which no time is left stay.

    Args:
        search: it has visited the problem's own graph.
    """
    if start.without is None or not search.can_apply:
        return None
    problem, last, losing = search.problem, search.after(FITTING_SHARE), set[int]()
    own = problem.model.graph
    # Under the same deployment: it acts on all windows.
    plain = start.without(frozenset(own.nodes))
    try:
        changes = changes_by_kind(own if plain is None else plain.graph, start.graph)
    except NotSeparable:
        return None
    weights, latency_s = weight_bytes(problem.model.original), search.visits[own.hash].latency.ms / 1e3
    for change in sorted(changes, key=lambda change: -_growth(change)):
        if search.seconds >= last:
            break
        window = change.window
        timed = time_cut(search, timer, synthetic_pair(window.before, window.after, window.count))
        price = problem.limits.price_of(weights, _growth(change)) * latency_s
        if timed is not None and timed.seconds <= price:
            losing |= change.nodes
    return start.without(frozenset(losing)) if losing else None


def _growth(change: ChangedNodes) -> int:
    """Return the bytes of weights that a change adds in all its windows."""
    window = change.window
    return window.count * (weight_bytes(window.after) - weight_bytes(window.before))
