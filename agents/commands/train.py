"""train.py: train an agent on a model, then optimise the model with it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from agents.commands.common import stderr_console
from agents.commands.fine_tune import fine_tune
from agents.commands.train_arguments import TrainArguments
from agents.commands.train_windows import train_on_windows
from agents.commands.trained_result import optimise_and_tell, training_entry
from agents.commands.training_run import begin_run, run_training
from agents.core.config import Config
from agents.core.registry import NEEDS
from agents.ppo.progress import TrainingProgress
from agents.reporting.progress import training_display
from graph_rewrite.errors import UserError
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.extras import require

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
    if arguments.table or arguments.without or arguments.from_experience or arguments.experience:
        raise UserError(
            "--table, --without, --from-experience and --experience choose windows to learn from: add --windows"
        )
    from agents.ppo.checkpoint import load_checkpoint

    resume = None if arguments.resume is None else load_checkpoint(arguments.resume)
    if not arguments.on_whole_graph(resume is not None and resume.description.trained_in == "models"):
        return fine_tune(arguments, resume, console)
    return train_on_whole_graph(arguments, resume, console)


def train_on_whole_graph(arguments: TrainArguments, resume: Checkpoint | None, console: Console) -> int:
    """Train in episodes of rewrites of the whole graph, then optimise with rollouts in it.

    Raises:
        UserError: an argument that makes no sense.
    """
    from agents.ppo.agent import PPOAgent
    from agents.ppo.checkpoint import check_episodes

    config = arguments.configure()
    if resume is not None:
        check_episodes(resume, "models")
    problem, run = begin_run(arguments, config, console)
    progress, checkpoint = _learn(arguments, config, run, resume, console)
    training = training_entry(progress)
    return optimise_and_tell(PPOAgent(checkpoint), problem, arguments, config, run, training, console)


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
