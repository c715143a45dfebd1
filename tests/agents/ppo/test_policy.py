"""The policy: equivariant in the candidates, blind to padding, of any size, restored bit by bit from a checkpoint."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.config import Config, EncoderConfig
from agents.ppo.acting import acting_env, restore_policy
from agents.ppo.checkpoint import load_checkpoint, save_checkpoint
from agents.ppo.description import PolicyDescription
from agents.ppo.policy import CandidatePolicy
from agents.ppo.trainer import policy_arguments
from envs import GraphRewriteEnv
from envs.observation import feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.task.problem import Problem

CONFIG = Config(encoder=EncoderConfig(hidden=16, layers=2, attention_heads=2))
OpenTower = Callable[..., Problem]


def make_policy(env: GraphRewriteEnv, config: Config = CONFIG) -> CandidatePolicy:
    torch.manual_seed(0)
    policy = CandidatePolicy(
        env.observation_space, env.action_space, ConstantSchedule(1e-3), **policy_arguments(config)
    )
    torch.nn.init.normal_(policy.heads.score.weight)
    return policy


def make_env(problem: Problem, limit: int = 128) -> GraphRewriteEnv:
    return GraphRewriteEnv(problem=problem, max_candidates=limit, max_nodes=8 * limit, max_edges=16 * limit, horizon=4)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_scores_do_not_depend_on_padding(open_tower: OpenTower, bidirectional: bool, pooling: str) -> None:
    problem = open_tower()
    small, large = make_env(problem, 128), make_env(problem, 200)
    encoder = EncoderConfig(hidden=16, layers=2, attention_heads=2, bidirectional=bidirectional, pooling=pooling)
    config = Config(encoder=encoder)
    policy, other = make_policy(small, config), make_policy(large, config)
    other.load_weights(policy.weights())
    scores = policy.action_probabilities(small.reset()[0], small.action_masks())
    wide = other.action_probabilities(large.reset()[0], large.action_masks())
    count = len(small.candidates)
    assert torch.allclose(scores[:count], wide[:count], atol=1e-6)
    assert torch.allclose(scores[-1], wide[-1], atol=1e-6)


def test_scores_follow_a_permutation_of_the_candidates(open_tower: OpenTower) -> None:
    env = make_env(open_tower())
    policy = make_policy(env)
    observation, mask = env.reset()[0], env.action_masks()
    count = len(env.candidates)
    order = np.random.default_rng(0).permutation(count)
    shuffled = {key: value.copy() for key, value in observation.items()}
    shuffled["candidate_rule"][:count] = observation["candidate_rule"][order]
    shuffled["candidate_features"][:count] = observation["candidate_features"][order]
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    owner = observation["node_candidate"]
    region = owner > 0
    shuffled["node_candidate"][region] = place[owner[region] - 1] + 1
    mask2 = mask.copy()
    mask2[:count] = mask[order]
    before, after = policy.action_probabilities(observation, mask), policy.action_probabilities(shuffled, mask2)
    assert torch.allclose(after[:count], before[:count][torch.as_tensor(order)], atol=1e-6)


def test_a_batch_gives_what_single_observations_give(open_tower: OpenTower) -> None:
    env = make_env(open_tower())
    policy = make_policy(env)
    policy.set_training_mode(False)
    first = env.reset()[0]
    second = env.step(int(np.flatnonzero(env.action_masks())[0]))[0]
    batch = {key: torch.as_tensor(np.stack([first[key], second[key]])) for key in first}
    with torch.no_grad():
        together = policy.features_extractor({k: v.float() for k, v in batch.items()})
        for i in range(2):
            alone = policy.features_extractor({k: v[i : i + 1].float() for k, v in batch.items()})
            assert torch.allclose(together[i], alone[0], atol=1e-5)


def test_masked_actions_have_no_probability(open_tower: OpenTower) -> None:
    env = make_env(open_tower())
    policy = make_policy(env)
    observation, mask = env.reset()[0], env.action_masks()
    mask[3:10] = False
    probabilities = policy.action_probabilities(observation, mask)
    assert probabilities[~torch.as_tensor(mask)].abs().max() == 0
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-5)


def test_a_restored_policy_acts_the_same_on_a_deeper_model(open_tower: OpenTower, tmp_path: Path) -> None:
    env = make_env(open_tower(2))
    policy = make_policy(env)
    description = PolicyDescription(
        rule_vocabulary(), operator_vocabulary(), feature_sizes(), CONFIG.encoder, (256, 64), CONFIG.env
    )
    save_checkpoint(tmp_path / "c", description, policy.weights())
    deeper = acting_env(open_tower(6), CONFIG.env)
    restored = restore_policy(load_checkpoint(tmp_path / "c"), deeper)
    direct = make_policy(deeper)
    direct.load_weights(policy.weights())
    observation, mask = deeper.reset()[0], deeper.action_masks()
    assert torch.equal(restored.action_probabilities(observation, mask), direct.action_probabilities(observation, mask))
