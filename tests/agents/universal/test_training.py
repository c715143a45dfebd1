"""Training on windows: what it learns, that it can be repeated, stopped and resumed, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from agents.core.config import ConfigError, EnvConfig
from agents.effects.samples import StateSample, effect, samples_of
from agents.ppo.acting import restore_policy
from agents.ppo.checkpoint import load_checkpoint
from agents.ppo.description import CheckpointError
from agents.ppo.progress import TrainingProgress
from agents.ppo.training_state import load_state
from agents.universal.prior import restore_window_policy
from agents.universal.rollouts import (
    STOP,
    best_shares,
    effect_choices,
    policy_choices,
    random_shares,
    saved_shares,
)
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from envs import GraphRewriteEnv
from envs.window import WindowTable
from tests.agents.toys import chain_problem
from tests.agents.universal.planted_table import CONFIG, FAMILIES, saves


def windows_of(table: WindowTable) -> list[int]:
    return [number for number, one in enumerate(table.windows) if one.family in FAMILIES]


def test_the_planted_chains_are_found(trained: Path, table: WindowTable) -> None:
    windows = windows_of(table)
    policy = restore_window_policy(load_checkpoint(trained))
    saved = saved_shares(table, windows, policy_choices(policy, table, windows))
    best = best_shares(table, windows)
    assert best.mean() > 0.05
    assert saved.mean() > 0.9 * best.mean() > random_shares(table, windows).mean()
    # Where no step saves anything, it stops at once.
    assert (saved[best == 0.0] == 0.0).mean() > 0.9


def test_effects_are_learnt_beside_it(trained: Path, table: WindowTable) -> None:
    from agents.universal.observations import unmeasured
    from agents.universal.prior import opinions

    policy = restore_window_policy(load_checkpoint(trained))
    samples = list(samples_of(table, windows_of(table)))
    seen = opinions(policy, [unmeasured(sample.observation, sample.depth) for sample in samples])
    told = np.concatenate([one.effects for one in seen])
    assert np.corrcoef(told, np.concatenate([sample.effects for sample in samples]))[0, 1] > 0.8


def test_a_checkpoint_says_how_it_was_trained(trained: Path, table: WindowTable) -> None:
    described = load_checkpoint(trained).description
    assert (described.trained_in, described.env.features, described.timesteps) == ("windows", "full", 64)
    assert set(described.left_out) == {window.family for window in table.windows} - set(FAMILIES)
    assert described.trained_on == f"{len(windows_of(table))} windows of 4 architectures in planted"
    assert described.offered is not None
    offered = {rule for rule in described.offered if rule != "<no-op>"}
    assert offered < set(table.rules)
    assert {saves(rule) > 0 for rule in offered} == {True, False}


def weights_after(options: WindowTrainingOptions, folder: Path) -> dict[str, torch.Tensor]:
    config = replace(
        CONFIG, training=replace(CONFIG.training, total_timesteps=32), pretraining=replace(CONFIG.pretraining, epochs=1)
    )  # fmt: skip
    trainer = WindowTrainer(options, config, folder)
    trainer.run()
    trainer.close()
    return dict(load_checkpoint(folder).weights)


def test_a_seed_gives_the_same_policy_again(options: WindowTrainingOptions, tmp_path: Path) -> None:
    one, other = (weights_after(options, tmp_path / name) for name in "ab")
    assert all(torch.equal(one[name], other[name]) for name in one)
    third = weights_after(replace(options, seed=1), tmp_path / "c")
    assert not torch.equal(one["effects.0.weight"], third["effects.0.weight"])


def test_an_interrupted_training_goes_on(options: WindowTrainingOptions, tmp_path: Path) -> None:
    """In the middle of imitation, then in the middle of PPO."""
    config = replace(CONFIG, pretraining=replace(CONFIG.pretraining, epochs=3))

    def interrupted(progress: TrainingProgress) -> None:
        if progress.epochs == epochs and progress.timesteps >= steps:
            raise KeyboardInterrupt

    epochs, steps = 2, 0
    first = WindowTrainer(options, config, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.run(interrupted)
    assert (first.progress.epochs, first.ppo.num_timesteps) == (2, 0)

    epochs, steps = 3, 40
    second = WindowTrainer(options, config, tmp_path, load_checkpoint(tmp_path))
    assert second.progress.epochs == 2
    with pytest.raises(KeyboardInterrupt):
        second.run(interrupted)
    assert second.progress.epochs == 3
    third = WindowTrainer(options, config, tmp_path, load_checkpoint(tmp_path))
    assert 40 <= third.ppo.num_timesteps < 64
    weights = {name: tensor.clone() for name, tensor in third.policy.weights().items()}
    assert all(torch.equal(weights[name], tensor) for name, tensor in second.policy.weights().items())
    third.run()
    assert third.ppo.num_timesteps >= 64
    state = load_state(tmp_path)
    assert state is not None
    assert state.progress == third.progress
    for trainer in (first, second, third):
        trainer.close()


def test_on_another_table_the_policy_begins_a_training_anew(
    options: WindowTrainingOptions, trained: Path, tmp_path: Path
) -> None:
    before, known = load_checkpoint(trained), FAMILIES[0]
    another = replace(options, name="another", without=(*options.without[1:], known))
    trainer = WindowTrainer(another, CONFIG, tmp_path, before)
    assert (trainer.progress, trainer.ppo.num_timesteps) == (TrainingProgress(), 0)
    assert torch.equal(trainer.policy.weights()["effects.0.weight"], before.weights["effects.0.weight"])
    trainer.progress.epochs = 1
    trainer.save()
    trainer.close()
    described = load_checkpoint(tmp_path).description
    assert described.trained_on.endswith(f"in another, after {before.description.trained_on}")
    assert described.left_out == before.description.left_out[1:]  # one was learnt now, and one before
    assert {*(described.offered or ())} >= {*(before.description.offered or ())}

    again = WindowTrainer(another, CONFIG, tmp_path / "again", load_checkpoint(tmp_path))
    assert again.progress.epochs == 1
    assert again.describe() == described
    again.close()


def test_time_ends_a_training_and_the_checkpoint_is_there(options: WindowTrainingOptions, tmp_path: Path) -> None:
    config = replace(CONFIG, training=replace(CONFIG.training, seconds=0.0))
    trainer = WindowTrainer(options, config, tmp_path)
    assert trainer.run().timesteps == 0
    trainer.close()
    assert load_checkpoint(tmp_path).description.trained_in == "windows"


def test_policies_of_another_kind_are_refused(
    options: WindowTrainingOptions, trained: Path, tmp_path: Path
) -> None:  # fmt: skip
    of_windows, of_a_model = load_checkpoint(trained), load_checkpoint("checkpoints/bert-tiny")
    env = GraphRewriteEnv(problem=chain_problem(tmp_path), features="full")
    with pytest.raises(CheckpointError, match=r"trained on windows.*train\.py --whole-graph"):
        restore_policy(of_windows, env)
    for refused in (
        lambda: restore_window_policy(of_a_model),
        lambda: WindowTrainer(options, CONFIG, tmp_path, of_a_model),
    ):
        with pytest.raises(CheckpointError, match=r"zoo://bert-tiny.*, not on windows: .*train\.py --windows"):
            refused()
    other = replace(of_windows, weights={**of_windows.weights, "effects.0.bias": torch.zeros(3)})
    with pytest.raises(CheckpointError, match="do not fit its description"):
        restore_window_policy(other)
    features = replace(of_windows.description, features={"node": 3})
    with pytest.raises(CheckpointError, match="other observation features"):
        restore_window_policy(replace(of_windows, description=features))


def test_a_table_has_no_plain_features(options: WindowTrainingOptions, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"env\.features=full"):
        WindowTrainer(options, replace(CONFIG, env=EnvConfig(horizon=4)), tmp_path)


class Oracle:
    """A model of effects that knows what each step saves, and the best chain that begins with it."""

    def __init__(self, table: WindowTable) -> None:
        self._table, self._best = table, table.best_shares()

    def predict_both(self, samples: Sequence[StateSample]) -> tuple[np.ndarray, np.ndarray]:
        arrays, rows = self._table.arrays, []
        for sample in samples:
            steps = slice(sample.first_step, sample.first_step + len(sample.effects))
            after, failed = arrays["step_next"][steps], arrays["step_failed"][steps]
            for number, lost in zip(after.tolist(), failed.tolist(), strict=True):
                leads = (arrays["state_share"][number], self._best[number])
                rows.append([-5.0 if lost else float(effect(sample.share, share)) for share in leads])
        return np.array(rows), np.zeros((len(rows), 2))


def test_a_model_of_effects_that_knows_everything_finds_the_best_chains(table: WindowTable) -> None:
    windows = windows_of(table)
    choices = effect_choices(Oracle(table), table, list(samples_of(table, windows)))
    saved = saved_shares(table, windows, choices)
    assert saved == pytest.approx(best_shares(table, windows), abs=1e-6)
    assert saved.max() > 0.3
    # What follows a loss that leads nowhere is left out.
    roots = table.arrays["window_root"][windows]
    assert (choices[roots[saved <= 0.0]] == STOP).all()


def test_random_actions_save_the_mean_over_all_of_them(table: WindowTable) -> None:
    arrays = table.arrays

    def mean(state: int) -> float:
        steps = range(arrays["step_start"][state], arrays["step_start"][state + 1])
        ends = [float(arrays["state_share"][state]), *(mean(int(arrays["step_next"][step])) for step in steps)]
        return sum(ends) / len(ends)

    windows = windows_of(table)
    expected = [mean(int(arrays["window_root"][window])) for window in windows]
    assert random_shares(table, windows) == pytest.approx(expected, abs=1e-6)
