"""The assembly of chains into one graph: chosen without overlaps, and applied to the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agents.core.base import Action, Search
from agents.regional.chains import RewriteChain
from agents.regional.joint_rewrites import continue_with
from agents.regional.options import RegionalOptions
from agents.regional.sites import apply_step
from graph_rewrite.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class AssembledGraph:
    """A graph to which chains were applied, one after another, and the actions that did it."""

    graph: Graph
    actions: tuple[Action, ...]
    chains: tuple[RewriteChain, ...]


def best_of(chains: Sequence[RewriteChain]) -> list[RewriteChain]:
    """Return chains that save most together and do not overlap; some at a part of their sites only."""
    return with_parts(choose(chains), chains)


def choose(chains: Iterable[RewriteChain]) -> list[RewriteChain]:
    """Return chains that do not overlap, by the lower bound of what they save: the best first, then what is left to
    gain beside it. A chain that keeps out others which save more together, such as one over a large part of the model,
    is left out."""
    offered = sorted(chains, key=lambda chain: -chain.lower_bound)
    chosen = _greedy(offered)
    improved = True
    while improved:
        improved = False
        for chain in chosen:
            others = [other for other in offered if other is not chain]
            without = _greedy(others)
            if sum(f.lower_bound for f in without) > sum(f.lower_bound for f in chosen):
                offered, chosen, improved = others, without, True
                break
    return chosen


def with_parts(chosen: Sequence[RewriteChain], offered: Iterable[RewriteChain]) -> list[RewriteChain]:
    """Return chosen chains that do not overlap, but for those that leave some of their sites to others: what a chain
    saves in one layer may be more than what one over all layers saves there. Those that gave up sites come last, since
    they are applied to what the others leave."""
    whole, trimmed = list(chosen), list[RewriteChain]()
    for chain in sorted(offered, key=lambda chain: -chain.lower_bound):
        rivals = [other for other in (*whole, *trimmed) if other.nodes & chain.nodes]
        parts = [part for other in rivals if (part := other.without(chain.nodes)) is not None]
        if len(parts) < len(rivals) or chain in rivals:
            continue
        if chain.lower_bound + sum(part.lower_bound for part in parts) > sum(rival.lower_bound for rival in rivals):
            whole = [*(other for other in whole if other not in rivals), chain]
            trimmed = [*(other for other in trimmed if other not in rivals), *parts]
    return [*whole, *trimmed]


def _greedy(chains: Sequence[RewriteChain]) -> list[RewriteChain]:
    """Return, of chains in order of preference, those that overlap with none before."""
    chosen: list[RewriteChain] = []
    applied: set[int] = set()
    for chain in chains:
        if not chain.nodes & applied:
            chosen.append(chain)
            applied |= chain.nodes
    return chosen


def assemble(
    search: Search,
    graph: Graph,
    actions: tuple[Action, ...],
    chains: Sequence[RewriteChain],
    options: RegionalOptions,
) -> AssembledGraph:
    """Apply every chain to the whole graph, at all its sites; a chain whose first step has no site is left out."""
    done: list[RewriteChain] = []
    for chain in chains:
        near, since = chain.anchors, graph.next_id
        for number, step in enumerate(chain.steps):
            applied = apply_step(search, graph, step, near, options.most_sites)
            if applied is None:
                break
            graph, actions = applied[0], (*actions, *_with_savings(applied[1], chain.saved_by(number)))
            # Later steps belong to what the earlier ones brought in.
            near = applied[2] if number == 0 else near | applied[2]
            if number == 0:
                done.append(chain)
        # At some sites other rules follow than at the one whose window was timed.
        following = {rule for step in chain.steps for rule in step.follows}
        if following:
            graph, actions = continue_with(search, graph, actions, following, since, options.most_sites)
    return AssembledGraph(graph, actions, tuple(done))


def _with_savings(actions: Sequence[Action], seconds: float | None) -> list[Action]:
    """Return the actions of a step with what it saves, divided by their sites."""
    if seconds is None:
        return list(actions)
    sites = sum(action.count for action in actions)
    return [replace(action, window_s=seconds * action.count / sites) for action in actions]


def within_limits(
    search: Search,
    graph: Graph,
    actions: tuple[Action, ...],
    chains: Sequence[RewriteChain],
    options: RegionalOptions,
) -> AssembledGraph:
    """Assemble chains; leave out those that save least for the weights they add, as far as the limit on size asks."""
    kept = list(chains)
    while True:
        assembly = assemble(search, graph, actions, kept, options)
        problem = search.problem
        growing = [chain for chain in kept if chain.growth > 0]
        if not growing or not problem.limits.violation(problem.model.original, assembly.graph):
            return assembly
        kept.remove(min(growing, key=lambda chain: chain.lower_bound / chain.growth))
