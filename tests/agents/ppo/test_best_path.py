"""The best path of training: kept when confirmed, gone back to, imitated."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from agents.ppo.best_path import BestPath
from agents.ppo.imitation import imitate
from envs import GraphRewriteEnv
from graph_rewrite import Graph
from graph_rewrite.latency import Latency, Plan
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


def explored(
    problem: Problem, restarts: float, episodes: int = 30, horizon: int = 4, episode_steps: int = 0
) -> tuple[BestPath, list[float]]:
    """A wrapped environment after some random episodes, and all speed-ups that were seen."""
    inner = make_env(problem)
    inner.settings = replace(inner.settings, horizon=horizon, feedback_every=1)
    env = BestPath(inner, restarts, episode_steps)
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
    """Paths grow from restart to restart, however few steps an episode takes."""
    env, _ = explored(open_tower(4, "site"), restarts=0.0, episodes=40, horizon=24, episode_steps=3)
    guided, _ = explored(open_tower(4, "site"), restarts=0.7, episodes=40, horizon=24, episode_steps=3)
    assert len(env.path) <= 3 < len(guided.path)
    assert guided.speedup > env.speedup
    assert replay(guided) == guided.speedup


def test_at_the_end_of_the_path_nothing_is_tried_twice(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    env, _ = explored(open_tower(4, "site"), restarts=0.0, horizon=6, episodes=2)
    env.restarts = 1.0
    monkeypatch.setattr(env, "_keep", lambda speedup: False)
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    tried: list[str] = []
    for _ in range(20):
        env.reset()
        mask = env.action_masks()
        if mask[inner.no_op]:
            continue  # begins on the way, not at the end
        action = int(np.flatnonzero(mask)[0])
        tried.append(inner.candidates[action].key)
        env.step(action)
    assert len(tried) == len(set(tried)) > 5


def test_a_path_at_whose_end_nothing_is_left_to_do_is_begun_anew(
    open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, _ = explored(open_tower(), restarts=0.0, episodes=4)
    env.restarts = 1.0
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    inner.settings = replace(inner.settings, horizon=50)
    assert env.path
    taken, step = [0], inner.step

    def ending(action: int) -> tuple[object, ...]:
        taken[0] += 1
        observation, reward, terminated, truncated, info = step(action)
        return observation, reward, terminated or taken[0] == len(env.path), truncated, info

    monkeypatch.setattr(inner, "step", ending)
    lengths = set()
    for seed in range(20):
        taken[0] = 0
        env.reset(seed=seed)
        lengths.add(len(inner.state()["steps"]))
        assert len(inner.state()["steps"]) == len(env._steps) < len(env.path)
    assert 0 in lengths


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


@pytest.mark.parametrize(("margin", "kept"), [(0.0, True), (0.6, False)])
def test_a_best_is_accepted_by_its_interval(
    open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch, margin: float, kept: bool
) -> None:
    """The tower can be made 1.5 times as fast; an interval that is wider than that proves nothing."""
    problem = open_tower()
    monkeypatch.setattr(problem, "confirm", lambda graph, *_: doubtful(problem.measure(graph), margin))
    env, seen = explored(problem, restarts=0.0)
    assert max(seen) > 1.3
    assert (env.path != ()) == kept
    assert (env.speedup > 1.0) == kept


def test_the_first_best_must_beat_the_original_twice(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = open_tower()

    def lucky_at_first(graph: Graph, plan: Plan | None = None, look: int = 0) -> Latency:
        return problem.measure(graph if look == 0 else problem.model.graph)

    monkeypatch.setattr(problem, "confirm", lucky_at_first)
    env, seen = explored(problem, restarts=0.0)
    assert max(seen) > 1.3
    assert env.path == ()


@pytest.mark.parametrize(("margin", "moves"), [(0.0, True), (1.0, False)])
def test_a_new_best_beats_the_old_one_in_turn(
    open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch, margin: float, moves: bool
) -> None:
    problem = open_tower()

    def compare(reference: Graph, candidate: Graph) -> tuple[Latency, float]:
        ratio = problem.measure(candidate).speedup / problem.measure(reference).speedup
        return doubtful(Latency(1.0, ratio, (ratio, ratio), 9, ratio), margin), 0.0

    def confirm(graph: Graph, *_: object) -> Latency:
        """Measure with an interval that reaches from just above the original to beyond all others."""
        return replace(problem.measure(graph), ci95=(1.001, 9.0))

    monkeypatch.setattr(problem, "compare", compare)
    monkeypatch.setattr(problem, "confirm", confirm)
    env, _ = explored(problem, restarts=0.0, episodes=1, horizon=1)
    while env.latency is None:
        random_episode(env)
    first = end_of(env)
    for _ in range(30):
        random_episode(env)
    assert (end_of(env) != first) == moves


def doubtful(latency: Latency, margin: float) -> Latency:
    """The same with an interval of `margin` to each side."""
    return replace(latency, ci95=(latency.speedup - margin, latency.speedup + margin))


def test_stopping_at_the_end_is_legal_at_times_and_imitated_once_enough_was_tried(open_tower: OpenTower) -> None:
    env, _ = explored(open_tower(), restarts=0.0, horizon=8, episodes=4)
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    assert env.lesson == env.path
    env.restarts = 1.0
    stops: list[bool] = []
    while env.lesson == env.path:
        env.reset()
        if inner.graph.hash == end_of(env):
            mask = env.action_masks()
            stops.append(bool(mask[inner.no_op]))
            env.step(int(np.flatnonzero(mask)[0]))
    assert 0 < sum(stops) < len(stops)
    stop = env.lesson[-1]
    assert stop.action == inner.no_op
    assert stop.mask[inner.no_op]
    assert env.lesson[:-1] == env.path


def end_of(env: BestPath) -> str:
    record = env.record()
    assert record is not None
    return str(record["graph_hash"])


def test_a_recorded_path_is_taken_up_again(open_tower: OpenTower) -> None:
    env, _ = explored(open_tower(), restarts=0.3)
    record = json.loads(json.dumps(env.record()))
    twin, _ = explored(open_tower(), restarts=0.3, episodes=0)
    assert twin.go_on(record)
    assert (twin.speedup, twin.record()) == (env.speedup, env.record())
    for mine, its in zip(twin.lesson, env.lesson, strict=True):
        assert (mine.key, mine.action) == (its.key, its.action)
        assert np.array_equal(mine.mask, its.mask)
        assert all(np.array_equal(mine.observation[name], its.observation[name]) for name in mine.observation)
    lucky = {**record, "latency": {**record["latency"], "speedup": 9.0, "ci95": [8.9, 9.1]}}
    for measured_on, speedup in ((record["measured_on"], 8.9), ("another machine", env.speedup)):
        fresh, _ = explored(open_tower(), restarts=0.3, episodes=0)
        assert fresh.go_on({**lucky, "measured_on": measured_on})
        assert fresh.speedup == speedup
    for damaged in ({**record, "graph_hash": "another"}, {**record, "keys": ["gone", *record["keys"]]}):
        fresh, _ = explored(open_tower(), restarts=0.3, episodes=0)
        assert not fresh.go_on(damaged)
        assert fresh.path == ()


def test_an_episode_is_counted_from_where_it_begins(open_tower: OpenTower) -> None:
    env, _ = explored(open_tower(), restarts=0.0, horizon=50, episodes=2, episode_steps=4)
    env.restarts, kinds = 1.0, set()
    for _ in range(20):
        env.reset()
        steps, done = 0, False
        while not done:
            _, _, terminated, truncated, info = env.step(int(np.flatnonzero(env.action_masks())[0]))
            steps, done = steps + 1, terminated or truncated
        assert info["restarted"]
        assert steps <= 4
        kinds.add(steps)
    assert kinds


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


def test_an_episode_begins_with_its_whole_budget(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    env, _ = explored(open_tower(), restarts=0.0, episodes=1, episode_steps=2)
    inner = env.unwrapped
    assert isinstance(inner, GraphRewriteEnv)
    assert inner.budget_left == 0.0
    shown, reset = list[float](), inner.reset

    def noting(**options: Any) -> Any:
        shown.append(inner.budget_left)
        return reset(**options)

    monkeypatch.setattr(inner, "reset", noting)
    env.reset()
    assert shown == [1.0]
