"""The vectorised game and its observations against the environment that they stand for, and the splits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.tabular.cloning import best_chains
from agents.tabular.game import WindowGame
from agents.tabular.splits import HELD_OUT, fixed_split, rotated_splits
from agents.tabular.states import StateObservations
from envs.window import WindowTable, WindowTableEnv
from envs.window.env import HORIZON
from envs.window.table import SHIPPED
from graph_rewrite.errors import UserError
from tests.agents.tabular.planted import OPTIMA, planted_table


@pytest.fixture(scope="module")
def shipped() -> WindowTable:
    return WindowTable.load(SHIPPED)


@pytest.mark.parametrize("horizon", [1, 2, HORIZON])
@pytest.mark.parametrize("source", ["planted", "shipped"])
def test_episodes_are_those_of_the_environment(source: str, horizon: int, shipped: WindowTable) -> None:
    table = planted_table() if source == "planted" else shipped
    env, game = WindowTableEnv(table, horizon=horizon), WindowGame(table, horizon)
    random = np.random.default_rng(0)
    for window in random.choice(env.windows, 60):
        env.reset(options={"window": int(window)})
        state, done = int(game.roots[window]), False
        while not done:
            assert (game.masks[state] == env.action_masks()).all()
            action = int(random.choice(np.flatnonzero(game.masks[state])))
            _, reward, terminated, truncated, info = env.step(action)
            done = terminated or truncated
            assert game.rewards[state, action] == pytest.approx(float(reward), abs=1e-6)
            assert game.over[state, action] == done
            state = int(game.after[state, action])
            assert state == env.state_number
        assert game.windows[state] == info["window"]
        if horizon == HORIZON:
            assert game.optimum[window] == pytest.approx(info["optimum"], abs=1e-6)


def test_best_chains_return_the_optimum(shipped: WindowTable) -> None:
    game = WindowGame(shipped)
    windows = np.arange(len(game.roots))
    assert game.play(game.best_actions, windows) == pytest.approx(game.optimum, abs=1e-9)
    decisions = best_chains(game, windows)
    assert game.masks[decisions.states, decisions.actions].all()
    saved = np.zeros(len(windows))
    np.add.at(saved, game.windows[decisions.states], game.rewards[decisions.states, decisions.actions])
    assert saved == pytest.approx(game.optimum, abs=1e-9)


def test_the_optimum_is_the_largest_return_of_all_chains() -> None:
    game = WindowGame(planted_table())

    def largest(state: int) -> float:
        found = [0.0]
        for action in np.flatnonzero(game.masks[state]):
            follows = 0.0 if game.over[state, action] else largest(int(game.after[state, action]))
            found.append(game.rewards[state, action] + follows)
        return max(found)

    assert [largest(int(root)) for root in game.roots] == pytest.approx(game.optimum)
    assert game.optimum == pytest.approx(np.tile(OPTIMA, len(game.roots) // 2), abs=1e-6)


def test_batches_hold_what_the_environment_shows(shipped: WindowTable) -> None:
    env, states = WindowTableEnv(shipped), StateObservations(shipped)
    random = np.random.default_rng(1)
    numbers, shown = list[int](), []
    for window in random.choice(env.windows, 12):
        observation, _ = env.reset(options={"window": int(window)})
        done = False
        while not done:
            numbers.append(env.state_number)
            shown.append(observation)
            action = int(np.flatnonzero(env.action_masks())[0])
            observation, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated
    batch = states.batch(torch.tensor(numbers))
    for row, observation in enumerate(shown):
        nodes, edges, _ = observation["sizes"]
        for name, entry in observation.items():
            found = batch[name][row].numpy()
            if name.startswith("node_"):
                entry, found = entry[:nodes], found[:nodes]
            elif name == "edge_index":
                entry, found = entry[:, :edges], found[:, :edges]
            elif name == "edge_shape":
                entry, found = entry[:edges], found[:edges]
            np.testing.assert_array_equal(found, entry, err_msg=name)


def test_without_graphs_no_node_is_shown() -> None:
    batch = StateObservations(planted_table(), graphs=False).batch(torch.arange(5))
    assert batch["sizes"][:, :2].sum() == 0
    assert batch["node_op"].shape == (5, 0)
    assert batch["candidate_rule"].any()


def test_the_fixed_split_leaves_families_out(shipped: WindowTable) -> None:
    split = fixed_split(shipped)
    assert {shipped.windows[number].family for number in split.held_out} == set(HELD_OUT)
    assert not {shipped.windows[number].family for number in split.train} & set(HELD_OUT)
    assert sorted([*split.train, *split.held_out]) == list(WindowTableEnv(shipped).windows)
    assert 0.15 < len(split.held_out) / len(WindowTableEnv(shipped).windows) < 0.25


@pytest.mark.parametrize("folds", [2, 6, 20])
def test_every_family_is_left_out_once(shipped: WindowTable, folds: int) -> None:
    splits = rotated_splits(shipped, folds)
    assert len(splits) == folds
    assert sorted(number for split in splits for number in split.held_out) == list(WindowTableEnv(shipped).windows)
    for split in splits:
        assert not {*split.train} & {*split.held_out}
        assert {shipped.windows[number].family for number in split.held_out} == {*split.families}


def test_splits_that_cannot_be_are_refused(shipped: WindowTable) -> None:
    with pytest.raises(UserError, match="no window of the table is of"):
        fixed_split(shipped, ["unheard"])
    with pytest.raises(UserError, match="at least one family"):
        fixed_split(shipped, [])
    with pytest.raises(UserError, match="is left"):
        fixed_split(planted_table(["one"]), ["one"])
    for folds in (1, 24):
        with pytest.raises(UserError, match="2 to 23 folds"):
            rotated_splits(shipped, folds)
