"""Chains that are chosen together, and the graph that they make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.core.base import Search
from agents.regional.assembly import assemble, choose, within_limits
from agents.regional.chains import RewriteChain
from agents.regional.retiming import retime
from agents.regional.sites import RewriteStep
from graph_rewrite import Graph
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import sites_by_class
from tests.agents.regional.exact_timer import BUDGET, OPTIONS, ExactTimer, chain
from tests.agents.toys import chain_problem


def test_forms_that_overlap_are_taken_by_what_they_save() -> None:
    chains = [chain(1.0, {1, 2}), chain(3.0, {2, 3}), chain(2.0, {4}), chain(2.5, {3, 4})]
    assert [f.saved for f in choose(chains)] == [3.0, 2.0]


def test_many_small_forms_may_beat_a_large_one() -> None:
    large, small = chain(3.0, {1, 2, 3, 4}), [chain(1.5, {1}), chain(1.0, {2}), chain(1.0, {3})]
    assert choose([large, *small]) == small
    assert choose([large, *small[:2]]) == [large]
    # Those it is no rival of are timed again beside it.
    kept = retime(Search.__new__(Search), ExactTimer(), [large, *small], lambda: True, OPTIONS)
    assert sorted(f.saved for f in kept) == [1.0, 1.0, 1.5, 3.0]


def test_forms_without_a_site_are_left_out(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    assembly = assemble(Search(problem, BUDGET), problem.model.graph, (), [chain(1.0, {1})], OPTIONS)
    assert assembly.graph is problem.model.graph
    assert assembly.chains == assembly.actions == ()


def test_growth_beyond_the_limit_is_left_out(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Never(ResultLimits):
        def violation(self, original: Graph, graph: Graph) -> str:
            return "" if graph.hash == original.hash else "too large"

    problem: Problem = chain_problem(tmp_path, 2, "class")
    problem.limits = Never()
    search = Search(problem, BUDGET)
    site = next(iter(sites_by_class(problem.rewriter, problem.model.graph).values()))[0]
    step = RewriteStep(site.class_key, site.rule.name, "")
    empty: Any = None
    growing = RewriteChain(
        (step,), frozenset({site.anchor}), frozenset({1}), 1.0, 0.0, 100, 0.0, WindowPair(empty, empty, 1, "")
    )
    assert within_limits(search, problem.model.graph, (), [growing], OPTIONS).chains == ()
