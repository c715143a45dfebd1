"""The trained agent at work, on a meter without noise and with a policy that was never trained."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.base import Budget, Search
from agents.core.config import Config, EncoderConfig, EnvConfig
from agents.core.paths import checkpoints
from agents.ppo.acting import acting_env, restore_policy, untrained_policy
from agents.ppo.agent import PPOAgent, _Actor
from agents.ppo.checkpoint import load_checkpoint, save_checkpoint
from agents.ppo.description import UNIVERSAL, CheckpointError, PolicyDescription, known_rules, shipped_checkpoint
from agents.ppo.options import RolloutOptions
from agents.ppo.policy import CandidatePolicy
from agents.ppo.threads import one_thread
from agents.ppo.trainer import policy_arguments
from envs import GraphRewriteEnv
from envs.observation import GLOBAL_FEATURES, feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite import Graph
from graph_rewrite.latency import Effort, Latency
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


def test_no_time_gives_the_original(open_tower: OpenTower, untrained: Path) -> None:
    result = PPOAgent(untrained).optimize(open_tower(), Budget(measurements=40, seconds=0.0))
    assert result.is_original


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
    graphs = [step[1] for step in result.trajectory]
    assert graphs == sorted(graphs)
    assert result.applications == result.measurements - 1


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


def test_on_a_model_without_a_policy_an_untrained_one_acts_and_the_message_says_so(open_tower: OpenTower) -> None:
    problem = open_tower()
    result = PPOAgent().optimize(problem, Budget(measurements=30, seconds=60.0))
    assert "an untrained policy" in result.message
    assert re.search(r"train one with train\.py --model .*tower3\.onnx", result.message)
    assert result.verified
    assert cost(result.graph) < cost(problem.model.original)


def test_a_rule_that_training_never_offered_is_left_alone(open_tower: OpenTower, untrained: Path) -> None:
    """Although the vocabulary has it, its embedding is random."""
    known = load_checkpoint(untrained).description.rules
    values = json.loads((untrained / "policy.json").read_text())
    values["offered"] = [rule for rule in known if rule != "DropIdentity"]
    (untrained / "policy.json").write_text(json.dumps(values))
    result = PPOAgent(untrained).optimize(open_tower(), Budget(measurements=60, seconds=60.0), seed=1)
    assert result.actions
    assert "DropIdentity" not in {action.rule for action in result.actions}


@pytest.mark.parametrize("feedback_every", [1, 3])
def test_observations_in_acting_are_those_of_training(open_tower: OpenTower, feedback_every: int) -> None:
    problem = open_tower()
    config = EnvConfig(horizon=6, feedback_every=feedback_every)
    acting_one = acting_env(problem, config)
    limits = acting_one.observer.limits
    training = GraphRewriteEnv(
        problem=problem, horizon=6, feedback_every=feedback_every, max_candidates=limits.max_candidates,
        max_nodes=limits.max_nodes, max_edges=limits.max_edges,
    )  # fmt: skip
    mine, wanted = acting_one.reset()[0], training.reset()[0]
    rng, speedups = np.random.default_rng(0), set()
    for _ in range(5):
        assert all(np.array_equal(mine[name], wanted[name]) for name in wanted)
        speedups.add(float(wanted["globals"][GLOBAL_FEATURES.index("speedup")]))
        action = int(rng.choice(np.flatnonzero(training.action_masks()[:-1])))
        wanted, *_ = training.step(action)
        acting_one.step(action)
        mine = acting_one.give_feedback(problem.measure(acting_one.graph))
    assert len(speedups) > 1


def test_a_lucky_graph_does_not_become_the_base(
    open_tower: OpenTower, untrained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Screened once, every rewrite seems to gain; timed in turn, none does. So all rollouts begin at the original."""
    problem = open_tower()
    plain, compared = problem.measure, []

    def lucky(graph: Graph, effort: Effort = "screen") -> Latency:
        speedup = 1.0 if graph.hash == problem.model.graph.hash else 1.2
        return replace(plain(graph, effort), speedup=speedup, ci95=(speedup - 0.3, speedup + 0.3))

    def sober(reference: Graph, candidate: Graph) -> tuple[Latency, float]:
        compared.append(candidate.hash)
        return Latency(1.0, 1.0, (0.99, 1.01), 9, 1.0), 0.0

    monkeypatch.setattr(problem, "measure", lucky)
    monkeypatch.setattr(problem, "compare", sober)
    search = Search(problem, Budget(measurements=25, seconds=60.0))
    env = acting_env(problem, CONFIG.env)
    policy = restore_policy(load_checkpoint(untrained), env)
    known = np.ones(len(rule_vocabulary()), dtype=bool)
    with search.running():
        actor = _Actor(search, env, policy, known, RolloutOptions())
        actor.roll_out_all(np.random.default_rng(0))
    assert compared
    assert actor._base.actions == ()


OF_MODELS = sorted(path.name for path in checkpoints().iterdir() if path.is_dir() and path.name != UNIVERSAL)


@pytest.mark.parametrize("name", OF_MODELS)
def test_checkpoints_that_ship_act_and_say_what_they_know(open_tower: OpenTower, name: str) -> None:
    checkpoint = load_checkpoint(shipped_checkpoint(f"zoo://{name}"))
    described = checkpoint.description
    assert described.offered is not None
    assert set(described.offered) < set(described.rules)
    assert 20 < known_rules(described, rule_vocabulary()).sum() < 200
    result = PPOAgent(checkpoint).optimize(open_tower(), Budget(measurements=6, seconds=60.0))
    assert {action.rule for action in result.actions} <= set(described.offered)
    assert described.best_speedup > 1.0


def test_training_keeps_the_limits(tmp_path: Path, open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph beyond a limit ends an episode like one that cannot be run, in training as in search."""
    import agents.ppo.environments as trainer
    from agents.ppo.environments import TrainingOptions, env_arguments
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


@pytest.fixture
def two_threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of threads as PyTorch is told of them, the caller's two first."""
    told = [2]
    monkeypatch.setattr(torch, "get_num_threads", lambda: told[-1])
    monkeypatch.setattr(torch, "set_num_threads", told.append)
    return told


def test_the_callers_threads_hold_again_after_an_exception(two_threads: list[int]) -> None:
    with pytest.raises(KeyError, match="1"), one_thread():
        raise KeyError(torch.get_num_threads())
    assert two_threads == [2, 1, 2]


def test_a_rollout_computes_with_one_thread(open_tower: OpenTower, untrained: Path, two_threads: list[int]) -> None:
    seen: set[int] = set()

    def progress(search: Search) -> None:
        seen.add(torch.get_num_threads())

    PPOAgent(untrained).optimize(open_tower(), Budget(measurements=5, seconds=60.0), progress=progress)
    assert seen == {1}
    assert torch.get_num_threads() == 2
