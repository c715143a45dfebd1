"""Rewards, measurements and ends of episodes."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs import GraphRewriteEnv, RewardContext, XRLflowReward
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Deployment
from graph_rewrite.operators.standard_semantics import UnknownOperatorError
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.models import Model
from graph_rewrite.task.problem import Problem
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import OperatorCountMeter, cost


def action_of(env: GraphRewriteEnv, rule: str, kind: str = "site", number: int = 0) -> int:
    """A legal action of this rule."""
    mask = env.action_masks()
    found = [k for k, c in enumerate(env.candidates) if c.rule == rule and c.kind == kind and mask[k]]
    return found[number]


def relative(env: GraphRewriteEnv, graph: Graph) -> float:
    return cost(graph) / cost(env.problem.model.original)


class TestReward:
    def test_measured_steps_give_the_latency_saved_in_percent(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        latency = 1.0
        for rule in ("DropIdentity", "ComposeTransposes", "MatMulToGemm"):
            _, reward, *_, info = env.step(action_of(env, rule))
            assert info["measured"]
            assert reward == pytest.approx((latency - relative(env, env.graph)) * 100)
            latency = relative(env, env.graph)
            assert info["speedup"] == pytest.approx(1 / latency)
            assert info["latency_ms"] == cost(env.graph)

    def test_between_feedbacks_a_small_constant(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=3)
        env.reset()
        rewards, measured = [], []
        for _ in range(2):
            for rule in ("DropIdentity", "ComposeTransposes", "MatMulToGemm"):
                _, reward, *_, info = env.step(action_of(env, rule))
                rewards.append(reward)
                measured.append(info["measured"])
        assert measured == [False, False, True] * 2
        assert rewards[:2] == rewards[3:5] == [0.1, 0.1]
        # Each feedback is relative to the last one: together they give what the episode saved.
        assert rewards[2] + rewards[5] == pytest.approx((1 - relative(env, env.graph)) * 100)

    def test_last_known_speedup_is_kept_between_feedbacks(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=2)
        env.reset()
        infos = [env.step(action_of(env, "DropIdentity"))[4] for _ in range(3)]
        assert infos[0]["speedup"] == 1.0
        assert infos[0]["latency_ms"] == 0.0
        assert infos[1]["speedup"] > 1.0
        assert infos[2]["speedup"] == infos[1]["speedup"]
        assert not infos[2]["measured"]

    def test_no_op_measures_what_was_not_measured_yet(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=5)
        env.reset()
        env.step(action_of(env, "ComposeTransposes", "class"))
        _, reward, terminated, truncated, info = env.step(env.no_op)
        assert (terminated, truncated) == (True, False)
        assert info["measured"]
        assert reward == pytest.approx((1 - relative(env, env.graph)) * 100)

    def test_no_op_on_a_measured_state_gives_nothing(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        env.step(action_of(env, "DropIdentity"))
        assert env.step(env.no_op)[1] == 0.0

    def test_callback_sees_the_step(self, make_env: MakeEnv) -> None:
        seen: list[RewardContext] = []

        def count_sites(context: RewardContext) -> float:
            seen.append(context)
            return float(context.sites)

        env = make_env(feedback_every=2, reward_fn=count_sites)
        env.reset()
        assert env.step(action_of(env, "DropIdentity", "class"))[1] == 3.0
        assert env.step(action_of(env, "ComposeTransposes"))[1] == 1.0
        assert env.step(env.no_op)[1] == 0.0
        assert [c.measured for c in seen] == [False, True, True]
        assert [c.step for c in seen] == [1, 2, 3]
        assert [c.kind for c in seen] == ["class", "site", "no-op"]
        assert [c.terminal for c in seen] == [False, False, True]
        assert seen[0].previous == seen[0].current == seen[0].initial == 1.0
        assert seen[1].current == seen[2].previous == pytest.approx(relative(env, env.graph))
        assert seen[1].latency is not None
        assert seen[1].graph is env.graph

    @pytest.mark.parametrize(
        ("changes", "reward"),
        [
            ({"measured": True}, 25.0),
            ({"measured": False}, 0.1),
            ({"measured": True, "failed": True, "current": math.inf}, -10.0),
        ],
    )
    def test_default_function(self, make_env: MakeEnv, changes: dict[str, Any], reward: float) -> None:
        env = make_env()
        env.reset()
        context = RewardContext(1.25, 1.0, 1.0, True, False, False, 1, "Rule", "site", 1, None, env.graph)
        assert XRLflowReward()(replace(context, **changes)) == reward


class TestEnd:
    def test_horizon_truncates_and_measures(self, make_env: MakeEnv) -> None:
        env = make_env(horizon=3, feedback_every=5)
        env.reset()
        for step in (1, 2, 3):
            _, reward, terminated, truncated, info = env.step(action_of(env, "DropIdentity"))
            assert info["step"] == step
            assert not terminated
            assert truncated == info["measured"] == (step == 3)
        assert reward == pytest.approx((1 - relative(env, env.graph)) * 100)

    def test_terminates_when_nothing_is_left_to_do(self, make_env: MakeEnv, relu: str) -> None:
        env = make_env(model=relu, horizon=50)
        env.reset()
        _, _, terminated, truncated, info = env.step(action_of(env, "DropIdentity"))
        assert (terminated, truncated) == (True, False)
        assert info["measured"]
        assert not env.action_masks()[:-1].any()

    def test_without_candidates_only_the_no_op_is_legal(self, make_env: MakeEnv, relu: str) -> None:
        env = make_env(model=relu, max_nodes=2, max_edges=1)
        _, info = env.reset()
        assert (info["candidates"], info["candidates_cut"]) == (0, 1)
        assert env.action_masks().tolist() == [False] * env.no_op + [True]
        assert env.step(env.no_op)[2]

    def test_last_state_is_not_measured_when_told_so(self, make_env: MakeEnv) -> None:
        env = make_env(measure_last=False, feedback_every=9)
        env.reset()
        env.step(action_of(env, "DropIdentity"))
        assert not env.step(env.no_op)[4]["measured"]
        assert env.problem.measurements == 0

    def test_the_result_is_the_best_measured_graph(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        assert env.best_graph is env.problem.model.original
        assert env.best_speedup == 1.0
        env.step(action_of(env, "ComposeTransposes", "class"))
        best, speedup = env.graph, 1 / relative(env, env.graph)
        _, reward, *_, info = env.step(action_of(env, "LinearToPointwiseConv", "class"))
        assert reward < 0
        assert env.best_graph is best
        assert env.best_speedup == info["best_speedup"] == pytest.approx(speedup)
        assert info["speedup"] < speedup

    def test_unmeasured_graphs_are_no_results(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=5)
        env.reset()
        env.step(action_of(env, "ComposeTransposes", "class"))
        assert env.best_graph is env.problem.model.original


class TestIllegalActions:
    @pytest.mark.parametrize("action", [200, 257, -1])
    def test_costs_one_and_ends(self, make_env: MakeEnv, action: int) -> None:
        env = make_env(feedback_every=5)
        env.reset()
        env.step(action_of(env, "ComposeTransposes"))
        graph, candidates = env.graph, env.candidates
        observation, reward, terminated, truncated, info = env.step(action)
        assert (reward, terminated, truncated) == (-1.0, True, False)
        assert info["illegal_action"]
        assert info["kind"] == "illegal"
        assert env.graph is graph
        assert env.candidates is candidates
        assert env.observation_space.contains(observation)
        assert info["measured"], "the last state is always measured"

    def test_leading_back_is_illegal(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        start = env.graph.hash
        env.step(action_of(env, "MatMulToGemm"))
        back = [k for k, c in enumerate(env.candidates) if c.apply().hash == start]
        assert back
        assert env.step(back[0])[4]["illegal_action"]

    def test_reward_function_has_no_say(self, make_env: MakeEnv) -> None:
        env = make_env(reward_fn=lambda context: 100.0)
        env.reset()
        assert env.step(255)[1] == -1.0


class TestFailures:
    @pytest.mark.parametrize("status", ["crash", "hang", "oom", "error"])
    def test_of_a_measurement_end_the_episode(self, make_env: MakeEnv, status: str) -> None:
        def fragile(model: Model, deployment: Deployment, workspace: Path) -> OperatorCountMeter:
            return OperatorCountMeter(model.original, {"Gemm": status})  # type: ignore[dict-item]

        env = make_env(meter=fragile, feedback_every=1)
        env.reset()
        env.step(action_of(env, "DropIdentity"))
        best = env.best_graph
        observation, reward, terminated, truncated, info = env.step(action_of(env, "MatMulToGemm"))
        assert (reward, terminated, truncated) == (-10.0, True, False)
        assert info["failure"] == status
        assert (info["speedup"], info["latency_ms"]) == (0.0, math.inf)
        assert env.best_graph is best
        assert env.observation_space.contains(observation)
        env.reset()

    def test_of_folding_are_failed_measurements(self, make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
        env = make_env(feedback_every=1)
        env.reset()

        def cannot_fold(graph: Graph, effort: str = "screen") -> None:
            raise UnknownOperatorError("no reference semantics")

        monkeypatch.setattr(env.problem.meter, "measure", cannot_fold)
        *_, info = env.step(action_of(env, "DropIdentity"))
        assert info["failure"] == "error"

    def test_of_a_rewrite_leave_the_graph_unchanged(self, make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
        env = make_env(feedback_every=1)
        env.reset()
        graph, action = env.graph, action_of(env, "DropIdentity")

        def cannot_apply(candidate: Candidate) -> Graph:
            raise InvalidRewriteError("the graph has a cycle")

        monkeypatch.setattr("graph_rewrite.rewriting.candidates.Candidate.apply", cannot_apply)
        _, reward, terminated, _, info = env.step(action)
        assert (reward, terminated, info["failure"], info["measured"]) == (-10.0, True, "build", False)
        assert env.graph is graph


class TestMeasurements:
    def test_each_graph_is_measured_once(self, make_env: MakeEnv) -> None:
        env = make_env(feedback_every=1)
        for _ in range(3):
            env.reset()
            env.step(action_of(env, "DropIdentity"))
            env.step(env.no_op)
        meter = env.problem.meter
        assert isinstance(meter, OperatorCountMeter)
        assert len(meter.measured) == env.problem.measurements == 1

    def test_meter_object(self, make_env: MakeEnv) -> None:
        env = make_env()
        meter = OperatorCountMeter(env.problem.model.original)
        assert make_env(meter=meter).problem.meter is meter

    def test_given_problem_is_used(self, make_env: MakeEnv) -> None:
        problem: Problem = make_env().problem
        assert make_env(problem=problem).problem is problem
