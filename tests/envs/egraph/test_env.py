"""`rewritegym/EGraphRewrite-v0`: checkers, mask, rewards, fork, replay, and a policy that reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_checker import check_env as check_env_sb3

import rewritegym
from envs import GraphSpaceWrapper
from envs.egraph.env import EGraphRewriteEnv
from envs.graph_rewrite.wrappers import NODE_COLUMNS
from graph_rewrite.egraph import apply_rule, from_graph
from graph_rewrite.egraph.costs import costed
from graph_rewrite.egraph.extract import extract
from graph_rewrite.task.replay import ReplayError
from tests.envs.fakes import count_operators

MakeEGraphEnv = Callable[..., EGraphRewriteEnv]


@pytest.fixture
def make_egraph_env(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeEGraphEnv:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))

    def make(**options: Any) -> EGraphRewriteEnv:
        small = {"horizon": 6, "node_limit": 200, "max_nodes": 600, "max_edges": 2000}
        return EGraphRewriteEnv(tower, meter=count_operators, provider="cpu", **{**small, **options})

    return make


def walk(env: EGraphRewriteEnv, seed: int) -> list[Any]:
    env.reset(seed=seed)
    outcomes, over = [], False
    while not over:
        legal = np.flatnonzero(env.action_masks()[:-1])
        outcomes.append(env.step(int(env.np_random.choice(legal))))
        over = outcomes[-1][2] or outcomes[-1][3]
    return outcomes


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_checkers(make_egraph_env: MakeEGraphEnv, tower: str) -> None:
    env = gymnasium.make(
        rewritegym.EGRAPH_ENV_ID, model=tower, meter=count_operators, provider="cpu", max_nodes=600, max_edges=2000
    )
    check_env(env.unwrapped, skip_render_check=True)
    check_env_sb3(make_egraph_env(latency=True))


def test_observations_fit_the_space_and_episodes_are_reproducible(make_egraph_env: MakeEGraphEnv) -> None:
    env = make_egraph_env()
    outcomes = walk(env, 3)
    assert all(env.observation_space.contains(outcome[0]) for outcome in outcomes)
    assert data_equivalence(outcomes, walk(make_egraph_env(), 3), exact=True)
    tight = make_egraph_env(max_nodes=40, max_edges=50)
    assert all(tight.observation_space.contains(outcome[0]) for outcome in walk(tight, 3))


def test_rewards_add_up_to_what_the_extracted_graph_saves(make_egraph_env: MakeEGraphEnv) -> None:
    for seed in range(3):
        env = make_egraph_env()
        outcomes = walk(env, seed)
        first, last = outcomes[-1][4]["first_cost"], outcomes[-1][4]["cost"]
        assert sum(outcome[1] for outcome in outcomes) == pytest.approx(100 * (first - last) / first)
        assert last >= extract(costed(env.egraph).graph, "ilp").cost
        graph = env.extracted_graph()
        assert extract(costed(from_graph(graph)).graph, "tree").cost == last


def test_masked_rules_change_nothing(make_egraph_env: MakeEGraphEnv) -> None:
    env = make_egraph_env()
    env.reset(seed=0)
    mask = env.action_masks()
    assert mask[:-1].any()
    assert mask[-1]
    for k in np.flatnonzero(~mask):
        assert not apply_rule(env.egraph.fork(), env.rules[k]).changed


def test_ends(make_egraph_env: MakeEGraphEnv) -> None:
    env = make_egraph_env()
    with pytest.raises(gymnasium.error.ResetNeeded, match="reset"):
        env.step(0)
    env.reset()
    illegal = int(np.flatnonzero(~env.action_masks())[0])
    _, reward, terminated, _, info = env.step(illegal)
    assert (reward, terminated, info["illegal_action"]) == (-1.0, True, True)
    with pytest.raises(gymnasium.error.ResetNeeded, match="over"):
        env.step(env.no_op)
    env.reset()
    assert env.step(env.no_op)[1:4] == (0.0, True, False)
    full = make_egraph_env(node_limit=1)
    full.reset()
    assert full.step(int(np.flatnonzero(full.action_masks())[0]))[2]


def test_latency_at_the_end(make_egraph_env: MakeEGraphEnv) -> None:
    env = make_egraph_env(latency=True)
    outcomes = walk(env, 1)
    speedup = env.problem.measure(env.extracted_graph()).speedup
    assert outcomes[-1][4]["speedup"] == speedup
    assert outcomes[-1][1] == pytest.approx(100 * (1 - 1 / speedup))


def test_fork_and_restore(make_egraph_env: MakeEGraphEnv) -> None:
    env = make_egraph_env()
    env.reset(seed=5)
    env.step(int(np.flatnonzero(env.action_masks())[0]))
    twin, state = env.fork(), json.loads(json.dumps(env.state()))
    action = int(np.flatnonzero(env.action_masks())[1])
    size = twin.egraph.size
    first = env.step(action)
    assert twin.egraph.size == size
    assert data_equivalence(first, twin.step(action), exact=True)
    other = make_egraph_env()
    other.restore(state)
    assert data_equivalence(first, other.step(action), exact=True)
    with pytest.raises(ReplayError, match="NoSuchRule"):
        other.restore({**state, "steps": ["NoSuchRule"]})
    with pytest.raises(ReplayError, match="another model"):
        other.restore({**state, "model_hash": "x"})
    with pytest.raises(ReplayError, match="horizon"):
        make_egraph_env(horizon=3).restore(state)
    with pytest.raises(ReplayError, match="before the last of them"):
        other.restore({**state, "steps": [other.no_op, *state["steps"]]})


def test_it_is_a_graph_space_too(make_egraph_env: MakeEGraphEnv) -> None:
    inner = make_egraph_env()
    env = GraphSpaceWrapper(inner)
    graph, _ = env.reset(seed=0)
    assert env.observation_space.contains(graph)
    legal = np.flatnonzero(env.action_masks()[:-1])
    assert 0 < len(legal) < len(inner.rules)
    heads = graph.nodes[graph.nodes[:, NODE_COLUMNS.index("head")] == 1]
    assert heads[:, NODE_COLUMNS.index("candidate")].tolist() == (legal + 1).tolist()
    assert heads[:, NODE_COLUMNS.index("legal")].all()


def test_maskable_ppo_learns_on_it(make_egraph_env: MakeEGraphEnv) -> None:
    from agents.core.config import EncoderConfig
    from agents.ppo.policy import CandidatePolicy
    from envs.vocabulary import operator_vocabulary, rule_vocabulary

    sizes = {"operators": len(operator_vocabulary()), "rules": len(rule_vocabulary())}
    extractor = {**sizes, "config": EncoderConfig(hidden=8, layers=1, attention_heads=2)}
    arguments = {"head_layers": (8, 8), "features_extractor_kwargs": extractor}
    model = MaskablePPO(
        CandidatePolicy, make_egraph_env(), n_steps=8, batch_size=4, n_epochs=1, seed=0, policy_kwargs=arguments
    )
    before = [p.detach().clone() for p in model.policy.parameters()]
    model.learn(8)
    after = list(model.policy.parameters())
    assert any(not a.equal(b) for a, b in zip(before, after, strict=True))
    assert all(p.isfinite().all() for p in after)
