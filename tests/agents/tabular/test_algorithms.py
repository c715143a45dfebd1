"""Learning algorithms on a table whose savings are planted: the optimum is known, in families not seen too."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.tabular.algorithms import ALGORITHMS, COMPONENTS, Algorithm, TabularBenchmark, algorithm_of
from agents.tabular.cloning import Decisions
from agents.tabular.expert_iteration import ChainSearch
from agents.tabular.ppo import learn_effects
from agents.tabular.run import LearningRun, LearningSettings
from agents.tabular.splits import fixed_split
from agents.tabular.untrained import random_actor
from agents.tabular.vec_env import LEAST_TRIES, WindowVecEnv
from graph_rewrite.errors import UserError
from tests.agents.tabular.planted import OPTIMA, planted_table

SETTINGS = LearningSettings(steps=3000, evaluations=3, hidden=16, layers=1, learning_rate=3e-3)
TABLE = planted_table()
SPLIT = fixed_split(TABLE, ["three"])
BEST = float(np.mean(OPTIMA))


@pytest.fixture(scope="module")
def benchmark() -> TabularBenchmark:
    return TabularBenchmark(TABLE, SETTINGS)


@pytest.mark.parametrize("name", ["best-first", "cloning", "expert-iteration", "ppo"])
def test_the_optimum_is_reached_in_a_family_not_seen(benchmark: TabularBenchmark, name: str) -> None:
    found = benchmark.run(ALGORITHMS[name], SPLIT, seed=0)
    assert found.returns().mean() == pytest.approx(BEST)
    assert benchmark.run(ALGORITHMS["random"], SPLIT, seed=0).returns().mean() < 0.5 * BEST


def test_reinforce_reaches_the_optimum_or_gives_up_one_kind_of_windows(benchmark: TabularBenchmark) -> None:
    """It learns from its own episodes alone. On some seeds it ends up stopping at once where most steps lose."""
    # A gradient step for each batch of episodes: it needs more of them than those that learn from each step again.
    longer = TabularBenchmark(TABLE, replace(SETTINGS, steps=8000))
    ends = [float(longer.run(ALGORITHMS["reinforce"], SPLIT, seed).returns().mean()) for seed in range(6)]
    assert max(ends) == pytest.approx(BEST)
    assert min(ends) >= min(OPTIMA) / len(OPTIMA)
    assert benchmark.run(ALGORITHMS["random"], SPLIT, seed=0).returns().mean() < np.mean(ends) - 0.1


def test_the_same_seed_gives_the_same_training(benchmark: TabularBenchmark) -> None:
    short = TabularBenchmark(TABLE, LearningSettings(steps=600, hidden=8, layers=1))
    for name in ("random", "reinforce", "ppo-restarts"):
        one, same, other = (short.run(ALGORITHMS[name], SPLIT, seed) for seed in (3, 3, 4))
        assert [point.returns.tolist() for point in one.curve] == [point.returns.tolist() for point in same.curve]
        assert (one.policy.probabilities(one.game.roots) == same.policy.probabilities(one.game.roots)).all()
        assert (one.policy.probabilities(one.game.roots) != other.policy.probabilities(one.game.roots)).any()


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if name.startswith("ppo-")])
def test_variants_of_ppo_train(name: str) -> None:
    short = TabularBenchmark(TABLE, LearningSettings(steps=1024, evaluations=2, hidden=8, layers=1))
    found = short.run(ALGORITHMS[name], SPLIT, seed=0)
    assert [point.steps for point in found.curve] == [0, 512, 1024]
    assert found.taken == 1024
    assert np.isfinite(found.returns()).all()


def test_a_policy_that_sees_candidates_alone_cannot_tell_the_kinds_apart(benchmark: TabularBenchmark) -> None:
    blind = benchmark.run(ALGORITHMS["ppo-no-graph"], SPLIT, seed=0).returns()
    seeing = benchmark.run(ALGORITHMS["ppo-no-attention"], SPLIT, seed=0).returns()
    assert seeing.mean() == pytest.approx(BEST)
    assert blind.mean() < BEST - 0.05


def test_scores_are_taken_at_equal_distances_and_cost_no_time(benchmark: TabularBenchmark) -> None:
    now = [0.0]

    def learn(run: LearningRun) -> None:
        run.clock = lambda: now[0]
        run._began = now[0]
        while run.left:
            now[0] += 2.0
            run.took(700)

    def slow_actor(states: np.ndarray) -> np.ndarray:
        now[0] += 100.0
        return np.full(len(states), benchmark.game.stop)

    def both(run: LearningRun) -> None:
        run.actor = slow_actor
        learn(run)

    found = benchmark.run(Algorithm(both, ""), SPLIT, 0)
    assert [(point.steps, point.seconds) for point in found.curve] == [(0, 0.0), (1000, 4.0), (2000, 6.0), (3000, 10.0)]
    assert (found.taken, found.seconds) == (3500, 10.0)


def test_effects_are_learnt(benchmark: TabularBenchmark) -> None:
    found = benchmark.run(Algorithm(lambda run: None, ""), SPLIT, 0)
    steps = Decisions(*np.nonzero(found.game.masks[:, :-1]))
    errors = [learn_effects(found, steps) for _ in range(150)]
    assert errors[0] > 0.15
    assert errors[-1] < 0.03


def test_random_actions_are_legal_and_all_of_them_are_taken() -> None:
    game = TabularBenchmark(TABLE, SETTINGS).game
    act = random_actor(game, np.random.default_rng(0))
    states = np.repeat(np.arange(len(game.masks)), 60)
    actions = act(states)
    assert game.masks[states, actions].all()
    taken = np.zeros_like(game.masks)
    taken[states, actions] = True
    assert (taken == game.masks).all()


def test_a_search_finds_the_best_chains_and_counts_its_steps(benchmark: TabularBenchmark) -> None:
    found = benchmark.run(Algorithm(lambda run: None, ""), SPLIT, 0)
    search = ChainSearch(found.game, found.policy)
    steps = sum(search.search(found.train, 1) for _ in range(4))
    # Each chain once: of the three first steps of a window one leads on in the first kind, two in the second.
    assert steps == len(found.train) // 2 * ((1 + 1 + 2) + (1 + 2 + 2))
    assert search.search(found.train, 1) == 0
    decisions = search.decisions(found.train)
    saved = np.zeros(len(found.game.roots))
    np.add.at(saved, found.game.windows[decisions.states], found.game.rewards[decisions.states, decisions.actions])
    assert saved[found.train] == pytest.approx(found.game.optimum[found.train])


class TestEnvironment:
    """Windows side by side, as Stable-Baselines3 plays them."""

    @pytest.mark.parametrize("reward", ["step", "end", "model"])
    def test_rewards_add_up_to_what_is_saved(self, benchmark: TabularBenchmark, reward: str) -> None:
        game, random = benchmark.game, np.random.default_rng(0)
        env = WindowVecEnv(game, np.array(SPLIT.train), 5, random, reward)  # type: ignore[arg-type]
        env.reset()
        act, totals, roots = random_actor(game, random), np.zeros(5), env.states.copy()
        for _ in range(200):
            states, actions = env.states.copy(), act(env.states)
            shown, rewards, over, _ = env.step(actions)
            totals += rewards
            for number in np.flatnonzero(over):
                window = int(game.windows[states[number]])
                share = float(TABLE.arrays["state_share"][game.after[states[number], actions[number]]])
                failed = game.rewards[states[number], actions[number]] == -1.0
                if not failed:
                    weight = TABLE.windows[window].weight if reward == "model" else 1.0
                    assert totals[number] == pytest.approx(weight * share, abs=1e-5)
                totals[number] = 0.0
            assert isinstance(shown, np.ndarray)
            assert (shown[:, 0] == env.states).all()
        assert set(game.windows[roots].tolist()) <= set(SPLIT.train)

    def test_lessons_are_the_best_episodes(self, benchmark: TabularBenchmark) -> None:
        game, random = benchmark.game, np.random.default_rng(0)
        env = WindowVecEnv(game, np.array(SPLIT.train), 8, random)
        env.reset()
        assert len(env.lesson().states) == 0
        act = random_actor(game, random)
        for _ in range(400):
            env.step(act(env.states))
        lesson = env.lesson()
        saved = np.zeros(len(game.roots))
        np.add.at(saved, game.windows[lesson.states], game.rewards[lesson.states, lesson.actions])
        assert saved[list(SPLIT.train)] == pytest.approx(game.optimum[list(SPLIT.train)])

    def test_steps_are_told_once(self, benchmark: TabularBenchmark) -> None:
        game = benchmark.game
        env = WindowVecEnv(game, np.array(SPLIT.train), 2, np.random.default_rng(0))
        env.reset()
        states = env.states.copy()
        env.step(np.array([0, game.stop]))
        taken = env.taken()
        assert (taken.states.tolist(), taken.actions.tolist()) == ([states[0]], [0])
        assert len(env.taken().states) == 0

    def test_stopping_at_once_is_a_lesson_after_many_tries(self, benchmark: TabularBenchmark) -> None:
        game = benchmark.game
        env = WindowVecEnv(game, np.array(SPLIT.train[:1]), 1, np.random.default_rng(0))
        env.reset()
        for _ in range(LEAST_TRIES):
            assert len(env.lesson().states) == 0
            env.step(np.array([game.stop]))
        assert env.lesson().actions.tolist() == [game.stop]

    def test_restarts_begin_on_the_best_path(self, benchmark: TabularBenchmark) -> None:
        game, window = benchmark.game, SPLIT.train[0]  # of the first kind: the best path has two steps
        env = WindowVecEnv(game, np.array([window]), 1, np.random.default_rng(0), restarts=1.0)
        env.reset()
        for action in (game.best_actions, game.best_actions):
            env.step(action(env.states))
        begun = set()
        for _ in range(20):
            begun.add(int(env.states[0]))
            env.step(np.array([game.stop]))
        root = int(game.roots[window])
        assert begun == {root, int(game.after[root, game.best_actions(np.array([root]))[0]])}


class TestNames:
    """Algorithms by name, and the components that are compared."""

    def test_components_compare_algorithms_that_there_are(self) -> None:
        assert {name for one in COMPONENTS for name in (one.with_it, one.without_it)} <= set(ALGORITHMS)

    def test_a_function_of_a_module_is_an_algorithm(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "mine_for_the_test.py").write_text('def learn(run):\n    """Learn nothing."""\n')
        monkeypatch.syspath_prepend(str(tmp_path))
        found = algorithm_of("mine_for_the_test:learn")
        assert (found.about, found.view) == ("Learn nothing.", "graph")
        sys.modules.pop("mine_for_the_test")

    @pytest.mark.parametrize("name", ["pppo", "no_such_module_at_all:f", "agents.tabular.ppo:none", ":f"])
    def test_wrong_names_are_told(self, name: str) -> None:
        with pytest.raises(UserError, match=r"no algorithm|no such algorithm"):
            algorithm_of(name)

    @pytest.mark.parametrize(
        "wrong", [{"steps": 0}, {"evaluations": 0}, {"hidden": 30}, {"layers": -1}, {"learning_rate": 0.0}]
    )
    def test_wrong_settings_are_told(self, wrong: dict[str, int]) -> None:
        with pytest.raises(UserError, match=next(iter(wrong))):
            TabularBenchmark(TABLE, LearningSettings(**wrong))  # type: ignore[arg-type]
