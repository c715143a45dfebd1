"""Graphs that recorded candidate keys lead to."""

from __future__ import annotations

import pytest

from graph_rewrite.task.replay import ReplayError, replay
from tests.envs.conftest import MakeEnv
from tests.envs.graph_rewrite.test_records import walk


class TestReplayOfKeys:
    def test_gives_the_same_graph(self, make_env: MakeEnv) -> None:
        env = make_env()
        env.reset()
        walk(env, 5)
        keys = [step["key"] for step in env.state()["steps"]]
        assert replay(env.problem, keys).hash == env.graph.hash

    def test_unknown_key(self, make_env: MakeEnv) -> None:
        with pytest.raises(ReplayError, match="step 1 took candidate nonsense"):
            replay(make_env().problem, ["nonsense"])
