"""The environments that a policy is trained and evaluated in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import torch
from stable_baselines3.common.monitor import Monitor

from agents.core.config import Config
from agents.ppo.best_path import BestPath
from envs import GraphRewriteEnv
from graph_rewrite.latency import Deployment, MeasurementCache, OrtMeter, Plan
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.models import Model


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of the command line beside the configuration."""

    uri: str
    """Model to train on."""
    provider: str = "auto"
    threads: int = 1
    deployment_choices: bool = True
    shapes: dict[str, tuple[int, ...]] | None = None
    seed: int = 0
    device: str = "cpu"
    tensorboard_log: Path | None = None
    limits: ResultLimits | None = None
    """Limits of every graph: one beyond a limit ends an episode like one that cannot be run."""
    measurements: Path | None = None
    """File of this training's measurements, which its environments share and no other training reads; None keeps them
    in memory."""


SCREEN_IN_TRAINING = Plan(instances=3, min_pairs=3, target_ci_width=0.03, budget_s=0.12)
"""Half the time of `SCREEN`, a third of which goes into building sessions: a learner averages over many
measurements, and sees twice as many graphs."""


def quick_meter(model: Model, deployment: Deployment, workspace: Path, measurements: Path | None = None) -> OrtMeter:
    """The meter that environments train with. It keeps nothing where other trainings would find it: what one seed
    measures by luck must not decide what the next one learns."""
    cache = None if measurements is None else MeasurementCache(measurements)
    return ort_meter(model, deployment, workspace, cache, SCREEN_IN_TRAINING)


def make_env(
    options: TrainingOptions, config: Config, evaluation: bool = False
) -> Callable[[], gymnasium.Env[Any, Any]]:
    """A factory of monitored environments, picklable for SubprocVecEnv. For evaluation every episode begins with the
    original graph."""

    def build() -> gymnasium.Env[Any, Any]:
        # A process of its own has its own PyTorch: leave the cores to the measurements.
        torch.set_num_threads(1)
        env = GraphRewriteEnv(**env_arguments(options, config))
        training = config.training
        acting = env if evaluation else BestPath(env, training.restarts, training.episode_steps)
        return Monitor(acting, info_keywords=("best_speedup",))

    return build


def env_arguments(options: TrainingOptions, config: Config) -> dict[str, Any]:
    """Keyword arguments of `GraphRewriteEnv`."""
    env, kept = config.env, options.measurements
    return {
        "model": options.uri, "horizon": env.horizon, "feedback_every": env.feedback_every,
        "max_candidates": env.max_candidates, "max_nodes": env.max_nodes, "max_edges": env.max_edges,
        "features": env.features, "granularity": env.granularity, "rules": env.rules,
        "deployment_choices": options.deployment_choices, "provider": options.provider, "threads": options.threads,
        "shapes": options.shapes, "meter": quick_meter if kept is None else partial(quick_meter, measurements=kept),
        "result_limits": options.limits,
    }  # fmt: skip
