"""The judgement of chains that were put together: within the limits, measured end to end, and without those that do
not pay there."""

from __future__ import annotations

from collections.abc import Sequence

from agents.conclusion.conclude import check_outputs
from agents.core.base import Search, Visit
from agents.regional.assembly import AssembledGraph, assemble, within_limits
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.options import RegionalOptions
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import WindowPair

REFINING_COST = 2.0
"""Times what measuring a graph took that comparing it with another one takes, with care, before one was timed."""


def visit_of(search: Search, assembly: AssembledGraph) -> Visit:
    """Measure an assembled graph."""
    return Visit(assembly.graph, search.measure(assembly.graph, assembly.actions), assembly.actions)


def fastest_of(search: Search) -> float:
    """Return the largest speed-up of a graph that was measured; 1 where there is none."""
    return max((visit.latency.speedup for visit in search.visits.values() if visit.latency.ok), default=1.0)


def judging_seconds(search: Search) -> float:
    """Return the seconds that measuring another graph takes, by those that were measured. The original, which is
    compared with nothing, counts twice."""
    problem = search.problem
    original = problem.model.graph.hash
    costs = [(2.0 if key == original else 1.0) * problem.cost(one.graph) for key, one in search.visits.items()]
    return max(costs, default=0.0)


def within_bounds(
    search: Search, start: Visit, chosen: Sequence[RewriteChain], options: RegionalOptions
) -> AssembledGraph:
    """Return the assembly of chains, without those that the limits on size and errors leave no room for."""
    assembly = within_limits(search, start.graph, start.actions, chosen, options)
    return _accurate(search, start, assembly, options)


def judge(search: Search, start: Visit, chosen: Sequence[RewriteChain], options: RegionalOptions) -> AssembledGraph:
    """Measure the assembly of chains end to end, and without those that may save nothing. Return the faster."""
    assembly = within_bounds(search, start, chosen, options)
    whole = visit_of(search, assembly)
    certain = [chain for chain in assembly.chains if chain.is_certain]
    if whole.latency.ok and len(certain) < len(assembly.chains) and search.can_measure:
        other = assemble(search, start.graph, start.actions, certain, options)
        if search.beats(visit_of(search, other), whole):
            assembly = other
    return assembly


def refine(
    search: Search, timer: Timer, start: Visit, assembly: AssembledGraph, options: RegionalOptions, kept_s: float = 0.0
) -> None:
    """Take chains out one by one, those with the smallest lower bound first, and leave out those without which the
    model is faster. No comparison begins that is likely to take longer than the time that there is for them.

    Args:
        kept_s: seconds that what follows needs.
    """
    deadline = min(search.after(options.refinement_share), search.allowed - kept_s)
    expected, changed = REFINING_COST * search.problem.cost(assembly.graph), False
    for chain in sorted(assembly.chains, key=lambda chain: chain.lower_bound):
        if search.seconds + expected >= deadline or len(assembly.chains) < 2:
            break
        others = [other for other in assembly.chains if other is not chain]
        without = assemble(search, start.graph, start.actions, others, options)
        if without.graph.hash == assembly.graph.hash:
            continue
        began = search.seconds
        timed = time_cut(search, timer, _whole(assembly.graph, without.graph))
        expected = search.seconds - began
        if timed is not None and timed.ci95[0] > 0.0:
            assembly, changed = without, True
    if changed and search.can_measure:
        search.measure(assembly.graph, assembly.actions)


def _accurate(search: Search, start: Visit, assembly: AssembledGraph, options: RegionalOptions) -> AssembledGraph:
    """Leave out the chains that round most, until the outputs stay within the error budget. Where rounding errors of
    single layers add up to little, the check at the end of the search is enough."""
    problem = search.problem
    tolerance = problem.limits.tolerance(problem.model.original, problem.deployment)
    accepted = tolerance * options.error_share
    while sum(chain.error for chain in assembly.chains) > accepted and not search.exhausted:
        if check_outputs(search, Visit(assembly.graph, start.latency, assembly.actions)).ok:
            break
        worst = max(chain.error for chain in assembly.chains)
        kept = [chain for chain in assembly.chains if chain.error < worst]
        assembly = assemble(search, start.graph, start.actions, kept, options)
    return assembly


def _whole(before: Graph, after: Graph) -> WindowPair:
    return WindowPair(before, after, 1, f"{before.hash}:{after.hash}")
