"""Forks, and states as plain values that give the same episode again."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import given, settings
from hypothesis import strategies as st

from envs import GraphRewriteEnv, ReplayError
from envs.observation import GLOBAL_FEATURES
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import OperatorCountMeter


def walk(env: GraphRewriteEnv, steps: int, seed: int = 0) -> Any:
    """Takes random legal actions and returns the last outcome of `step`."""
    rng = np.random.default_rng(seed)
    outcome: Any = None
    for _ in range(steps):
        legal = np.flatnonzero(env.action_masks()[:-1])
        outcome = env.step(int(rng.choice(legal)))
    return outcome


class TestFork:
    def test_continues_alike_and_apart(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=2)
        env.reset(seed=5)
        walk(env, 3)
        twin = env.fork()
        assert twin.graph is env.graph
        assert np.array_equal(twin.action_masks(), env.action_masks())
        before = env.state()
        alike = walk(twin, 3, seed=1)
        assert json.dumps(env.state()) == json.dumps(before), "the original does not notice"
        assert data_equivalence(walk(env, 3, seed=1), alike, exact=True)

    def test_random_generators_are_equal_and_independent(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset(seed=5)
        twin = env.fork()
        drawn = [twin.np_random.random() for _ in range(3)]
        assert [env.np_random.random() for _ in range(3)] == drawn

    def test_shares_model_meter_and_measurements(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        twin = env.fork()
        assert twin.problem is env.problem

    def test_before_reset(self, make_env: MakeEnv) -> None:
        make_env().fork().reset()

    def test_visited_graphs_are_not_shared(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        twin = env.fork()
        walk(twin, 2)
        env.step(int(np.flatnonzero(env.action_masks())[-2]))
        assert env.action_masks().sum() > 1


class TestRestore:
    @settings(max_examples=10)
    @given(seed=st.integers(0, 2**16), steps=st.integers(0, 6), feedback=st.integers(1, 4))
    def test_is_bit_identical(self, tower_env: GraphRewriteEnv, seed: int, steps: int, feedback: int) -> None:
        env = GraphRewriteEnv(
            problem=tower_env.problem, horizon=8, feedback_every=feedback, max_candidates=256, max_nodes=1024,
            max_edges=2048,
        )  # fmt: skip
        observation, info = env.reset(seed=seed)
        if steps:
            observation, *_, info = walk(env, steps, seed)
        state = json.loads(json.dumps(env.state()))
        other = env.fork()
        other.reset(seed=seed + 1)
        restored, again = other.restore(state)
        assert data_equivalence(restored, observation, exact=True)
        assert again == info
        assert np.array_equal(other.action_masks(), env.action_masks())
        assert other.best_graph.hash == env.best_graph.hash
        assert other.np_random.random() == env.np_random.random()

    def test_measures_nothing(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        walk(env, 4)
        other = make_env(feedback_every=1)
        other.restore(env.state())
        assert other.problem.measurements == 0
        assert other.best_speedup == env.best_speedup

    def test_recorded_latencies_win_over_this_machine(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        walk(env, 2)
        state = copy.deepcopy(env.state())
        state["steps"][-1]["latency"]["speedup"] = 7.0
        other = make_env(feedback_every=1)
        assert other.restore(state)[1]["speedup"] == 7.0

    @pytest.mark.parametrize("last", ["no-op", "illegal"])
    def test_finished_episodes_stay_finished(self, make_env: MakeEnv, last: str) -> None:
        env = make_env()
        env.reset()
        walk(env, 2)
        *_, info = env.step(env.no_op if last == "no-op" else 255)
        other = make_env()
        assert other.restore(env.state())[1] == info
        with pytest.raises(Exception, match="over"):
            other.step(0)

    def test_failed_measurements(self, make_env: MakeEnv) -> None:
        def fragile(model: Any, *rest: Any) -> OperatorCountMeter:
            return OperatorCountMeter(model.original, {"Gemm": "crash"})

        env = make_env(meter=fragile, feedback_every=1)
        env.reset()
        gemm = next(k for k, c in enumerate(env.candidates) if c.rule == "MatMulToGemm")
        *_, info = env.step(gemm)
        assert make_env(feedback_every=1).restore(json.loads(json.dumps(env.state())))[1] == info

    def test_chooses_the_recorded_model(self, make_env: MakeEnv, tower: str, relu: str) -> None:
        env = make_env(model=[tower, relu])
        env.reset(options={"model": relu})
        other = make_env(model=[tower, relu])
        assert other.restore(env.state())[1]["model"] == relu

    def test_of_given_feedback(self, make_env: MakeEnv) -> None:
        def made() -> GraphRewriteEnv:
            return make_env(given_feedback=True, feedback_every=2, step_scale=3)

        env = made()
        env.reset()
        for _ in range(4):
            walk(env, 1)
            observation = env.give_feedback(env.problem.measure(env.graph))
        assert env.problem.measurements == 4, "the environment itself measures nothing"
        assert observation["globals"][GLOBAL_FEATURES.index("step")] == 1.0
        other, _ = made().restore(json.loads(json.dumps(env.state())))
        assert data_equivalence(other, observation, exact=True)
        with pytest.raises(ReplayError, match="given_feedback was True, is False"):
            make_env(feedback_every=2).restore(env.state())
        with pytest.raises(ValueError, match="measures by itself"):
            make_env().give_feedback(env.problem.measure(env.graph))


class TestMismatch:
    def recorded(self, make_env: MakeEnv) -> tuple[dict[str, Any], GraphRewriteEnv]:
        env = make_env()
        env.reset()
        walk(env, 2)
        return copy.deepcopy(env.state()), env

    def test_of_settings(self, make_env: MakeEnv) -> None:
        state, _ = self.recorded(make_env)
        with pytest.raises(ReplayError, match="horizon was 8, is 9"):
            make_env(horizon=9).restore(state)
        with pytest.raises(ReplayError, match="granularity was 'both', is 'site'"):
            make_env(granularity="site").restore(state)

    def test_of_the_model(self, make_env: MakeEnv, relu: str) -> None:
        state, env = self.recorded(make_env)
        with pytest.raises(ValueError, match="was made with"):
            make_env(model=relu).restore(state)
        state["model_hash"] = "0" * 32
        with pytest.raises(ReplayError, match="model_hash was '000"):
            env.restore(state)

    def test_of_the_rules(self, make_env: MakeEnv) -> None:
        state, env = self.recorded(make_env)
        state["steps"][1]["key"] = "f" * 32
        with pytest.raises(ReplayError, match=r"step 2 took candidate f+ \(.+\).*rules.*changed"):
            env.restore(state)

    def test_of_what_a_rule_does(self, make_env: MakeEnv) -> None:
        state, env = self.recorded(make_env)
        state["graph_hash"] = "0" * 32
        with pytest.raises(ReplayError, match="now does something else"):
            env.restore(state)

    def test_of_the_format(self, make_env: MakeEnv) -> None:
        state, env = self.recorded(make_env)
        state["format"] = 99
        with pytest.raises(ReplayError, match="format 99"):
            env.restore(state)

    def test_leaves_the_environment_as_it_was(self, make_env: MakeEnv) -> None:
        state, env = self.recorded(make_env)
        before = env.graph.hash
        with pytest.raises(ReplayError):
            env.restore({**state, "graph_hash": "0"})
        assert env.graph.hash == before
