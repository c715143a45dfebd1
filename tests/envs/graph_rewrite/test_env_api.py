"""The environment as Gymnasium and Stable-Baselines3 see it."""

from __future__ import annotations

import gc
import inspect
import warnings
from dataclasses import fields
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import rewritegym
from envs import GraphRewriteEnv, ObservationLimits, ProblemSource, XRLflowReward, open_problem
from envs.graph_rewrite import EpisodeEnv, EpisodeSettings, GraphRewriteOptions, MetaGraphObserver
from envs.graph_rewrite.viewer import viewer_of
from graph_rewrite import Graph
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import count_operators

SMALL: dict[str, Any] = {
    "meter": count_operators, "provider": "cpu", "horizon": 5, "max_candidates": 64, "max_nodes": 512, "max_edges": 512,
}  # fmt: skip


def legal_walk(env: GraphRewriteEnv, seed: int, steps: int = 6) -> list[Any]:
    """Observations, rewards and infos of random legal actions, the No-Op only where nothing else is legal."""
    rng = np.random.default_rng(seed)
    seen: list[Any] = [env.reset(seed=seed)]
    for _ in range(steps):
        legal = np.flatnonzero(env.action_masks()[:-1])
        outcome = env.step(int(rng.choice(legal)) if len(legal) else env.no_op)
        seen.append(outcome)
        if outcome[2] or outcome[3]:
            break
    return seen


@pytest.mark.filterwarnings("ignore::UserWarning")
class TestCheckers:
    @pytest.mark.parametrize("render_mode", ["ansi", "rgb_array"])
    def test_gymnasium(self, tower: str, make_env: MakeEnv, render_mode: str) -> None:
        env = gymnasium.make(rewritegym.ENV_ID, model=tower, render_mode=render_mode, **SMALL)
        check_env(env.unwrapped)

    def test_gymnasium_finds_no_nondeterminism(self, make_env: MakeEnv) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            check_env(make_env())
        assert not [
            str(w.message) for w in caught if "determin" in str(w.message) or "not equivalent" in str(w.message)
        ]

    def test_stable_baselines3(self, make_env: MakeEnv) -> None:
        check_env_sb3(make_env())


class TestMaking:
    def test_gymnasium_make_imports_by_itself(self, tower: str, make_env: MakeEnv) -> None:
        env = gymnasium.make("rewritegym:rewritegym/GraphRewrite-v0", model=tower, **SMALL)
        observation, _ = env.reset(seed=0)
        assert env.observation_space.contains(observation)
        assert env.get_wrapper_attr("action_masks")().shape == (65,)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"horizon": 0}, "horizon"),
            ({"feedback_every": 0}, "feedback_every"),
            ({"step_scale": 0}, "step_scale must be at least 1"),
            ({"max_nodes": 0}, "max_nodes must be at least 1"),
            ({"render_mode": "human"}, "render_mode must be one of"),
            ({"model": []}, "at least one model"),
            ({"model": "file:/nowhere/model.onnx"}, "/nowhere/model.onnx"),
        ],
    )
    def test_bad_arguments_say_what_is_wrong(self, make_env: MakeEnv, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_env(**options)

    def test_model_over_the_limits(self, make_env: MakeEnv) -> None:
        env = make_env(max_nodes=4)
        with pytest.raises(ValueError, match=r"18 nodes.*max_nodes=4.*larger"):
            env.reset()


class TestReset:
    def test_spaces_contain_what_is_returned(self, make_env: MakeEnv) -> None:
        env = make_env()
        for outcome in legal_walk(env, seed=1):
            assert env.observation_space.contains(outcome[0])
        assert env.action_space.contains(env.no_op)
        assert env.action_space.n == env.no_op + 1

    def test_needed_before_and_after_an_episode(self, make_env: MakeEnv) -> None:
        env = make_env()
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)
        env.reset()
        env.step(env.no_op)
        with pytest.raises(gymnasium.error.ResetNeeded, match="over"):
            env.step(env.no_op)

    def test_starts_from_the_same_graph(self, make_env: MakeEnv) -> None:
        env = make_env()
        first, info = env.reset()
        legal_walk(env, seed=0)
        second, again = env.reset()
        assert data_equivalence(first, second, exact=True)
        assert info == again

    def test_unknown_options(self, make_env: MakeEnv) -> None:
        with pytest.raises(ValueError, match=r"unknown reset options \['modle'\]"):
            make_env().reset(options={"modle": "x"})

    def test_same_seeds_give_same_episodes(self, make_env: MakeEnv) -> None:
        first, second = legal_walk(make_env(), seed=3), legal_walk(make_env(), seed=3)
        assert data_equivalence(first, second, exact=True)

    def test_close_twice(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        env.close()
        env.close()


def test_finished_episodes_leave_nothing_behind(make_env: MakeEnv) -> None:
    """The first graph lives as long as its model; what episodes make of it must not hang on it."""
    env = make_env(feedback_every=1)

    def graphs_alive_after(episodes: int) -> int:
        for seed in range(episodes):
            legal_walk(env, seed)
        env.close()
        gc.collect()
        return sum(type(thing) is Graph for thing in gc.get_objects())

    first = graphs_alive_after(2)
    assert graphs_alive_after(4) <= first


class TestSeveralModels:
    def test_reset_draws_with_the_seed(self, make_env: MakeEnv, tower: str, relu: str) -> None:
        env = make_env(model=[tower, relu])
        drawn = [env.reset(seed=seed)[1]["model"] for seed in range(8)]
        assert set(drawn) == {tower, relu}
        assert drawn == [env.reset(seed=seed)[1]["model"] for seed in range(8)]

    def test_reset_chooses(self, make_env: MakeEnv, tower: str, relu: str) -> None:
        env = make_env(model=[tower, relu])
        for uri in (relu, tower):
            observation, info = env.reset(options={"model": uri})
            assert info["model"] == env.problem.model.uri == uri
            assert env.observation_space.contains(observation)

    def test_other_models_are_refused(self, make_env: MakeEnv, relu: str) -> None:
        with pytest.raises(ValueError, match="was made with"):
            make_env().reset(options={"model": relu})


class TestKeywordsAndParts:
    def test_parts_give_the_same_environment(self, make_env: MakeEnv) -> None:
        env = make_env(horizon=3, feedback_every=2, reward_fn=XRLflowReward(exploration=0.0), render_mode="ansi")
        parts = EpisodeEnv(
            ProblemSource.of(env.problem), EpisodeSettings(3, 2), MetaGraphObserver(ObservationLimits(256, 1024, 2048)),
            XRLflowReward(exploration=0.0), viewer_of("ansi"),
        )  # fmt: skip
        assert data_equivalence(env.reset(seed=1), parts.reset(seed=1), exact=True)
        assert data_equivalence(env.step(0), parts.step(0), exact=True)
        assert env.render() == parts.render()
        assert env.state() == parts.state()

    def test_keywords_are_the_fields_of_the_parts(self) -> None:
        names = {f.name for part in (EpisodeSettings, ObservationLimits, MetaGraphObserver) for f in fields(part)}
        opened = set(inspect.signature(open_problem).parameters) - {
            "model",
            "cached",
            "clock",
            "limits",
            "mutants",
            "thread_choices",
        }
        own = {"problem", "result_limits", "reward_fn", "render_mode"}
        assert GraphRewriteOptions.__optional_keys__ == (names - {"limits"}) | opened | own

    def test_unknown_keywords(self, tower: str) -> None:
        with pytest.raises(TypeError, match=r"no keyword horizn; it takes .*horizon"):
            GraphRewriteEnv(tower, horizn=3)  # type: ignore[call-arg]
