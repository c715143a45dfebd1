"""The environments of windows as Gymnasium and Stable-Baselines3 see them, and their rewards."""

from __future__ import annotations

import json
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import rewritegym
from envs.window import WindowRewriteEnv, WindowTable, WindowTableEnv
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import ReplayError
from tests.envs.window.drawn import DrawnTimer


@pytest.fixture(params=["timed", "table"])
def env(request: pytest.FixtureRequest, problem: Problem, table: WindowTable) -> Any:
    """Either environment."""
    if request.param == "table":
        return gymnasium.make(rewritegym.WINDOW_TABLE_ENV_ID, table=table).unwrapped
    options = {"problem": problem, "timer": DrawnTimer(failing=0.15), "max_nodes": 512, "max_edges": 1024}
    return gymnasium.make(rewritegym.WINDOW_ENV_ID, **options).unwrapped


def random_episode(env: Any, seed: int) -> list[Any]:
    """Observations, rewards and infos of random legal actions."""
    seen: list[Any] = [env.reset(seed=seed)]
    while not (len(seen) > 1 and (seen[-1][2] or seen[-1][3])):
        seen.append(env.step(int(env.np_random.choice(np.flatnonzero(env.action_masks())))))
    return seen


def test_gymnasiums_checks_pass(env: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(env)
    assert not [str(w.message) for w in caught if "determin" in str(w.message) or "equivalent" in str(w.message)]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_stable_baselines3s_checks_pass(env: Any) -> None:
    check_env_sb3(env)


def test_the_return_is_what_the_chain_saves(env: Any) -> None:
    for seed in range(20):
        seen = random_episode(env, seed)
        info = seen[-1][-1]
        rewards = [float(reward) for _, reward, *_ in seen[1:]]
        if info["failure"]:
            assert rewards[-1] == -1.0
        else:
            saved = info["share"] if "share" in info else 1.0 - 1.0 / info["speedup"]
            assert sum(rewards) == pytest.approx(saved, abs=1e-5)


def test_episodes_are_reproducible(env: Any) -> None:
    one, other = (random_episode(env, 3) for _ in range(2))
    assert all(data_equivalence(a, b) for a, b in zip(one, other, strict=True))


def test_stopping_ends_an_episode_and_costs_nothing(env: Any) -> None:
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step(env.no_op)
    assert (float(reward), terminated, truncated, info["illegal_action"]) == (0.0, True, False, False)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.no_op)


def test_illegal_actions_end_an_episode(env: Any) -> None:
    env.reset(seed=0)
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    _, reward, terminated, _, info = env.step(illegal)
    assert (float(reward), terminated, info["illegal_action"]) == (-1.0, True, True)


def test_a_state_is_restored_and_forked(env: Any) -> None:
    env.reset(seed=5)
    env.step(int(np.flatnonzero(env.action_masks())[0]))
    state = json.loads(json.dumps(env.state()))
    twin = env.fork()
    env.reset(seed=6)
    observation, info = twin.restore(state)
    again, same = env.restore(state)
    assert data_equivalence(observation, again)
    assert info == same
    with pytest.raises(ReplayError):
        env.restore({})


class TestTable:
    def test_there_is_no_state_before_reset(self, table: WindowTable) -> None:
        with pytest.raises(gymnasium.error.ResetNeeded):
            WindowTableEnv(table).step(0)

    def test_the_horizon_truncates(self, table: WindowTable) -> None:
        env = WindowTableEnv(table, horizon=1)
        for window in env.windows:
            env.reset(options={"window": window})
            _, _, terminated, truncated, _ = env.step(0)
            assert truncated == (not terminated)
            if truncated:
                return
        pytest.fail("no window has a second step")

    def test_the_best_chain_is_told(self, table: WindowTable) -> None:
        env = WindowTableEnv(table, least_chains=1)
        _, info = env.reset(seed=0)
        best = table.best_shares()
        assert info["optimum"] == best[table.arrays["window_root"][info["window"]]] >= 0.0

    def test_windows_are_chosen_by_family_and_size(self, table: WindowTable) -> None:
        assert len(WindowTableEnv(table, least_chains=1).windows) == len(table.windows)
        family = table.windows[0].family
        assert WindowTableEnv(table, families=[family]).windows == WindowTableEnv(table).windows
        with pytest.raises(UserError, match="is left"):
            WindowTableEnv(table, without=[family])
        with pytest.raises(UserError, match="no window of the table is of"):
            WindowTableEnv(table, families=["unheard"])
        most = max(window.chains for window in table.windows)
        assert all(table.windows[n].chains == most for n in WindowTableEnv(table, least_chains=most).windows)

    @pytest.mark.parametrize("options", [{"window": 10**6}, {"model": "x"}])
    def test_unknown_options_are_refused(self, table: WindowTable, options: dict[str, Any]) -> None:
        with pytest.raises(UserError, match=r"window"):
            WindowTableEnv(table).reset(options=options)

    def test_a_state_of_another_table_is_refused(self, table: WindowTable) -> None:
        env = WindowTableEnv(table)
        env.reset(seed=0)
        with pytest.raises(ReplayError, match="another table"):
            env.restore({**env.state(), "fingerprint": "of another"})
        with pytest.raises(ReplayError, match="go on"):
            env.restore({**env.state(), "actions": [env.no_op, env.no_op]})


class TestTimed:
    def test_every_graph_is_timed_once(self, problem: Problem) -> None:
        timer = DrawnTimer()
        env = WindowRewriteEnv(problem=problem, timer=timer)
        for seed in [*range(8), *range(8)]:
            random_episode(env, seed)
        assert len({pair.key for pair in timer.asked}) == len(timer.asked) > 3

    def test_later_steps_touch_what_the_chain_brought_in(self, problem: Problem) -> None:
        env = WindowRewriteEnv(problem=problem, timer=DrawnTimer())
        seen = 0
        for name in env.models:
            env.reset(options={"model": name})
            window, first = env.graph, len(env.candidates)
            for k in range(first):
                env.reset(options={"model": name})
                env.step(k)
                for candidate in env.candidates if env.graph is not window else ():
                    for site in candidate.sites:
                        assert any(node.id not in window.nodes for node in site.match.nodes)
                        seen += 1
        assert seen > 5

    def test_the_timer_ends_with_the_environment(self, problem: Problem) -> None:
        timer = DrawnTimer()
        WindowRewriteEnv(problem=problem, timer=timer).close()
        assert timer.closed == 1

    def test_large_losses_are_cut_off(self, problem: Problem) -> None:
        from envs.window.env import WindowReward

        assert WindowReward().cut(-7.0) == -2.0
        assert WindowReward().cut(0.25) == 0.25

    def test_a_model_without_windows_is_refused(self, problem: Problem) -> None:
        from dataclasses import replace

        from graph_rewrite import Rewriter

        with pytest.raises(UserError, match="has no window"):
            WindowRewriteEnv(problem=replace(problem, rewriter=Rewriter([], deployment=False)))

    def test_unknown_keywords_are_refused(self) -> None:
        with pytest.raises(TypeError, match="takes no keyword"):
            WindowRewriteEnv(feedback_every=3)  # type: ignore[call-arg]
