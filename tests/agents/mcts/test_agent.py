"""Tree search on graphs: the optimum by enumeration, budgets, replay, and a policy as its guide."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.base import Budget
from agents.core.config import Config, EncoderConfig, EnvConfig
from agents.mcts.agent import BY_MEANS, MCTSAgent
from agents.mcts.guide import PolicyGuide, UniformGuide
from agents.mcts.states import EnvState
from agents.ppo.acting import acting_env
from agents.ppo.checkpoint import load_checkpoint, save_checkpoint
from agents.ppo.description import CheckpointError, PolicyDescription
from agents.ppo.policy import CandidatePolicy
from agents.ppo.trainer import policy_arguments
from envs.observation import feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.toys import chain_problem, costs_of_all, graph_cost
from tests.envs.fakes import cost

OpenTower = Callable[..., Problem]
CONFIG = Config(env=EnvConfig(horizon=6), encoder=EncoderConfig(hidden=16, layers=1, attention_heads=2))
UNLIMITED = Budget(measurements=10_000, seconds=math.inf)


@pytest.fixture
def untrained(open_tower: OpenTower, tmp_path: Path) -> Path:
    """A checkpoint with random weights that does not know ComposeTransposes."""
    torch.manual_seed(0)
    env = acting_env(open_tower(), CONFIG.env)
    policy = CandidatePolicy(
        env.observation_space, env.action_space, ConstantSchedule(0.0), **policy_arguments(CONFIG)
    )  # fmt: skip
    weights = policy.weights()
    rules = tuple(name for name in rule_vocabulary() if name != "ComposeTransposes")
    keep = torch.tensor([name in rules for name in rule_vocabulary()])
    weights["features_extractor.rule.weight"] = weights["features_extractor.rule.weight"][keep]
    description = PolicyDescription(
        rules, operator_vocabulary(), feature_sizes(), CONFIG.encoder, (256, 64), CONFIG.env, best_speedup=1.25
    )
    save_checkpoint(tmp_path / "policy", description, weights)
    return tmp_path / "policy"


@pytest.mark.parametrize("selection", ["uct", "puct"])
@pytest.mark.parametrize("rollouts", ["random", "none"])
def test_with_enough_budget_it_finds_the_optimum(tmp_path: Path, selection: str, rollouts: str) -> None:
    problem = chain_problem(tmp_path, 2)
    everything = costs_of_all(2)
    agent = MCTSAgent(prior="uniform", selection=selection, rollouts=rollouts)
    result = agent.optimize(problem, UNLIMITED, seed=1)
    assert graph_cost(result.graph) == everything[0]
    assert result.verified
    # It ended by itself, when every graph was measured, each once.
    assert result.measurements == len(everything)
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


def test_it_crosses_a_valley_within_a_budget(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3, "both")
    result = MCTSAgent().optimize(problem, Budget(60, 60.0), seed=0)
    assert graph_cost(result.graph) < graph_cost(problem.model.original)


@pytest.mark.parametrize("budget", [Budget(7, 60.0), Budget(1, 60.0), Budget(100, 60.0, applications=11)])
def test_budgets_hold(open_tower: OpenTower, budget: Budget) -> None:
    result = MCTSAgent().optimize(open_tower(), budget, seed=0)
    assert result.measurements <= budget.measurements
    assert budget.applications is None or result.applications <= budget.applications


def test_a_seed_gives_the_same_search_again(open_tower: OpenTower) -> None:
    first, second = (MCTSAgent().optimize(open_tower(), Budget(20, 60.0), seed=5) for _ in range(2))
    assert first.actions == second.actions
    assert [point[1:] for point in first.trajectory] == [point[1:] for point in second.trajectory]


def test_graphs_that_fail_lead_nowhere_and_are_never_returned(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    problem.meter.failing = {"LeakyRelu": "crash"}  # type: ignore[attr-defined]
    result = MCTSAgent(rollouts="none").optimize(problem, UNLIMITED)
    assert result.is_original
    # Two forms per site work; from each of these 4 graphs, every site that may turn into LeakyRelu was tried once.
    assert result.measurements == 4 + 4


def test_without_a_checkpoint_it_says_so(open_tower: OpenTower) -> None:
    result = MCTSAgent().optimize(open_tower(), Budget(5, 60.0))
    assert f"{BY_MEANS}, as there is no checkpoint for this model" in result.message
    assert "uniform prior" in MCTSAgent(prior="uniform").optimize(open_tower(), Budget(5, 60.0)).message
    with pytest.raises(CheckpointError, match="no checkpoint comes with the project"):
        MCTSAgent(prior="policy").optimize(open_tower(), Budget(5, 60.0))


def test_a_policy_guides_it(open_tower: OpenTower, untrained: Path) -> None:
    problem = open_tower()
    result = MCTSAgent(untrained).optimize(problem, Budget(40, 60.0), seed=0)
    assert str(untrained) in result.message
    assert cost(result.graph) < cost(problem.model.original)
    assert result.measurements <= 40
    assert "ComposeTransposes" not in result.rule_histogram


@pytest.mark.parametrize("rollouts", ["random", "policy"])
def test_rollouts_with_a_policy(open_tower: OpenTower, untrained: Path, rollouts: str) -> None:
    problem = open_tower()
    result = MCTSAgent(untrained, rollouts=rollouts, selection="uct").optimize(problem, Budget(30, 60.0))
    assert cost(result.graph) < cost(problem.model.original)


def test_guides_offer_legal_actions_in_order(open_tower: OpenTower, untrained: Path) -> None:
    problem = open_tower(3, "both")
    env = acting_env(problem, CONFIG.env)
    state = EnvState(env, env.reset()[0])
    rng = np.random.default_rng(0)
    legal = {int(action) for action in np.flatnonzero(env.action_masks()[:-1])}
    uniform = UniformGuide().priors(state, rng)
    assert uniform.keys() == legal
    assert sum(uniform.values()) == pytest.approx(1.0)
    counts = [env.candidates[action].count for action in uniform if env.candidates[action].kind == "class"]
    assert counts == sorted(counts, reverse=True)
    guide = PolicyGuide(load_checkpoint(untrained), env)
    known = guide.priors(EnvState(env, env.reset()[0]), rng)
    assert known.keys() == {action for action in legal if env.candidates[action].rule != "ComposeTransposes"}
    assert sum(known.values()) == pytest.approx(1.0, abs=1e-5)
    assert list(known.values()) == sorted(known.values(), reverse=True)


def test_the_critic_is_scaled_to_what_training_found(open_tower: OpenTower, untrained: Path) -> None:
    problem = open_tower()
    env = acting_env(problem, CONFIG.env)
    guide = PolicyGuide(load_checkpoint(untrained), env)
    state = EnvState(env, env.reset()[0])
    # At the start it expects 1 - 1/1.25 of the latency to be saved, or nothing where it expects a loss.
    assert guide.gain(state, 1.0) in (0.0, pytest.approx(0.2))
    assert guide.gain(state, 1.0) >= 0.0


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rollouts": "many"}, "rollouts"), ({"depth": 0}, "depth"), ({"best_share": 2.0}, "best_share"),
     ({"prior": "strong"}, "prior"), ({"width": 0.0}, "width")],
)  # fmt: skip
def test_wrong_options_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MCTSAgent(**options)  # type: ignore[arg-type]
