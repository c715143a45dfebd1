"""Session settings for the graph that a search has found."""

from __future__ import annotations

from agents.core.base import Search, Visit, action_of
from agents.searching.known_starts import Start
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import ComparingMeter, Latency, unblocked_time
from graph_rewrite.operators.denormals import computes_denormals
from graph_rewrite.rewriting.session_choices import session_candidates

MARGIN = 0.005
"""A setting is kept where it surely gains more than this."""
SHARE = 0.1
"""Part of the seconds left in the budget for these choices."""
FLUSHING = "set set_denormal_as_zero=true"
"""The session choice that computes with zero in the place of denormal numbers."""
_WARY = {"set allow_spinning=false": 0.05}
"""Larger margins. While they are timed, threads stop spinning when a run ends; deployed ones go on, and begin the next
run sooner. Where it pays to forbid it, because cores are shared or rationed, it pays more than that."""


def search_session(search: Search, share: float = SHARE, margin: float = MARGIN) -> Visit | None:
    """Change the session settings of the best measured graph one by one, and keep what surely gains.

    Every setting is tried once, on top of those kept before it. One that seems to gain is timed in turn with the graph
    without it, and kept where the lower bound of that gain is above `margin`. Only graphs that were kept are recorded
    in `search`: one that was merely lucky shall not be among the finalists. Where the problem has no deployment choices
    (`--fixed-deployment`), or a meter that cannot compare two graphs, nothing happens.

    Args:
        search: the search that has found its graph.
        share: part of the seconds left in the budget that this may take.
        margin: relative gain; more where the way of timing flatters a choice.

    Returns:
        The best visit reached; None where nothing was measured before.
    """
    problem, best = search.problem, search.best
    # Where another runtime has no settings to choose from, there may still be numbers of threads.
    offers = problem.rewriter.deployment or not problem.deployment.facts.is_onnxruntime
    if best is None or not offers or not isinstance(problem.meter, ComparingMeter):
        return best
    last, tried = search.after(share), set[str]()
    while best.latency.ok and not search.exhausted and search.seconds < last:
        offered = session_candidates(best.graph, problem.deployment, problem.thread_choices, strict=problem.strict)
        candidate = next((c for c in offered if c.label not in tried), None)
        if candidate is None or len(tried) + search.measurements >= search.budget.measurements:
            break
        tried.add(candidate.label)
        graph = search.apply(candidate)
        if graph is None or graph.hash in search.visits:
            continue
        screened = _screened(search, graph)
        least = max(margin, _WARY.get(candidate.label, 0.0))
        seems = screened.lower_bound > best.latency.lower_bound * (1.0 + least)
        if seems and _surely_gains(search, best.graph, graph, least):
            actions = (*best.actions, action_of(candidate))
            best = Visit(graph, search.measure(graph, actions), actions)
        search.tell()
    return best


def start_under_settings(search: Search) -> Start:
    """Return the problem's own graph, with the session settings that a look at it says will pay: where it computes with
    denormal numbers, it is run without them. Where no settings may be chosen, or results must keep denormal numbers,
    it stays as it is."""
    problem = search.problem
    own = problem.model.graph
    if problem.rewriter.deployment and isinstance(problem.meter, ComparingMeter) and computes_denormals(own):
        offered = session_candidates(own, problem.deployment, strict=problem.strict)
        candidate = next((one for one in offered if one.label == FLUSHING), None)
        graph = None if candidate is None else search.apply(candidate)
        if candidate is not None and graph is not None:
            return Start(graph, (action_of(candidate),))
    return Start(own, ())


def _screened(search: Search, graph: Graph) -> Latency:
    """Return the screened latency of a graph, paid for and not recorded."""
    begin = unblocked_time()
    latency = search.problem.measure(graph, "screen")
    search.charge(graph.hash, search.problem.cost(graph), unblocked_time() - begin)
    return latency


def _surely_gains(search: Search, before: Graph, after: Graph, margin: float) -> bool:
    begin = unblocked_time()
    compared = search.problem.compare(before, after)
    if compared is None:
        return False
    search.charge((before.hash, after.hash), compared[1], unblocked_time() - begin)
    return compared[0].ok and compared[0].lower_bound > 1.0 + margin
