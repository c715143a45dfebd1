"""Training: what it reports, what it keeps, and how it goes on after it was stopped."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from onnx import TensorProto
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
from onnx.numpy_helper import from_array

from agents.core.base import Budget
from agents.core.config import Config, EncoderConfig, EnvConfig, PPOConfig, TrainingConfig, load_config
from agents.ppo import environments
from agents.ppo.agent import PPOAgent
from agents.ppo.best_path import BestPath
from agents.ppo.checkpoint import load_checkpoint
from agents.ppo.description import CheckpointError
from agents.ppo.environments import TrainingOptions, env_arguments, make_env, quick_meter
from agents.ppo.progress import TrainingProgress
from agents.ppo.trainer import Trainer
from agents.ppo.training_state import FILE, load_state
from envs import GraphRewriteEnv
from envs.feature_sets import feature_widths
from envs.graph_rewrite.footprint import footprint
from envs.vocabulary import NO_OP, rule_vocabulary
from graph_rewrite.latency import Deployment
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import count_operators, problem_of

OpenTower = Callable[..., Problem]
CONFIG = Config(
    env=EnvConfig(horizon=16, granularity="class", max_candidates=128, max_nodes=1024, max_edges=2048),
    encoder=EncoderConfig(hidden=16, layers=1, attention_heads=2),
    ppo=PPOConfig(n_steps=16, batch_size=8, n_epochs=1),
    training=TrainingConfig(total_timesteps=48, restarts=0.5, imitation_steps=1, episode_steps=4),
)


@pytest.fixture
def options(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> TrainingOptions:
    monkeypatch.setattr(environments, "quick_meter", count_operators)
    return TrainingOptions(open_tower().model.uri, provider="cpu")


def train(trainer: Trainer) -> Trainer:
    try:
        trainer.run()
    finally:
        trainer.close()
    return trainer


def test_a_resumed_training_goes_on_with_scale_path_and_curve(options: TrainingOptions, tmp_path: Path) -> None:
    first = train(Trainer(options, CONFIG, tmp_path / "first"))
    assert first.progress.best_speedup > 1.0
    longer = replace(CONFIG, training=replace(CONFIG.training, total_timesteps=64))
    second = Trainer(options, longer, tmp_path / "second", load_checkpoint(tmp_path / "first"))
    # VecNormalize divides rewards by it.
    assert second.env.ret_rms.var == first.env.ret_rms.var
    assert second.env.ret_rms.count == first.env.ret_rms.count > 40
    assert second.env.env_method("record") == first.env.env_method("record")
    assert second.progress.best_speedup == first.progress.best_speedup
    assert second.progress.curve == first.progress.curve != []
    train(second)
    assert second.progress.curve[: len(first.progress.curve)] == first.progress.curve
    assert len(second.progress.curve) > len(first.progress.curve)
    assert second.progress.curve[-1][0] > 48
    assert second.progress.best_speedup >= first.progress.best_speedup
    assert second.env.ret_rms.count > first.env.ret_rms.count
    state = load_state(tmp_path / "second")
    assert state is not None
    assert state.progress == second.progress


def test_of_another_model_only_the_policy_goes_on(
    options: TrainingOptions, tmp_path: Path, open_tower: OpenTower
) -> None:
    train(Trainer(options, CONFIG, tmp_path / "first"))
    other = replace(options, uri=open_tower(2).model.uri)
    second = Trainer(other, CONFIG, tmp_path / "second", load_checkpoint(tmp_path / "first"))
    assert second.env.env_method("record") == [None]
    assert second.progress == TrainingProgress()
    assert second.env.ret_rms.count < 1
    train(second)
    assert second.progress.timesteps >= CONFIG.training.total_timesteps  # none of them was taken on the first model


def test_a_damaged_state_is_refused(options: TrainingOptions, tmp_path: Path) -> None:
    train(Trainer(options, CONFIG, tmp_path / "first"))
    for text in ("{", "[]", '{"progress": 3}', '{"progress": {}, "reward_scale": {"mean": "x"}, "paths": []}'):
        (tmp_path / "first" / FILE).write_text(text)
        with pytest.raises(CheckpointError, match=r"training\.json: no state of a training"):
            Trainer(options, CONFIG, tmp_path / "second", load_checkpoint(tmp_path / "first")).close()
    (tmp_path / "first" / FILE).unlink()
    Trainer(options, CONFIG, tmp_path / "second", load_checkpoint(tmp_path / "first")).close()


def test_a_checkpoint_names_the_rules_that_training_offered(options: TrainingOptions, tmp_path: Path) -> None:
    train(Trainer(options, CONFIG, tmp_path / "first"))
    described = load_checkpoint(tmp_path / "first").description
    assert described.offered is not None
    assert {"DropIdentity", "ComposeTransposes", rule_vocabulary()[NO_OP]} <= set(described.offered)
    assert "Winograd4x4" in set(described.rules) - set(described.offered)


def test_a_policy_of_the_full_set_is_trained_and_acts(
    options: TrainingOptions, tmp_path: Path, open_tower: OpenTower
) -> None:
    full = replace(CONFIG, env=replace(CONFIG.env, features="full"))
    train(Trainer(options, full, tmp_path))
    checkpoint = load_checkpoint(tmp_path)
    assert checkpoint.description.env.features == "full"
    assert dict(checkpoint.description.features) == feature_widths("full")
    result = PPOAgent(checkpoint).optimize(open_tower(), Budget(measurements=10, seconds=60.0))
    assert result.measurements == 10
    plain = replace(checkpoint.description, env=CONFIG.env)
    with pytest.raises(CheckpointError, match="other observation features"):
        PPOAgent(replace(checkpoint, description=plain)).optimize(open_tower(), Budget(measurements=5, seconds=60.0))


def test_rewards_of_restarted_episodes_are_reported_apart() -> None:
    progress = TrainingProgress()
    for reward, restarted in ((4.0, False), (100.0, True), (2.0, False), (-100.0, True)):
        progress.finish_episode(reward, restarted)
    assert progress.episodes == 4
    assert progress.mean_reward == 3.0
    assert [mean for _, mean, _ in progress.curve] == [4.0, 4.0, 3.0, 3.0]


def test_averages_of_stable_baselines3_are_of_episodes_from_the_start(options: TrainingOptions, tmp_path: Path) -> None:
    trainer = Trainer(options, CONFIG, tmp_path)
    train(trainer)
    averaged = [info["r"] for info in trainer.ppo.ep_info_buffer or ()]
    assert 0 < len(averaged) < min(20, trainer.progress.episodes)
    assert averaged == pytest.approx(trainer.progress.recent, abs=1e-5)


def test_evaluation_begins_with_the_original(options: TrainingOptions) -> None:
    always = replace(CONFIG, training=replace(CONFIG.training, restarts=1.0))

    def is_restarting(env: gymnasium.Env[object, object]) -> bool:
        while isinstance(env, gymnasium.Wrapper):
            if isinstance(env, BestPath):
                return True
            env = env.env
        return False

    assert is_restarting(make_env(options, always)())
    assert not is_restarting(make_env(options, always, evaluation=True)())


def test_trainings_share_no_measurements(open_tower: OpenTower, tmp_path: Path) -> None:
    model = open_tower().model
    plain = TrainingOptions(model.uri)
    paths = []
    for options in (plain, *(replace(plain, measurements=tmp_path / f"{seed}.sqlite3") for seed in (0, 1))):
        meter = env_arguments(options, CONFIG)["meter"]
        made = meter(model, Deployment(), tmp_path)
        paths.append(None if made._cache is None else made._cache.path)
    assert paths == [None, tmp_path / "0.sqlite3", tmp_path / "1.sqlite3"]
    assert isinstance(meter, partial)
    assert meter.func is quick_meter


def test_paths_of_known_results_fit_into_training() -> None:
    """NASNet-A's best known result takes 106 actions, and a Winograd step may insert two thousand nodes."""
    for model in ("nasnet-a", "resnet18"):
        config = load_config(model)
        assert config.env.horizon > 106
        assert config.training.episode_steps < config.env.horizon


def test_winograd_of_every_convolution_cuts_no_candidates() -> None:
    """Ten convolutions of one class: Winograd's algorithm in tiles of 4x4 inserts some 250 nodes for each."""
    rng = np.random.default_rng(0)
    weights = [from_array(rng.standard_normal((64, 64, 3, 3)).astype(np.float32), f"w{i}") for i in range(10)]
    nodes = [
        make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], f"conv{i}", pads=[1, 1, 1, 1], kernel_shape=[3, 3])
        for i in range(10)
    ]
    values = [make_tensor_value_info(name, TensorProto.FLOAT, (1, 64, 28, 28)) for name in ("x0", "x10")]
    graph = make_graph(nodes, "convolutions", values[:1], values[1:], weights)
    problem = problem_of(
        make_model(graph, opset_imports=[make_opsetid("", 23)], ir_version=10), granularity="class", deployment=False
    )
    env = load_config("resnet18").env
    rewriting = GraphRewriteEnv(
        problem=problem, max_candidates=env.max_candidates, max_nodes=env.max_nodes, max_edges=env.max_edges
    )
    _, info = rewriting.reset()
    assert info["candidates_cut"] == 0
    (winograd,) = (candidate for candidate in rewriting.candidates if candidate.rule == "Winograd4x4")
    assert footprint(winograd).grown * winograd.count > 2048
