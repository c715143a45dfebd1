"""train.py: train an agent on a model, then optimise the model with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agents.commands.common import stderr_console
from agents.commands.plotting import plot_training
from agents.commands.signals import ending_search
from agents.commands.train_arguments import TrainArguments, plain_arguments
from agents.commands.train_windows import train_on_windows
from agents.commands.training_run import run_training
from agents.conclusion.recordings import environment
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.budget import check_seed
from agents.core.config import Config
from agents.core.registry import NEEDS
from agents.ppo.progress import TrainingProgress
from agents.reporting.progress import (
    baseline_ms,
    deployment_table,
    print_warnings,
    results_table,
    rewrites_table,
    search_display,
    training_display,
)
from agents.reporting.runs import new_run, result_entry, write_config, write_json, write_optimized
from graph_rewrite.errors import UserError
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.system.extras import require
from graph_rewrite.task.problem import Problem

if TYPE_CHECKING:
    # At run time they are imported where they are used: they import PyTorch, which takes seconds and need not be there.
    from agents.ppo.checkpoint import Checkpoint


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: TrainArguments = parse(TrainArguments, argv, "rewritegym train")
    return run_command(lambda: train(arguments, stderr_console()))


def train(arguments: TrainArguments, console: Console) -> int:
    """Train, then optimise; everything lands in a run folder.

    Raises:
        UserError: an argument that makes no sense.
    """
    require("Training", *NEEDS["ppo"])
    if arguments.windows:
        return train_on_windows(arguments, console)
    if arguments.table is not None or arguments.without:
        raise UserError("--table and --without choose windows to learn from: add --windows")
    import torch

    from agents.ppo.checkpoint import check_episodes, load_checkpoint

    config = arguments.configure()
    resume = None if arguments.resume is None else load_checkpoint(arguments.resume)
    if resume is not None:
        check_episodes(resume, "models")
    torch.manual_seed(check_seed(arguments.seed))
    torch.set_num_threads(1)
    uri = arguments.uri(config)
    # Seeds are compared on what they measure, not on what an earlier run left on disk.
    problem = arguments.open(config, cached=False)
    run = new_run(arguments.runs, arguments.model, "ppo")
    write_config(run, config, plain_arguments(arguments))
    console.print(f"model {uri}: {problem.model.report}")
    console.print(f"run folder {run}", soft_wrap=True, markup=False)
    progress, checkpoint = _learn(arguments, config, run, resume, console)
    result = _optimise(arguments, config, checkpoint, problem, console)
    optimized = write_optimized(result, run / "optimized.onnx")
    entry = result_entry(result, problem, optimized)
    summary = _summary(uri, problem, entry, progress)
    write_json(run / "result.json", summary)
    plot_training(summary["training"], run, console)
    console.print(
        results_table(f"{uri} on {problem.deployment.provider}, {threads_in_words(arguments.threads)}", [entry])
    )
    console.print(deployment_table([entry]))
    print_warnings(console, entry)
    console.print(rewrites_table(entry) if result.actions else result.message)
    where = "none" if optimized is None else str(optimized)
    console.print(f"optimised model {where}, checkpoint {checkpoint.path}", soft_wrap=True, markup=False)
    return 0


def _learn(
    arguments: TrainArguments, config: Config, run: Path, resume: Checkpoint | None, console: Console
) -> tuple[TrainingProgress, Checkpoint]:
    from agents.ppo.checkpoint import load_checkpoint
    from agents.ppo.environments import TrainingOptions
    from agents.ppo.trainer import Trainer

    training_uri = arguments.uri(config, dict(config.training.model))
    options = TrainingOptions(
        training_uri, arguments.provider, arguments.threads, not arguments.fixed_deployment, arguments.shapes(),
        arguments.seed, arguments.device, arguments.tensorboard_log or run / "tensorboard",
        arguments.limits(), run / "measurements.sqlite3",
    )  # fmt: skip
    trainer = Trainer(options, config, run / "checkpoint", resume)
    console.print(f"training on {training_uri}")
    shown = training_display(console, config.training.total_timesteps)
    progress = run_training(trainer, shown, arguments, run, console)
    return progress, load_checkpoint(run)


def _optimise(
    arguments: TrainArguments, config: Config, checkpoint: Checkpoint, problem: Problem, console: Console
) -> OptimizationResult:
    from agents.ppo.agent import PPOAgent

    budget = Budget(**dataclasses.asdict(config.search))
    with ending_search(console) as watch, search_display(console, "ppo") as update:

        def progress(search: Search) -> None:
            watch(search)
            update(search)

        return PPOAgent(checkpoint).optimize(problem, budget, seed=arguments.seed, progress=progress)


def _summary(uri: str, problem: Problem, entry: dict[str, Any], progress: TrainingProgress) -> dict[str, Any]:
    return {
        "model": uri,
        "provider": problem.deployment.provider,
        "environment": environment(problem.deployment.provider),
        "baseline_ms": baseline_ms(entry),
        "results": [entry],
        "training": {
            "timesteps": progress.timesteps,
            "episodes": progress.episodes,
            "seconds": round(progress.seconds, 1),
            "curve": [list(point) for point in progress.curve],
        },
    }
