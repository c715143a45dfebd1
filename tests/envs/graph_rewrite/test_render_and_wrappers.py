"""Drawings, the Graph space, and vector environments."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.vec_env import SubprocVecEnv

import rewritegym
from envs import GraphRewriteEnv, GraphSpaceWrapper
from envs.features import NODE_FEATURES
from envs.graph_rewrite.wrappers import NODE_COLUMNS
from envs.observation import CANDIDATE_FEATURES, GLOBAL_FEATURES
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import count_operators


class TestRender:
    def test_text_names_steps_rules_sites_and_speedups(self, make_env: MakeEnv) -> None:
        env = make_env(render_mode="ansi", feedback_every=2)
        env.reset()
        env.step(next(k for k, c in enumerate(env.candidates) if c.rule == "DropIdentity"))
        env.step(next(k for k, c in enumerate(env.candidates) if c.label == "refuse MatMulAddFusion"))
        text = env.render()
        assert isinstance(text, str)
        lines = text.splitlines()
        assert lines[0].endswith("refused: MatMulAddFusion")
        assert lines[1].split() == ["step", "rule", "site", "speed-up"]
        assert lines[2].split(maxsplit=2)[:2] == ["1", "DropIdentity"]
        assert "identity0: Identity -> nothing (all 3 sites of this kind)" in lines[2]
        assert lines[2].endswith("  -")
        assert lines[3].endswith(f"x{env.best_speedup:.3f}")
        assert lines[-1] == f"best so far: x{env.best_speedup:.3f}"

    def test_text_of_failures(self, make_env: MakeEnv) -> None:
        env = make_env(render_mode="ansi")
        env.reset()
        env.step(255)
        assert "illegal" in str(env.render())

    def test_pixels(self, make_env: MakeEnv) -> None:
        env = make_env(render_mode="rgb_array", feedback_every=1)
        env.reset()
        before = env.render()
        env.step(next(k for k, c in enumerate(env.candidates) if c.rule == "ComposeTransposes"))
        after = env.render()
        assert isinstance(before, np.ndarray)
        assert isinstance(after, np.ndarray)
        assert before.shape == after.shape == (360, 640, 3)
        assert before.dtype == np.uint8
        assert (before != after).any()

    def test_without_mode_warns(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        with pytest.warns(UserWarning, match="render_mode"):
            assert env.render() is None


class TestGraphSpace:
    def test_is_the_same_meta_graph(self, make_env: MakeEnv) -> None:
        inner = make_env()
        env = GraphSpaceWrapper(inner)
        padded, _ = inner.reset(seed=0)
        graph, _ = env.reset(seed=0)
        nodes, edges, candidates = padded["sizes"]
        assert env.observation_space.contains(graph)
        assert graph.nodes.shape == (nodes, len(NODE_COLUMNS))
        assert np.array_equal(graph.edge_links.T, padded["edge_index"][:, :edges])
        assert np.array_equal(graph.edges, padded["edge_shape"][:edges])
        assert np.array_equal(graph.nodes[:, 0], padded["node_op"][:nodes])
        heads = graph.nodes[graph.nodes[:, NODE_COLUMNS.index("head")] == 1]
        assert heads[:, 1].tolist() == list(range(1, candidates + 1))
        assert heads[:, 2].tolist() == padded["candidate_rule"][:candidates].tolist()
        assert np.array_equal(heads[:, NODE_COLUMNS.index("legal")], env.action_masks()[:candidates])
        assert np.array_equal(graph.nodes[0, -len(GLOBAL_FEATURES) :], padded["globals"])
        assert len(NODE_COLUMNS) == 3 + len(NODE_FEATURES) + len(CANDIDATE_FEATURES) + len(GLOBAL_FEATURES)

    def test_around_gymnasium_make(self, tower: str, make_env: MakeEnv) -> None:
        made = gymnasium.make(rewritegym.ENV_ID, model=tower, meter=count_operators, provider="cpu", horizon=3)
        env = GraphSpaceWrapper(made)
        env.reset(seed=0)
        graph, _, terminated, truncated, info = env.step(int(np.flatnonzero(env.action_masks())[0]))
        assert isinstance(env.observation_space, spaces.Graph)
        assert env.observation_space.contains(graph)
        assert not terminated
        assert not truncated
        assert info["step"] == 1


def factories(tower: str, **options: Any) -> list[Callable[[], GraphRewriteEnv]]:
    """Two picklable factories of small environments."""
    make = partial(
        GraphRewriteEnv, tower, meter=count_operators, provider="cpu", horizon=3, max_candidates=64, max_nodes=256,
        max_edges=256, **options,
    )  # fmt: skip
    return [make, make]


class TestVectors:
    def test_of_stable_baselines3_in_processes(self, tower: str, make_env: MakeEnv) -> None:
        env = SubprocVecEnv(list(factories(tower)), start_method="fork")
        try:
            env.seed(0)
            observation = env.reset()
            assert observation["node_op"].shape == (2, 256)
            finished = 0
            for _ in range(4):
                masks = get_action_masks(env)
                assert masks.shape == (2, 65)
                _, _, dones, infos = env.step(masks.argmax(axis=1))
                finished += sum(dones)
            assert finished == 2
            assert all("terminal_observation" not in info for info in infos)
        finally:
            env.close()

    def test_of_gymnasium_in_processes(self, tower: str, make_env: MakeEnv) -> None:
        env = AsyncVectorEnv(factories(tower, feedback_every=1))
        try:
            observation, _ = env.reset(seed=0)
            assert observation["edge_index"].shape == (2, 2, 256)
            masks = np.stack(env.call("action_masks"))
            _, rewards, terminated, truncated, infos = env.step(masks.argmax(axis=1))
            assert rewards.shape == (2,)
            assert not terminated.any()
            assert not truncated.any()
            assert infos["measured"].all()
            assert infos["graph_hash"][0] == infos["graph_hash"][1]
        finally:
            env.close()
