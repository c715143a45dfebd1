"""The mask: every legal action leads to a graph that is new in the episode, and only those are legal."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import GraphRewriteEnv
from envs.graph_rewrite.footprint import footprint, site_footprint
from envs.graph_rewrite.visited import VisitedGraphs, fingerprint
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import problem_of, write_parallel
from tests.strategies import models

LIMITS = {"max_candidates": 128, "max_nodes": 1024, "max_edges": 2048}


def assert_mask_is_exact(env: GraphRewriteEnv, visited: set[str]) -> None:
    """Compare with applying every candidate and hashing the result."""
    mask = env.action_masks()
    results = [candidate.apply().hash for candidate in env.candidates]
    assert mask[: len(results)].tolist() == [result not in visited for result in results]
    assert not mask[len(results) : -1].any()
    assert mask[-1]


def walk_and_check(env: GraphRewriteEnv, seed: int, steps: int) -> None:
    """Random legal steps, short ways back preferred, with the mask checked at each."""
    rng = np.random.default_rng(seed)
    env.reset()
    visited = {env.graph.hash}
    for _ in range(steps):
        assert_mask_is_exact(env, visited)
        legal = np.flatnonzero(env.action_masks()[:-1])
        if not len(legal):
            return
        small = [k for k in legal if len(env.candidates[k].sites) <= 1]
        choice = rng.choice(small if small and rng.random() < 0.7 else legal)
        _, _, terminated, truncated, info = env.step(int(choice))
        assert info["graph_hash"] not in visited
        visited.add(info["graph_hash"])
        if terminated or truncated:
            return


@pytest.mark.parametrize("seed", range(3))
def test_exact_on_the_tower(make_env: MakeEnv, seed: int) -> None:
    walk_and_check(make_env(horizon=20, feedback_every=100), seed, 12)


@pytest.mark.parametrize("granularity", ["site", "class"])
def test_exact_at_every_granularity(make_env: MakeEnv, granularity: str) -> None:
    walk_and_check(make_env(horizon=20, granularity=granularity), 0, 8)


@settings(max_examples=12)
@given(model=models(), seed=st.integers(0, 2**16))
def test_exact_on_random_models(model: onnx.ModelProto, seed: int) -> None:
    walk_and_check(GraphRewriteEnv(problem=problem_of(model), horizon=10, **LIMITS), seed, 4)


@settings(max_examples=12)
@given(model=models(), seed=st.integers(0, 2**16))
def test_footprints_predict_fingerprints(model: onnx.ModelProto, seed: int) -> None:
    problem, rng = problem_of(model), np.random.default_rng(seed)
    graph = problem.model.graph
    for _ in range(3):
        candidates = problem.rewriter.candidates(graph)
        for candidate in candidates:
            if candidate.kind == "site":
                change = fingerprint(candidate.apply()) - fingerprint(graph)
                assert footprint(candidate).digest == change % 2**64
            assert all(site_footprint(site).digest == footprint(candidate).digest for site in candidate.sites)
        if not candidates:
            return
        graph = candidates[rng.integers(len(candidates))].apply()


@settings(max_examples=12)
@given(model=models())
def test_every_way_to_a_visited_graph_is_found(model: onnx.ModelProto) -> None:
    """Whichever candidate's result was visited: classes of which only some sites apply, several roots, and all."""
    assert_every_way_is_found(model)


def test_ways_that_remove_more_than_they_match_are_found() -> None:
    """A Gather takes the place of all moves above it, which are others at one of three sites."""
    source = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        moves (float[4,6,16] x) => (float[6,4,16] u, float[6,4,16] v, float[6,4,16] w)
        <int64[6] i = {5,4,3,2,1,0}, int64[6] j = {1,0,3,2,5,4}, int64[6] k = {0,2,4,1,3,5}> {
            n = Neg(x)
            a = Transpose<perm = [1,0,2]>(n)  b = Gather(a, i)  u = Relu(b)
            o = Abs(x)  c = Transpose<perm = [1,0,2]>(o)  d = Gather(c, j)  v = Relu(d)
            e, f = Split<axis = 0, num_outputs = 2>(x)  g = Concat<axis = 0>(f, e)
            h = Transpose<perm = [1,0,2]>(g)  l = Gather(h, k)  w = Relu(l)
        }"""
    )
    problem = problem_of(source)
    together = [c for c in problem.rewriter.candidates(problem.model.graph) if c.rule == "MovesAsGather"]
    assert [(c.kind, c.count) for c in together] == [("class", 2), ("site", 1), ("site", 1), ("site", 1)]
    assert_every_way_is_found(source)


def assert_every_way_is_found(model: onnx.ModelProto) -> None:
    problem = problem_of(model)
    graph = problem.model.graph
    candidates = problem.rewriter.candidates(graph)
    footprints = [footprint(candidate) for candidate in candidates]
    results = [candidate.apply() for candidate in candidates]
    for result in results:
        visited = VisitedGraphs()
        visited.add(result)
        found = visited.lead_back(graph, candidates, footprints)
        assert found.tolist() == [other.hash == result.hash for other in results]


def test_overlapping_sites_of_a_class(tmp_path: Path) -> None:
    """Three products of one operand: merging all pairs merges the first, which leads where merging that pair leads."""
    problem = problem_of(onnx.load(write_parallel(tmp_path / "parallel.onnx")))
    candidates = problem.rewriter.candidates(problem.model.graph)
    merge = [c for c in candidates if c.rule == "MergeTwoMatMuls"]
    whole, first = next(c for c in merge if c.kind == "class"), next(c for c in merge if c.kind == "site")
    assert whole.count == 3
    assert whole.apply().hash == first.apply().hash
    visited = VisitedGraphs()
    visited.add(first.apply())
    assert visited.lead_back(problem.model.graph, Candidates(problem.model.graph, [whole]), [footprint(whole)]).all()


def test_filters_spare_most_applications(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(horizon=20, feedback_every=100)
    confirmed: list[Candidate] = []
    confirm = VisitedGraphs._leads_back

    def count(self: VisitedGraphs, candidate: Candidate, near: Graph) -> bool:
        confirmed.append(candidate)
        return confirm(self, candidate, near)

    monkeypatch.setattr(VisitedGraphs, "_leads_back", count)
    env.reset()
    seen = 0
    for _ in range(10):
        env.step(int(np.flatnonzero(env.action_masks())[0]))
        seen += len(env.candidates)
    assert len(confirmed) < seen / 10


def test_candidates_that_cannot_be_applied_are_illegal(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env()
    env.reset()
    start = env.graph.hash

    apply, applied = Candidate.apply, []

    def only_the_step(candidate: Candidate) -> Graph:
        applied.append(candidate)
        if len(applied) > 1:
            raise InvalidRewriteError("the graph has a cycle")
        return apply(candidate)

    gemm = next(k for k, c in enumerate(env.candidates) if c.rule == "MatMulToGemm" and c.kind == "site")
    with monkeypatch.context() as patch:
        patch.setattr(Candidate, "apply", only_the_step)
        env.step(gemm)
    assert len(applied) > 1
    back = [k for k, c in enumerate(env.candidates) if c.apply().hash == start]
    assert back
    assert not env.action_masks()[back].any()
