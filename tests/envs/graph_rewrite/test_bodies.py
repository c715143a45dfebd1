"""Episodes that rewrite inside the bodies of If, Loop and Scan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite.rewriting.body_sites import BodySite
from tests.envs.conftest import MakeEnv
from tests.graph_rewrite.body_models import body_model


@pytest.mark.parametrize("name", ["a chain within Loop within Loop", "chains within If"])
@pytest.mark.parametrize("features", ["plain", "full"])
def test_episodes(name: str, features: str, make_env: MakeEnv, tmp_path: Path) -> None:
    onnx.save(body_model(name), tmp_path / "bodies.onnx")
    env = make_env(model=f"file:{tmp_path / 'bodies.onnx'}", features=features)
    rng, inside = np.random.default_rng(0), 0
    for episode in range(3):
        observation, _ = env.reset(seed=episode)
        ended = False
        while not ended:
            assert env.observation_space.contains(observation)
            legal = np.flatnonzero(env.action_masks())
            action = int(rng.choice(legal))
            if action < len(env.candidates) and env.candidates[action].sites:
                inside += isinstance(env.candidates[action].site, BodySite)
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
    assert inside


def test_an_action_that_undoes_the_last_one_is_masked(make_env: MakeEnv, tmp_path: Path) -> None:
    """Also inside a body: graphs that were visited are told by the structure of their bodies."""
    onnx.save(body_model("a chain within Loop"), tmp_path / "bodies.onnx")
    env = make_env(model=f"file:{tmp_path / 'bodies.onnx'}")
    env.reset(seed=0)
    begin = env.graph.hash
    action = next(k for k, candidate in enumerate(env.candidates) if candidate.rule == "MatMulToGemm")
    env.step(action)
    mask = env.action_masks()
    back = [k for k, candidate in enumerate(env.candidates) if candidate.rule == "GemmToMatMul"]
    leading = [k for k in back if env.candidates[k].apply().hash == begin]
    assert leading
    assert not mask[leading].any()
