"""Several tables as one: their windows are played as before."""

from __future__ import annotations

import numpy as np
import pytest

from envs.window import WindowTable, WindowTableEnv
from envs.window.joining import joined
from envs.window.table import ARRAYS, SHIPPED

Step = tuple[str, float, bool, float]


def played(env: WindowTableEnv, window: int, seed: int) -> list[Step]:
    """Return rule, reward, end and share of each step of an episode with actions drawn by a seed."""
    observation, _ = env.reset(options={"window": window})
    random, found, over = np.random.default_rng(seed), list[Step](), False
    while not over:
        assert env.observation_space.contains(observation)
        legal = np.flatnonzero(env.action_masks())
        drawn = int(random.integers(len(legal)))
        observation, reward, ended, cut, info = env.step(int(legal[drawn]))
        found.append((info["rule"], float(reward), ended, info["share"]))
        over = ended or cut
    return found


@pytest.fixture(scope="module")
def shipped() -> WindowTable:
    return WindowTable.load(SHIPPED)


def test_every_table_s_windows_are_played_as_before(table: WindowTable, shipped: WindowTable) -> None:
    tables = [table, shipped, table]
    env, first = WindowTableEnv(joined(tables), least_chains=1), 0
    for number, one in enumerate(tables):
        alone = WindowTableEnv(one, least_chains=1)
        for window in list(alone.windows)[:: max(1, len(alone.windows) // 40)]:
            for seed in range(3):
                assert played(alone, window, seed) == played(env, first + window, seed), (number, window)
        first += len(one.windows)
    assert env.table.windows == (*table.windows, *shipped.windows, *table.windows)
    assert env.table.states == sum(one.states for one in tables)
    assert env.table.steps == sum(one.steps for one in tables)


def test_what_is_known_of_steps_goes_with_them(table: WindowTable, shipped: WindowTable) -> None:
    whole = joined([shipped, table])
    later = slice(shipped.steps, None)
    for name, of in (("step_rule", "rules"), ("step_family", "families"), ("step_class", "classes")):
        texts = [getattr(whole, of)[number] for number in whole.arrays[name][later]]
        assert texts == [getattr(table, of)[number] for number in table.arrays[name]]
    np.testing.assert_array_equal(whole.best_shares()[shipped.states :], table.best_shares())
    np.testing.assert_array_equal(whole.parents()[: shipped.states], shipped.parents())
    assert {name: array.dtype for name, array in whole.arrays.items()} == {n: np.dtype(k) for n, k in ARRAYS.items()}


def test_one_table_is_itself_and_none_is_an_error(table: WindowTable) -> None:
    assert joined([table]) is table
    with pytest.raises(ValueError, match="no table"):
        joined([])
