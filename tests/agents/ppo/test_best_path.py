"""The best path of training: kept when confirmed, gone back to, imitated."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from agents.ppo.best_path import BestPath, imitate
from envs import GraphRewriteEnv
from graph_rewrite import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.task.problem import Problem
from tests.agents.ppo.test_policy import make_env, make_policy

OpenTower = Callable[..., Problem]


def random_episode(env: BestPath) -> list[float]:
    """Speed-ups along an episode of random actions."""
    env.reset()
    speedups, done = [], False
    rewriting = env.unwrapped
    assert isinstance(rewriting, GraphRewriteEnv)
    while not done:
        legal = np.flatnonzero(env.action_masks())
        _, _, terminated, truncated, info = env.step(int(rewriting.np_random.choice(legal)))
        done = terminated or truncated
        speedups.append(float(info["speedup"]))
    return speedups


def explored(problem: Problem, restarts: float, episodes: int = 30, horizon: int = 4) -> tuple[BestPath, list[float]]:
    """A wrapped environment after some random episodes, and all speed-ups that were seen."""
    inner = make_env(problem)
    inner.settings = replace(inner.settings, horizon=horizon, feedback_every=1)
    env = BestPath(inner, restarts)
    env.reset(seed=0)
    seen = [speedup for _ in range(episodes) for speedup in random_episode(env)]
    return env, seen


def replay(env: BestPath) -> float:
    """Speed-up at the end of the best path, taken again from the start."""
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    inner.reset()
    for step in env.path:
        keys = [candidate.key for candidate in inner.candidates]
        assert keys.index(step.key) == step.action
        assert inner.action_masks()[step.action]
        inner.step(step.action)
    return inner.best_speedup


def test_the_best_graph_seen_is_at_the_end_of_the_path(open_tower: OpenTower) -> None:
    env, seen = explored(open_tower(), restarts=0.0)
    assert env.speedup > 1.0
    assert max(seen) <= env.speedup * 1.01
    assert replay(env) == env.speedup


def test_restarts_find_more_than_starting_afresh(open_tower: OpenTower) -> None:
    env, _ = explored(open_tower(4, "site"), restarts=0.0, episodes=15, horizon=24)
    guided, _ = explored(open_tower(4, "site"), restarts=0.7, episodes=15, horizon=24)
    assert guided.speedup > env.speedup
    assert replay(guided) == guided.speedup


def test_at_the_end_of_the_path_nothing_is_tried_twice(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    env, _ = explored(open_tower(), restarts=0.0, horizon=6, episodes=2)
    env.restarts = 1.0
    monkeypatch.setattr(env, "_keep", lambda speedup: False)
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    tried: list[str] = []
    while len(tried) < 6:
        env.reset()
        mask = env.action_masks()
        if mask[inner.no_op]:
            continue  # begins on the way, not at the end
        action = int(np.flatnonzero(mask)[0])
        tried.append(inner.candidates[action].key)
        env.step(action)
    assert len(tried) == len(set(tried))


def test_luck_is_not_kept(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = open_tower()

    def sober(graph: Graph) -> Latency:
        return problem.measure(problem.model.graph)

    monkeypatch.setattr(problem, "confirm", sober)
    env, seen = explored(problem, restarts=0.5)
    assert max(seen) > 1.05
    assert env.path == ()
    assert env.speedup == 1.0
    # What was found to be luck is not met again.
    _, lucky = explored(problem, restarts=0.0)
    assert max(lucky) < max(seen)


def test_a_share_that_is_none_is_refused(open_tower: OpenTower) -> None:
    with pytest.raises(ValueError, match=r"0 to 1, got 1\.5"):
        BestPath(make_env(open_tower()), 1.5)


def test_imitation_makes_the_path_likely(open_tower: OpenTower) -> None:
    env, _ = explored(open_tower(), restarts=0.0)
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    torch.manual_seed(0)
    policy = make_policy(inner)
    before = [float(policy.action_probabilities(step.observation, step.mask)[step.action]) for step in env.path]
    first = imitate(policy, env.path, 1, 0.5)
    last = imitate(policy, env.path, 60, 0.5)
    after = [float(policy.action_probabilities(step.observation, step.mask)[step.action]) for step in env.path]
    assert last < first
    assert np.prod(after) > 10 * np.prod(before)
