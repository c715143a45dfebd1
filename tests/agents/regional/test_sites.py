"""Windows around sites, and steps in whole graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.core.base import Search
from agents.regional.sites import RewriteStep, apply_all, apply_step, removed_by_site
from graph_rewrite import Rewriter
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules import find_rule
from graph_rewrite.rules.matmul.embedding import LinearOfEmbedding
from graph_rewrite.task.site_windows import site_classes, sites_by_class
from tests.agents.regional.exact_timer import BUDGET, OPTIONS
from tests.agents.toys import RULES, chain_problem


def test_a_window_holds_all_that_dies_with_a_rewrite(tmp_path: Path) -> None:
    class SkipsAhead(Rule):
        """Tanh(Relu(Tanh(Relu(x)))) read from far above: what lies between dies with it"""

        family = "toy"

        def source(self, op: Any, x: Any) -> Any:
            return op.Tanh(x, _label="top")

        def target(self, op: Any, m: Any, x: Any) -> Any:
            if x.external is None or m.value("top").external not in m.graph.outputs:
                return Refusal("not the end")
            return op.Tanh(op.Clip(m.ref(m.graph.inputs[0]), op.constant(np.zeros((), np.float32))))

    problem = chain_problem(tmp_path, 4)
    rewriter = Rewriter([SkipsAhead()], deployment=False)
    (site_class,) = site_classes(rewriter, problem.model.graph, margin=1)
    assert set(site_class.window.nodes) == set(problem.model.graph.nodes)
    after = apply_all(Search(problem, BUDGET), site_class.window, site_class.sites)
    assert after is not None
    assert [node.op for node in after.order()] == ["Clip", "Tanh"]


def test_a_window_holds_what_lies_between_what_a_rewrite_reads_and_its_match() -> None:
    """The rule asks what the normalisation is of, and reads the tokens four nodes above it."""
    text = """(int64[1,3] i, float[1,3,4] h) => (z, o) {
        a0 = Gather(t, i)  a1 = Add(a0, c)  a2 = Add(a1, c)  a3 = Add(a2, c)
        n = LayerNormalization(a3, g)  m = MatMul(n, w)  y = Add(m, b)  z = Relu(y)  o = Neg(h)
    }"""
    rng = np.random.default_rng(0)
    shapes = {"t": (5, 4), "c": (3, 4), "g": (4,), "w": (4, 2), "b": (2,)}
    graph = model(text, **{name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()})
    rewriter = Rewriter([LinearOfEmbedding()], "site", deployment=False)
    (site_class,) = site_classes(rewriter, graph, margin=1)
    assert sorted(node.op for node in site_class.window.nodes.values()) == sorted(
        ["Gather", "Add", "Add", "Add", "LayerNormalization", "MatMul", "Add", "Relu"]
    )
    assert len(rewriter.candidates(site_class.window)) == 1


def test_sites_that_take_each_other_away_do_not_add_up() -> None:
    """Four products of one matrix make six pairs that can be merged; applying all of them merges two."""
    text = """(float[3,4] x) => (a, b, c, d) {
        a = MatMul(x, u)  b = MatMul(x, v)  c = MatMul(x, w)  d = MatMul(x, z)
    }"""
    graph = model(text, **{name: np.ones((4, 2), np.float32) for name in "uvwz"})
    rewriter = Rewriter([find_rule("MergeTwoMatMuls")], "class", deployment=False)
    (sites,) = sites_by_class(rewriter, graph).values()
    (site_class,) = site_classes(rewriter, graph, margin=1)
    assert (len(sites), len(site_class.sites)) == (6, 2)
    (candidate,) = rewriter.candidates(graph)
    assert [node.op for node in candidate.apply().nodes.values()].count("MatMul") == len(site_class.sites)


@pytest.mark.parametrize(
    ("layers", "usual", "around"),
    [(2, 0, ["Relu", "Tanh"]), (5, 1, ["Tanh", "Relu", "Tanh"]), (30, 3, ["Tanh", "Relu", "Tanh"])],
)
def test_a_window_is_that_of_most_sites(tmp_path: Path, layers: int, usual: int, around: list[str]) -> None:
    """The first of several layers has none before it, and leads where each is different. Of 30 each third is seen."""
    problem = chain_problem(tmp_path, layers)
    graph = problem.model.graph
    (site_class,) = site_classes(problem.rewriter, graph, margin=1)
    in_order = next(iter(sites_by_class(problem.rewriter, graph).values()))
    assert site_class.sites[0] is in_order[usual]
    assert {site.anchor for site in site_class.sites} == {site.anchor for site in in_order}
    assert len(site_class.sites) == layers
    assert [node.op for node in site_class.window.order()] == around


def test_a_step_ends_where_its_rule_leads_back(tmp_path: Path) -> None:
    """Its Tanh outlives each rewrite, and matches again."""

    class ThereAndBack(Rule):
        """LeakyRelu(Tanh(x)), with the one slope and then with the other"""

        family = "toy"

        def source(self, op: Any, x: Any) -> Any:
            return op.LeakyRelu(op.Tanh(x, _label="tanh"), _label="top")

        def target(self, op: Any, m: Any, x: Any) -> Any:
            return op.LeakyRelu(m.ref(m.value("tanh").external), alpha=0.75 - m.node("top").attrs["alpha"])

    graph = model("(float[2,3] x) => (t, y) { t = Tanh(x) y = LeakyRelu<alpha=0.25>(t) }")
    problem = chain_problem(tmp_path, 1)
    problem.rewriter = Rewriter([ThereAndBack()], deployment=False)
    tanh = graph.order()[0]
    taken = apply_step(Search(problem, BUDGET), graph, RewriteStep("", "ThereAndBack", ""), frozenset([tanh.id]), 500)
    assert taken is not None
    after, actions, _ = taken
    assert len(actions) == 1
    assert after.order()[1].attrs["alpha"] == 0.5


def test_a_step_reaches_every_site_of_its_class(tmp_path: Path) -> None:
    for granularity in ("site", "class", "both"):
        folder = tmp_path / granularity
        folder.mkdir()
        problem = chain_problem(folder, 3, granularity)
        site = next(iter(sites_by_class(problem.rewriter, problem.model.graph).values()))[0]
        search, near = Search(problem, BUDGET), frozenset(problem.model.graph.nodes)
        taken = apply_step(
            search, problem.model.graph, RewriteStep(site.class_key, site.rule.name, ""), near, OPTIONS.most_sites
        )
        assert taken is not None
        graph, actions, inserted = taken
        assert sum(action.count for action in actions) == 3
        assert inserted == {node.id for node in graph.nodes.values() if node.op == "ThresholdedRelu"}
        assert (
            apply_step(search, graph, RewriteStep(site.class_key, site.rule.name, ""), near, OPTIONS.most_sites) is None
        )


def test_a_step_stays_near_where_it_belongs(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    search, graph = Search(problem, BUDGET), problem.model.graph
    site = next(iter(sites_by_class(problem.rewriter, graph).values()))[1]
    # Another class key, as where a neighbour was rewritten before: the rule and the place decide.
    taken = apply_step(
        search, graph, RewriteStep("another", site.rule.name, ""), frozenset({site.anchor}), OPTIONS.most_sites
    )
    assert taken is not None
    assert [node.op for node in taken[0].order()] == ["Relu", "Tanh", "ThresholdedRelu", "Tanh", "Relu", "Tanh"]


@pytest.mark.parametrize(
    ("layers", "removed"),
    [
        ("a = Relu(x) b = Tanh(a) c = Relu(b) d = Tanh(c) e = Relu(d) z = Neg(e)", [{0, 1}, {2, 3}, {4}]),
        ("a = Relu(x) b = Tanh(a) c = Relu(b) d = Tanh(c) e = Tanh(c) z = Add(d, e)", [{0, 1}, {2}]),
        ("a = Relu(x) b = Tanh(a) c = Tanh(a) d = Add(b, c) e = Relu(d) z = Tanh(e)", [{0, 1}, {4}]),
        ("y = Tanh(x) a = Relu(y) b = Neg(a) c = Tanh(b) d = Relu(c) z = Neg(d)", [{0, 1}, {3, 4}]),
    ],
    ids=["after", "two of a kind there", "two of a kind here", "before"],
)
def test_what_a_chain_removes_beyond_its_match_is_found_at_every_site(layers: str, removed: list[set[int]]) -> None:
    """The nodes are numbered in their order; at the first site two of them are removed."""
    graph = model(f"(float[2,3] x) => (z) {{ {layers} }}")
    (site_class,) = site_classes(Rewriter([RULES[0]], "class", deployment=False), graph, margin=1)
    assert all(len(nodes) == 1 for _, nodes in removed_by_site(site_class, graph))
    found = removed_by_site(site_class, graph, frozenset(removed[0]))
    assert [anchor in nodes for anchor, nodes in found] == [True] * len(removed)
    assert [set(nodes) for _, nodes in found] == removed
