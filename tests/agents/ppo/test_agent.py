"""The trained agent at work, on a meter without noise and with a policy that was never trained."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.base import Budget
from agents.core.config import Config, EncoderConfig, EnvConfig
from agents.ppo.agent import PPOAgent, RolloutOptions, acting_env, untrained_policy
from agents.ppo.checkpoint import CheckpointError, PolicyDescription, load_checkpoint, save_checkpoint
from agents.ppo.policy import CandidatePolicy
from agents.ppo.trainer import policy_arguments
from envs.observation import feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import cost

OpenTower = Callable[..., Problem]
CONFIG = Config(env=EnvConfig(horizon=6), encoder=EncoderConfig(hidden=16, layers=1, attention_heads=2))


@pytest.fixture
def untrained(open_tower: OpenTower, tmp_path: Path) -> Path:
    """A checkpoint with random weights that knows all rules but one."""
    torch.manual_seed(0)
    env = acting_env(open_tower(), CONFIG.env)
    policy = CandidatePolicy(
        env.observation_space, env.action_space, ConstantSchedule(0.0), **policy_arguments(CONFIG)
    )  # fmt: skip
    weights = policy.weights()
    rules = tuple(name for name in rule_vocabulary() if name != "ComposeTransposes")
    keep = [name in rules for name in rule_vocabulary()]
    weights["features_extractor.rule.weight"] = weights["features_extractor.rule.weight"][torch.tensor(keep)]
    description = PolicyDescription(
        rules, operator_vocabulary(), feature_sizes(), CONFIG.encoder, (256, 64), CONFIG.env
    )  # fmt: skip
    save_checkpoint(tmp_path / "policy", description, weights)
    return tmp_path / "policy"


def test_the_budget_holds_and_the_result_is_checked(open_tower: OpenTower, untrained: Path) -> None:
    problem = open_tower()
    result = PPOAgent(untrained).optimize(problem, Budget(measurements=40, seconds=60.0), seed=0)
    assert 1 < result.measurements <= 40
    assert result.verified
    assert cost(result.graph) < cost(problem.model.original)


@pytest.mark.parametrize("applications", [0, 1, 17])
def test_replayed_steps_count_as_applications_too(open_tower: OpenTower, untrained: Path, applications: int) -> None:
    budget = Budget(measurements=40, seconds=60.0, applications=applications)
    result = PPOAgent(untrained).optimize(open_tower(), budget, seed=0)
    assert result.applications == applications


def test_a_seed_gives_the_same_search_again(open_tower: OpenTower, untrained: Path) -> None:
    first, second = (
        PPOAgent(untrained).optimize(open_tower(), Budget(measurements=25, seconds=60.0), seed=3) for _ in range(2)
    )
    assert first.actions == second.actions
    assert [point[1:] for point in first.trajectory] == [point[1:] for point in second.trajectory]


def test_without_sampling_there_is_one_rollout(open_tower: OpenTower, untrained: Path) -> None:
    result = PPOAgent(untrained, RolloutOptions(sampled=False)).optimize(
        open_tower(), Budget(measurements=100, seconds=60.0)
    )
    assert result.measurements <= CONFIG.env.horizon


def test_rules_that_the_policy_never_saw_are_left_alone(open_tower: OpenTower, untrained: Path) -> None:
    problem = open_tower()
    names = {candidate.rule for candidate in problem.rewriter.candidates(problem.model.graph)}
    assert "ComposeTransposes" in names
    result = PPOAgent(untrained).optimize(problem, Budget(measurements=60, seconds=60.0), seed=1)
    assert result.actions
    assert "ComposeTransposes" not in {action.rule for action in result.actions}


def test_a_policy_of_other_features_is_refused(open_tower: OpenTower, untrained: Path) -> None:
    text = (untrained / "policy.json").read_text()
    (untrained / "policy.json").write_text(text.replace('"features": {', '"features": {"colour": 3, '))
    with pytest.raises(CheckpointError, match="other observation features"):
        PPOAgent(load_checkpoint(untrained)).optimize(open_tower(), Budget(measurements=5, seconds=10.0))


def test_a_model_without_a_shipped_checkpoint_says_what_to_do(open_tower: OpenTower) -> None:
    with pytest.raises(CheckpointError, match=r"train one with train\.py"):
        PPOAgent().optimize(open_tower(), Budget(measurements=5, seconds=10.0))


def test_training_keeps_the_limits(tmp_path: Path, open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph beyond a limit ends an episode like one that cannot be run, in training as in search."""
    import numpy as np

    import agents.ppo.trainer as trainer
    from agents.ppo.trainer import TrainingOptions, env_arguments
    from envs import GraphRewriteEnv
    from graph_rewrite.ir.graph import Graph
    from graph_rewrite.task.limits import ResultLimits
    from tests.envs.fakes import count_operators

    class NothingChanges(ResultLimits):
        def violation(self, original: Graph, graph: Graph) -> str:
            return "" if graph.hash == original.hash else "it is another graph"

    monkeypatch.setattr(trainer, "quick_meter", count_operators)
    uri = open_tower().model.uri
    for limits, fails in ((None, False), (NothingChanges(), True)):
        arguments = env_arguments(TrainingOptions(uri, provider="cpu", limits=limits), CONFIG)
        env = GraphRewriteEnv(**{**arguments, "feedback_every": 1})
        env.reset(seed=0)
        action = int(np.flatnonzero(env.action_masks()[:-1])[0])
        *_, info = env.step(action)
        assert bool(info["failure"]) == fails


def test_an_untrained_policy_has_the_weights_of_its_seed_alone(open_tower: OpenTower, untrained: Path) -> None:
    env, checkpoint = acting_env(open_tower(), CONFIG.env), load_checkpoint(untrained)
    first, same, other = (untrained_policy(checkpoint, env, seed).weights() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)
    before = torch.random.get_rng_state()
    untrained_policy(checkpoint, env, 2)
    assert torch.equal(before, torch.random.get_rng_state())


def test_an_untrained_policy_searches_as_a_control(
    open_tower: OpenTower, untrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("weights of the checkpoint are loaded")

    monkeypatch.setattr("agents.ppo.agent.restore_policy", never)
    budget = Budget(measurements=20, seconds=60.0)
    result = PPOAgent(untrained, RolloutOptions(untrained=True)).optimize(open_tower(), budget, seed=0)
    assert result.verified
    assert result.measurements > 1
