"""A table whose windows are those that ship, where what a step saves is planted: its rule decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from agents.core.config import Config, EncoderConfig, EnvConfig, PPOConfig, PretrainingConfig, TrainingConfig
from envs.window import WindowTable

FAMILIES = ("decoder", "nasrnn", "recurrent", "temporal")
"""Architectures with few windows, which tests learn from."""
CONFIG = Config(
    env=EnvConfig(horizon=4, features="full"),
    encoder=EncoderConfig(hidden=16, layers=1, attention_heads=2),
    ppo=PPOConfig(n_steps=16, batch_size=32, n_epochs=2, gamma=1.0, learning_rate=1e-3, head_layers=(32, 16)),
    training=TrainingConfig(total_timesteps=64, n_envs=2, imitation_steps=2, checkpoint_freq=32, seconds=600.0),
    pretraining=PretrainingConfig(epochs=30, states=16, learning_rate=1e-2),
)


def saves(rule: str) -> float:
    """The share of a window's time that a step with this rule saves after any others."""
    return 0.2 if sum(rule.encode()) % 3 == 0 else -0.1


def planted(table: WindowTable) -> WindowTable:
    """The same windows with exact measurements of planted effects; no step fails."""
    arrays = dict(table.arrays)
    state_share = np.zeros(table.states, dtype=np.float32)
    step_share = np.zeros(table.steps, dtype=np.float32)
    for state in range(table.states):
        for step in range(arrays["step_start"][state], arrays["step_start"][state + 1]):
            rule = table.rules[int(arrays["step_rule"][step])]
            step_share[step] = state_share[arrays["step_next"][step]] = state_share[state] + saves(rule)
    halves, failed = np.full(table.steps, 1e-3, dtype=np.float32), np.zeros(table.steps, dtype=np.bool_)
    changed = {"state_share": state_share, "step_share": step_share, "step_half": halves, "step_failed": failed}
    return replace(table, arrays={**arrays, **changed})
