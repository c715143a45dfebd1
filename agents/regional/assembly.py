"""From forms of regions to one graph: a choice without overlaps, put into effect in the whole model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from agents.core.base import Action, Search
from agents.regional.screen import Form
from agents.regional.sites import take
from graph_rewrite.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Built:
    """A graph in which forms were put into effect, one after another, and the actions that did it."""

    graph: Graph
    actions: tuple[Action, ...]
    forms: tuple[Form, ...]


def choose(forms: Iterable[Form]) -> list[Form]:
    """Forms that do not overlap, by what they surely save: the best first, then what is left to gain beside it. A form
    that keeps out others which save more together, such as one over a whole part of the model, is left out."""
    offered = sorted(forms, key=lambda form: -form.lower_bound)
    chosen = _greedy(offered)
    improved = True
    while improved:
        improved = False
        for form in chosen:
            others = [other for other in offered if other is not form]
            without = _greedy(others)
            if sum(f.lower_bound for f in without) > sum(f.lower_bound for f in chosen):
                offered, chosen, improved = others, without, True
                break
    return chosen


def _greedy(forms: Sequence[Form]) -> list[Form]:
    """Of forms in order of preference, those that overlap with none before."""
    chosen: list[Form] = []
    taken: set[int] = set()
    for form in forms:
        if not form.nodes & taken:
            chosen.append(form)
            taken |= form.nodes
    return chosen


def build(search: Search, graph: Graph, actions: tuple[Action, ...], forms: Sequence[Form]) -> Built:
    """Every form in the whole graph, at all its sites; a form whose first step has no site is left out."""
    done: list[Form] = []
    for form in forms:
        near = form.anchors
        for number, step in enumerate(form.steps):
            taken = take(search, graph, step, near)
            if taken is None:
                break
            graph, actions = taken[0], (*actions, *taken[1])
            # Later steps belong to what the earlier ones brought in.
            near = taken[2] if number == 0 else near | taken[2]
            if number == 0:
                done.append(form)
    return Built(graph, actions, tuple(done))


def within_limits(search: Search, graph: Graph, actions: tuple[Action, ...], forms: Sequence[Form]) -> Built:
    """As `build`, without the forms that save least for the weights they add, as far as the limit on size forbids."""
    kept = list(forms)
    while True:
        built = build(search, graph, actions, kept)
        problem = search.problem
        growing = [form for form in kept if form.growth > 0]
        if not growing or not problem.limits.violation(problem.model.original, built.graph):
            return built
        kept.remove(min(growing, key=lambda form: form.lower_bound / form.growth))
