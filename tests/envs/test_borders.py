"""Values that are no action or no recorded state are refused by environments with a sentence."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from envs import GraphRewriteEnv, ReplayError
from envs.egraph.env import EGraphRewriteEnv
from graph_rewrite.errors import UserError
from tests.envs.conftest import MakeEnv
from tests.envs.fakes import count_operators

MakeAny = Callable[[], Any]


@pytest.fixture(params=[GraphRewriteEnv, EGraphRewriteEnv])
def env(request: pytest.FixtureRequest, make_env: MakeEnv, tower: str, tmp_path: Path) -> Any:
    if request.param is GraphRewriteEnv:
        made: Any = make_env(feedback_every=1)
    else:
        made = EGraphRewriteEnv(tower, meter=count_operators, provider="cpu", max_nodes=600, max_edges=2000)
    made.reset(seed=1)
    return made


@pytest.mark.parametrize("action", [None, 1.5, "1", np.float32(1.0), [1, 2]])
def test_an_action_is_a_whole_number(env: Any, action: Any) -> None:
    before = env.state()
    with pytest.raises(UserError, match=r"an action is a whole number, of a candidate or \d+ for the No-Op"):
        env.step(action)
    assert env.state() == before


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.asarray])
def test_any_whole_number_is_taken(env: Any, kind: Callable[[int], Any]) -> None:
    legal = int(np.flatnonzero(env.action_masks())[0])
    env.step(kind(legal))
    assert len(env.state()["steps"]) == 1


@pytest.mark.parametrize("state", [{}, None, [], "state", {"format": 1}])
def test_what_is_no_state_is_refused(env: Any, state: Any) -> None:
    with pytest.raises(ReplayError, match=r"restore\(\) takes what state\(\) returned"):
        env.restore(state)


@pytest.mark.parametrize("key", ["steps", "random"])
@pytest.mark.parametrize("value", [None, 3, "no", [{}], {"a": 1}])
def test_a_damaged_state_is_refused(env: Any, key: str, value: Any) -> None:
    env.step(int(np.flatnonzero(env.action_masks())[0]))
    state = env.state()
    with pytest.raises(UserError):
        env.restore({**state, key: value})
    env.restore(state)
    assert env.state() == state


def test_a_damaged_step_is_refused(make_env: MakeEnv) -> None:
    env = make_env(feedback_every=1)
    env.reset(seed=1)
    env.step(int(np.flatnonzero(env.action_masks())[0]))
    state = env.state()
    for change in ({"latency": {}}, {"latency": {"ms": "x"}}, {"action": 1.5}, {"action": None}):
        with pytest.raises(UserError):
            env.restore({**state, "steps": [{**state["steps"][0], "key": "", **change}]})
    with pytest.raises(ReplayError, match="takes what state"):
        env.restore({**state, "settings": None})
