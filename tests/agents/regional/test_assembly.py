"""Chains that are chosen together, of which some leave single sites to others, and the graph that they make."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.base import Search
from agents.regional.assembly import assemble, best_of, choose, with_parts, within_limits
from agents.regional.chains import RewriteChain
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.retiming import retime
from agents.regional.screen import Screen
from agents.regional.sites import RewriteStep
from graph_rewrite import Graph, Rewriter
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes, sites_by_class
from tests.agents.regional.exact_timer import BUDGET, OPTIONS, ExactTimer, chain, packed_layers
from tests.agents.regional.test_drafting import Told
from tests.agents.regional.test_joint_rewrites import ReluAsThresholdedInOtherLayout, ReluInOtherLayout, relus
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


def test_what_follows_may_differ_from_site_to_site(tmp_path: Path) -> None:
    problem = packed_layers(tmp_path)
    graph, search = problem.model.graph, Search(problem, BUDGET)
    screen = Screen(search, ExactTimer(), Effects(), graph, 0.01, OPTIONS)
    found = [one for one in site_classes(problem.rewriter, graph) if "Heads" in one.sites[0].rule.name]
    assert [len(one.sites) for one in found] == [2]
    chains = screen.run(found, lambda: False)
    assembly = assemble(search, graph, (), [max(chains, key=lambda chain: len(chain.steps))], OPTIONS)
    assert sorted(node.op for node in assembly.graph.nodes.values()) == ["Attention"] * 2 + ["MatMul"] * 6
    taken = [action.rule for action in assembly.actions]
    assert {"FuseUnscaledAttention", "FuseUnscaledMaskedAttention"} <= {*taken}


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


def over(saved: float, *sites: set[int], half: float = 0.0) -> RewriteChain:
    """Return a chain that saves so much at sites which remove these nodes."""
    made = chain(saved, set().union(*sites), half)
    found = tuple((min(site), frozenset(site)) for site in sites)
    return replace(made, sites=found, anchors=frozenset(anchor for anchor, _ in found), growth=12)


LAYERS = over(0.6, {1, 2}, {3, 4}, {5, 6})


def test_a_part_of_a_chain_saves_its_part() -> None:
    part = LAYERS.without(frozenset({2}))
    assert part is not None
    assert (part.saved, part.growth) == (pytest.approx(0.4), 8)
    assert (part.nodes, part.anchors) == ({3, 4, 5, 6}, {3, 5})
    assert LAYERS.without(frozenset({1, 3, 6})) is None
    assert LAYERS.without(frozenset({7})) == LAYERS
    assert chain(0.6, {1, 2}).without(frozenset()) is None  # its sites are not known


def test_one_that_saves_more_in_one_layer_takes_it_from_another() -> None:
    better, worse = over(0.3, {2}), over(0.1, {4})
    found = with_parts(choose([LAYERS, better, worse]), [LAYERS, better, worse])
    assert [one.nodes for one in found] == [{2}, {3, 4, 5, 6}]
    assert sum(one.saved for one in found) == pytest.approx(0.7)


def test_one_that_would_take_all_sites_is_left_to_the_choice() -> None:
    whole = over(0.5, {1, 3, 5})
    assert with_parts([LAYERS], [whole]) == [LAYERS]


chains = st.builds(
    lambda sites, saved, half: over(saved, *sites, half=half),
    st.lists(st.sets(st.integers(0, 12), min_size=1, max_size=3), min_size=1, max_size=4),
    st.floats(0.01, 1.0),
    st.floats(0.0, 0.1),
)


@given(st.lists(chains, max_size=6))
def test_parts_never_overlap_and_never_save_less(offered: list[RewriteChain]) -> None:
    chosen = choose(offered)
    found = with_parts(chosen, offered)
    nodes = [node for one in found for node in one.nodes]
    assert len(nodes) == len(set(nodes))
    assert sum(one.lower_bound for one in found) >= sum(one.lower_bound for one in chosen) - 1e-9
    assert all(any(one.nodes <= whole.nodes for whole in offered) for one in found)


def test_both_are_applied(tmp_path: Path) -> None:
    """Write one of four Relus otherwise than the rest."""
    problem = relus(tmp_path)
    rules = ReluInOtherLayout(), ReluAsThresholdedInOtherLayout()
    problem.rewriter = Rewriter(rules, granularity="site", deployment=False)
    search, graph = Search(problem, BUDGET), problem.model.graph
    classes = list(site_classes(problem.rewriter, graph, margin=1))
    options = RegionalOptions(margin=1)

    def drafted(rule: type) -> RewriteChain:
        told = Told({(rule.__name__,): 0.2})
        screen = Screen(search, ExactTimer(), Effects(), graph, 0.021, options, None, told)
        (found,) = best_of(screen.forecast(classes, lambda: False))
        return found

    most, other = drafted(ReluInOtherLayout), drafted(ReluAsThresholdedInOtherLayout)
    first, *rest = (nodes for _, nodes in other.sites)
    one = other.without(frozenset().union(*rest))
    assert one is not None
    found = with_parts([most], [replace(one, saved=1.0)])
    made = assemble(search, graph, (), found, options)
    ops = [node.op for node in made.graph.order()]
    assert (ops.count("ThresholdedRelu"), ops.count("LeakyRelu"), ops.count("Relu")) == (1, 3, 0)
    assert not first & made.graph.nodes.keys()
