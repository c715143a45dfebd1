"""Savings that are known site by site, and what they leave to look for there."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.base import Search
from agents.regional.gains import Effects, KnownSavings
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Rewriter, Rule
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, ExactTimer
from tests.agents.regional.test_drafting import Told
from tests.agents.toys import chain_problem

Sites = list[tuple[int, frozenset[int]]]


def at(*sites: set[int]) -> Sites:
    return [(min(nodes), frozenset(nodes)) for nodes in sites]


LAYERS = at({1, 2}, {3, 4}, {5, 6})


@pytest.fixture
def known() -> KnownSavings:
    """Return savings of 6 seconds at three sites."""
    savings = KnownSavings()
    savings.add("layers", LAYERS, 6.0)
    return savings


def test_a_site_has_its_part_of_what_its_class_saves(known: KnownSavings) -> None:
    assert known.at({2}) == 2.0
    assert known.at({1, 2, 5, 9}) == 4.0
    assert known.at({9}) == 0.0
    known.clear()
    assert known.at({1, 2, 3}) == 0.0


def test_a_better_chain_takes_single_sites(known: KnownSavings) -> None:
    known.add("first", at({2}), 3.0)
    assert known.at({1}) == 0.0  # the other chain is not applied there beside it
    assert known.at({1, 2, 3, 4, 5, 6}) == 7.0
    known.add("layers", LAYERS, 6.6)
    assert known.at({2}) == 3.0
    known.add("layers", LAYERS, 12.0)
    assert known.at({1, 2, 3, 4, 5, 6}) == 12.0


def test_sites_that_save_more_together_take_the_place_of_a_wide_one(known: KnownSavings) -> None:
    known.add("part", at({1, 2, 3, 4, 5, 6, 7}), 9.0)
    assert known.at({1}) == known.at({7}) == 9.0
    known.add("single", at({1}, {3}, {5}), 8.0)
    assert known.at({1}) == 9.0
    known.add("single", at({1}, {3}, {5}), 12.0)
    assert (known.at({1}), known.at({1, 3, 5}), known.at({7})) == (4.0, 12.0, 0.0)


def test_sites_that_overlap_share_what_they_save() -> None:
    savings = KnownSavings()
    savings.add("chained", at({1, 2}, {2, 3}, {3, 4}), 6.0)
    assert (savings.at({1}), savings.at({3}), savings.at({1, 2, 3, 4})) == (3.0, 3.0, 6.0)


def test_a_loss_is_not_known() -> None:
    savings = KnownSavings()
    savings.add("slow", LAYERS, -1.0)
    assert savings.at({1, 3, 5}) == 0.0


@given(
    st.lists(
        st.tuples(
            st.lists(st.sets(st.integers(0, 9), min_size=1, max_size=3), min_size=1, max_size=3),
            st.floats(-0.5, 4.0),
        ),
        max_size=5,
    )
)
def test_what_is_known_can_be_had_and_is_no_less_than_what_one_chain_saves(
    chains: list[tuple[list[set[int]], float]],
) -> None:
    savings = KnownSavings()
    offered: list[tuple[frozenset[int], float]] = []
    for number, (sites, seconds) in enumerate(chains):
        savings.add(str(number), at(*sites), seconds)
        apart: list[frozenset[int]] = []
        for nodes in map(frozenset, sites):
            if not any(nodes & other for other in apart):
                apart.append(nodes)
        offered += [(nodes, seconds / len(apart)) for nodes in apart]
    most = max(
        sum(seconds for _, seconds in some)
        for count in range(len(offered) + 1)
        for some in combinations(offered, count)
        if not any(one & other for (one, _), (other, _) in combinations(some, 2))
    ) if len(offered) <= 10 else np.inf  # fmt: skip
    everything = savings.at(range(10))
    assert everything <= most + 1e-9
    assert everything >= max((seconds for _, seconds in chains), default=0.0) - 1e-9


class ReluAsClip(Rule):
    """Tanh(Relu(x)) = Tanh(Clip(x, 0))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(op.Clip(x, op.constant(np.zeros((), np.float32))))


class NoRelu(Rule):
    """Tanh(Relu(x)) = Tanh(x), which nobody proves here"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Relu(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(x)


def test_one_site_is_tried_though_another_rule_saves_more_at_all_sites_together(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 8)
    problem.rewriter = Rewriter((ReluAsClip(), NoRelu()), deployment=False)
    graph, timer = problem.model.graph, ExactTimer()
    of_rule = {
        site_class.sites[0].rule.name: site_class
        for site_class in site_classes(problem.rewriter, graph, margin=1)
        if len(site_class.sites) > 1
    }
    everywhere, usual = of_rule["ReluAsClip"], of_rule["NoRelu"]
    (same,) = (site for site in usual.sites if site.anchor == everywhere.sites[0].anchor)
    told = Told({("ReluAsClip",): 0.5, ("NoRelu",): 0.8})
    options = RegionalOptions(depth=1, margin=1)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.057, options, None, told)
    chains = screen.run([everywhere, replace(usual, sites=(same,))], lambda: False)
    found = [(str(chain), len(chain.sites)) for chain in chains]
    assert found == [("ReluAsClip", len(everywhere.sites)), ("NoRelu", 1)]
