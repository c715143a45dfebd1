"""Invariants of observations: sizes, ranges, what belongs to which candidate, and what is cut."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from envs import GraphRewriteEnv
from envs.features import NODE_FEATURES, NODE_RECORDS, SHAPE_SCALE, node_records
from envs.observation import CANDIDATE_FEATURES, GLOBAL_FEATURES, Observation, feature_sizes
from envs.vocabulary import CANDIDATE, NO_OP, operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import problem_of
from tests.strategies import models


def column(observation: Observation, name: str) -> np.ndarray:
    return observation["candidate_features"][:, CANDIDATE_FEATURES.index(name)]


def entry(observation: Observation, name: str) -> float:
    return float(observation["globals"][GLOBAL_FEATURES.index(name)])


def edges_of(observation: Observation) -> np.ndarray:
    """int [edges, 2]: source and target, without padding."""
    return observation["edge_index"][:, : observation["sizes"][1]].T


def runtime_edges(graph: Graph) -> list[tuple[int, int]]:
    """(source, target) positions in topological order of the graph's own edges."""
    position = {node.id: i for i, node in enumerate(graph.order())}
    return [
        (position[graph.producer[value]], position[node.id])
        for node in graph.order()
        for value in node.inputs
        if value is not None and value in graph.producer
    ]


def check_invariants(env: GraphRewriteEnv, observation: Observation) -> None:
    """Assert the invariants of every observation of replacements."""
    nodes, edges, candidates = observation["sizes"]
    graph = env.graph
    assert env.observation_space.contains(observation)
    assert candidates == len(env.candidates)
    owner, op = observation["node_candidate"], observation["node_op"]
    assert (owner[nodes:] == -1).all()
    assert (op[nodes:] == 0).all()
    assert (op[:nodes] > 0).all()
    assert owner[:nodes].tolist() == sorted(owner[:nodes]), "the graph first, then candidate by candidate"
    assert (owner == 0).sum() == len(graph.nodes)
    names = operator_vocabulary()
    assert [names[k].split("::")[1] for k in op[: len(graph.nodes)]] == [node.op for node in graph.order()]
    for k, candidate in enumerate(env.candidates):
        own = np.flatnonzero(owner == k + 1)
        inserted = candidate.sites[0].replacement.nodes if candidate.sites else ()
        assert op[own[0]] == CANDIDATE
        assert [names[i].split("::")[1] for i in op[own[1:]]] == [node.op for node in inserted]
        assert rule_vocabulary()[observation["candidate_rule"][k]] in (candidate.rule, "<unknown>")
    check_edges(env, observation)
    flags = observation["node_features"][:nodes]
    assert (flags[:, NODE_FEATURES.index("head")] == (op[:nodes] == CANDIDATE)).all()
    assert (flags[:, NODE_FEATURES.index("replacement")] == (owner[:nodes] > 0)).all()
    assert (observation["node_features"][nodes:] == 0).all()
    assert (observation["edge_shape"][edges:] == 0).all()
    assert (observation["edge_index"][:, edges:] == 0).all()
    assert observation["candidate_rule"][-1] == NO_OP
    assert (observation["candidate_rule"][candidates:-1] == 0).all()
    assert (column(observation, "legal") == env.action_masks()).all()


def check_edges(env: GraphRewriteEnv, observation: Observation) -> None:
    edges, owner = edges_of(observation), observation["node_candidate"]
    order = env.graph.order()
    assert (edges >= 0).all()
    assert (edges < observation["sizes"][0]).all()
    inside = [tuple(edge) for edge in edges.tolist() if owner[edge[1]] == 0]
    assert sorted(inside) == sorted(runtime_edges(env.graph))
    sources, targets = owner[edges[:, 0]], owner[edges[:, 1]]
    assert ((sources == 0) | (sources == targets)).all(), "replacements see the graph and themselves only"
    for k, candidate in enumerate(env.candidates):
        head = int(np.flatnonzero(owner == k + 1)[0])
        into_head = edges[edges[:, 1] == head][:, 0]
        removed = {node.id for node in candidate.sites[0].removed} if candidate.sites else set()
        assert {order[i].id for i in into_head if owner[i] == 0} == removed
        assert set(into_head[owner[into_head] > 0]) == set(np.flatnonzero(owner == k + 1)[1:])


class TestInvariants:
    def test_on_the_tower(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=2)
        rng = np.random.default_rng(0)
        observation, _ = env.reset()
        done = False
        while not done:
            check_invariants(env, observation)
            action = int(rng.choice(np.flatnonzero(env.action_masks())))
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
        check_invariants(env, observation)

    @settings(max_examples=15)
    @given(model=models(), seed=st.integers(0, 2**16))
    def test_on_random_models(self, model: onnx.ModelProto, seed: int) -> None:
        env = GraphRewriteEnv(problem=problem_of(model), max_candidates=64, max_nodes=512, max_edges=1024)
        rng = np.random.default_rng(seed)
        observation, _ = env.reset()
        for _ in range(3):
            check_invariants(env, observation)
            observation, _, terminated, _, _ = env.step(int(rng.choice(np.flatnonzero(env.action_masks()))))
            if terminated:
                break

    def test_same_graph_by_another_way_gives_the_same_nodes(self, make_env: MakeEnv) -> None:
        """Records that are updated incrementally equal those made from scratch."""
        env = make_env()
        env.reset()
        for rule in ("DropIdentity", "MatMulToGemm", "ComposeTransposes"):
            action = next(k for k, c in enumerate(env.candidates) if c.rule == rule and c.kind == "class")
            observation, *_ = env.step(action)
        incremental = dict(node_records(env.graph))
        env.graph.memo.drop(NODE_RECORDS)
        env.graph.edit = None
        again = env.fork()
        assert data_equivalence(again._running.observe(), observation, exact=True)
        assert incremental.keys() == env.graph.nodes.keys()


class TestContent:
    def test_edge_shapes(self, make_env: MakeEnv) -> None:
        env = make_env()
        observation, _ = env.reset()
        assert observation["edge_shape"][0].tolist() == [0, 0, 4 / SHAPE_SCALE, 4 / SHAPE_SCALE]

    def test_kinds_and_numbers_of_sites(self, make_env: MakeEnv) -> None:
        env = make_env()
        observation, _ = env.reset()
        for k, candidate in enumerate(env.candidates):
            assert column(observation, candidate.kind)[k] == 1
            assert column(observation, "sites")[k] == pytest.approx(np.log2(candidate.count) / 8)
        kinds = [column(observation, kind) for kind in ("site", "class", "deployment", "no_op")]
        assert np.sum(kinds, axis=0).tolist() == [1] * len(env.candidates) + [0] * (env.no_op - len(env.candidates)) + [
            1
        ]

    def test_work_saved(self, make_env: MakeEnv) -> None:
        env = make_env()
        observation, _ = env.reset()
        rules = [(candidate.rule, candidate.kind) for candidate in env.candidates]
        one = rules.index(("ComposeTransposes", "site"))
        every = rules.index(("ComposeTransposes", "class"))
        bytes_change = column(observation, "bytes_change")
        assert -1 <= bytes_change[every] < bytes_change[one] < 0
        assert bytes_change[every] == pytest.approx(3 * bytes_change[one], rel=1e-5)
        assert column(observation, "removed")[every] == 2 / 16
        assert column(observation, "inserted")[every] == 0

    def test_globals_follow_the_episode(self, make_env: MakeEnv) -> None:
        env = make_env(horizon=8, feedback_every=2)
        observation, _ = env.reset()
        assert [entry(observation, name) for name in ("step", "since_feedback", "speedup")] == [0, 0, 1]
        choose = next(k for k, c in enumerate(env.candidates) if c.rule == "ComposeTransposes")
        observation, *_ = env.step(choose)
        assert [entry(observation, name) for name in ("step", "since_feedback", "speedup")] == [1 / 8, 1 / 2, 1]
        refuse = next(k for k, c in enumerate(env.candidates) if c.kind == "deployment")
        observation, *_, info = env.step(refuse)
        assert entry(observation, "since_feedback") == 0
        assert entry(observation, "speedup") == pytest.approx(info["speedup"])
        assert entry(observation, "best_speedup") == pytest.approx(info["best_speedup"])
        assert entry(observation, "refused") == 1 / 8

    def test_nothing_is_shared_between_steps(self, make_env: MakeEnv) -> None:
        env = make_env()
        first, _ = env.reset()
        before = {name: array.copy() for name, array in first.items()}
        mask = env.action_masks()
        mask[:] = False
        second, *_ = env.step(0)
        assert data_equivalence(first, before, exact=True)
        for name, array in second.items():
            assert not np.shares_memory(array, first[name])
            array[...] = 0
        third, *_ = env.step(int(np.flatnonzero(env.action_masks())[0]))
        assert third["sizes"][0] > 0

    def test_feature_sizes_are_those_of_the_space(self, make_env: MakeEnv) -> None:
        space = make_env().observation_space
        assert isinstance(space, spaces.Dict)
        shapes = {name: box.shape for name, box in space.items()}
        assert feature_sizes() == {
            "node": shapes["node_features"][1], "edge": shapes["edge_shape"][1],
            "candidate": shapes["candidate_features"][1], "globals": shapes["globals"][0],
        }  # fmt: skip


class TestLimits:
    def test_too_many_candidates_are_cut_from_the_end(self, make_env: MakeEnv) -> None:
        whole, small = make_env(), make_env(max_candidates=10)
        whole.reset()
        observation, info = small.reset()
        assert [c.key for c in small.candidates] == [c.key for c in whole.candidates[:10]]
        assert info["candidates_cut"] == len(whole.candidates) - 10
        assert info["candidates"] == 10
        check_invariants(small, observation)

    @pytest.mark.parametrize("limits", [{"max_nodes": 60}, {"max_edges": 60}])
    def test_what_does_not_fit_is_cut_and_counted(self, make_env: MakeEnv, limits: dict[str, int]) -> None:
        whole, small = make_env(), make_env(**limits)
        whole.reset()
        observation, info = small.reset()
        assert info["candidates_cut"] == len(whole.candidates) - len(small.candidates) > 0
        assert entry(observation, "cut") > 0
        check_invariants(small, observation)

    def test_the_graph_never_outgrows_the_limits(self, make_env: MakeEnv) -> None:
        env = make_env(max_nodes=24, max_edges=40, horizon=30, max_candidates=512)
        rng = np.random.default_rng(1)
        for _ in range(4):
            env.reset()
            done = False
            while not done:
                legal = np.flatnonzero(env.action_masks()[:-1])
                observation, _, terminated, truncated, info = env.step(
                    int(rng.choice(legal)) if len(legal) else env.no_op
                )
                assert not info["failure"]
                assert len(env.graph.nodes) <= 24
                check_invariants(env, observation)
                done = terminated or truncated

    def test_graphs_of_one_node_and_of_none(self) -> None:
        value = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
        result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2])
        node = helper.make_node("Identity", ["x"], ["y"])
        for nodes in (0, 1):
            graph = helper.make_graph([node] * nodes, "g", [value], [result if nodes else value])
            proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
            env = GraphRewriteEnv(problem=problem_of(proto), max_candidates=4, max_nodes=8, max_edges=8)
            observation, _ = env.reset()
            assert observation["sizes"][0] >= nodes
            check_invariants(env, observation)


class TestFullMetaGraph:
    def test_each_candidate_contributes_its_whole_graph(self, make_env: MakeEnv) -> None:
        env = make_env(full_meta_graph=True, max_nodes=4096, max_edges=8192)
        observation, _ = env.reset()
        owner, op, names = observation["node_candidate"], observation["node_op"], operator_vocabulary()
        edges = edges_of(observation)
        for k, candidate in enumerate(env.candidates):
            graph, own = candidate.apply(), np.flatnonzero(owner == k + 1)
            assert [names[i].split("::")[1] for i in op[own[1:]]] == [node.op for node in graph.order()]
            start = own[0] + 1
            inside = [tuple(edge) for edge in (edges - start).tolist() if edge[0] >= 0 and edge[1] >= 0]
            mine = [edge for edge in inside if edge[0] < len(own) - 1 and edge[1] < len(own) - 1]
            assert sorted(mine) == sorted(runtime_edges(graph))
            assert set(edges[edges[:, 1] == own[0]][:, 0]) == set(own[1:])
        assert env.observation_space.contains(observation)

    def test_features_and_mask_are_the_same(self, make_env: MakeEnv) -> None:
        short, whole = make_env(), make_env(full_meta_graph=True, max_nodes=4096, max_edges=8192)
        first, second = short.reset()[0], whole.reset()[0]
        for name in ("candidate_rule", "candidate_features", "globals"):
            assert np.array_equal(first[name], second[name])
        assert np.array_equal(short.action_masks(), whole.action_masks())

    def test_what_cannot_be_applied_is_left_out(self, make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
        known = make_env(full_meta_graph=True, max_nodes=4096, max_edges=8192)
        known.reset()
        kept = [candidate.key for candidate in known.candidates if candidate.rule != "DropIdentity"]
        apply = Candidate.apply

        def refusing(candidate: Candidate) -> Graph:
            if candidate.rule == "DropIdentity":
                raise InvalidRewriteError("the graph has a cycle")
            return apply(candidate)

        monkeypatch.setattr(Candidate, "apply", refusing)
        env = make_env(full_meta_graph=True, max_nodes=4096, max_edges=8192)
        observation, info = env.reset()
        assert [candidate.key for candidate in env.candidates] == kept
        assert info["candidates_cut"] == len(known.candidates) - len(kept) > 0
        assert env.observation_space.contains(observation)

    def test_limits_cut_earlier(self, make_env: MakeEnv) -> None:
        assert make_env(full_meta_graph=True, max_nodes=100).reset()[1]["candidates_cut"] > 20
