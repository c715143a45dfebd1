"""Large replacements in observations: a bounded summary that keeps totals, limits that count all inserted nodes."""

from __future__ import annotations

import numpy as np
import pytest

from envs.graph_rewrite.footprint import KINDS, SUMMARISED, site_footprint
from envs.graph_rewrite.meta_graph import choose, observe
from envs.observation import ObservationLimits
from graph_rewrite import Candidate, Graph, Rewriter
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.candidates import Candidates
from graph_rewrite.rules import find_rule

WINOGRAD = {"WinogradRows2": False, "Winograd4x4": True}
"""Rules, and whether their replacement is shown by a summary."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    w = np.random.default_rng(0).standard_normal((16, 16, 3, 3))
    return model("(float[1,16,9,9] x) => (y) { y = Conv<pads=[1,1,1,1]>(x, w) }", w=w)


def candidates(graph: Graph, name: str) -> list[Candidate]:
    return list(Rewriter([find_rule(name)], deployment=False).candidates(graph))


@pytest.mark.parametrize("name", WINOGRAD)
def test_only_large_replacements_are_summarised(graph: Graph, name: str) -> None:
    site = candidates(graph, name)[0].site
    mark = site_footprint(site)
    assert mark.inserted == len(site.replacement.nodes)
    assert (mark.inserted > SUMMARISED) == WINOGRAD[name]
    if WINOGRAD[name]:
        assert len(mark.entries("rows")) - 1 <= KINDS
        assert len(set(mark.entries("rows")[:, 0].tolist())) == len(mark.entries("rows")), "a kind has one row"
    else:
        assert len(mark.entries("rows")) - 1 == mark.inserted


@pytest.mark.parametrize("name", WINOGRAD)
def test_edges_of_a_summary_join_its_rows(graph: Graph, name: str) -> None:
    mark = site_footprint(candidates(graph, name)[0].site)
    inner, boundary = mark.entries("inner"), mark.entries("boundary")
    assert mark.counts.tolist() == [len(mark.entries("rows")), len(inner), len(boundary), len(mark.entries("removed"))]
    assert (inner[:, :2] >= 0).all()
    assert (inner[:, :2] < len(mark.entries("rows"))).all()
    assert (boundary[:, 1] > 0).all()
    # Every row leads to the head: the candidate's embedding is made from all of them.
    assert set(range(1, len(mark.entries("rows")))) <= set(inner[inner[:, 1] == 0, 0].tolist())
    assert boundary[:, 0].tolist() == [graph.inputs[0]] * len(boundary)


def test_totals_are_those_of_the_whole_replacement(graph: Graph) -> None:
    """The number of inserted nodes, arithmetic and the graph's digest do not depend on what is shown."""
    candidate = candidates(graph, "Winograd4x4")[0]
    mark, after = site_footprint(candidate.site), candidate.apply()
    assert mark.grown == mark.inserted - len(candidate.site.removed)
    assert len(graph.nodes) + mark.grown == len(after.nodes)
    limits = ObservationLimits(max_candidates=4, max_nodes=2048, max_edges=4096)
    choices = choose(graph, Candidates(graph, [candidate]), limits)
    features = observe(choices, np.ones(5, bool), [0.0] * 8, limits)["candidate_features"]
    assert features[0, 6] == pytest.approx(mark.inserted / 16)


def test_a_graph_that_would_outgrow_the_limits_is_cut_although_its_summary_fits(graph: Graph) -> None:
    candidate = candidates(graph, "Winograd4x4")[0]
    shown, inserted = len(site_footprint(candidate.site).entries("rows")), site_footprint(candidate.site).inserted
    assert shown < 100 < inserted
    assert choose(graph, Candidates(graph, [candidate]), ObservationLimits(4, 100, 4096)).cut == 1
    assert choose(graph, Candidates(graph, [candidate]), ObservationLimits(4, inserted + 1, 4096)).cut == 0
