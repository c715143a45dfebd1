"""train.py --windows: train the universal policy on a table of windows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agents.commands.plotting import plot_training
from agents.commands.train_arguments import TrainArguments, plain_arguments
from agents.commands.training_run import run_training
from agents.core.budget import check_seed
from agents.core.config import Config
from agents.ppo.progress import TrainingProgress
from agents.reporting.runs import new_run, write_config, write_json
from graph_rewrite.errors import UserError

if TYPE_CHECKING:
    # At run time they are imported where they are used: they import PyTorch, which takes seconds and need not be there.
    from agents.universal.trainer import WindowTrainer

EVERY = 30.0
"""Seconds between lines of progress where the console is no terminal."""


def train_on_windows(arguments: TrainArguments, console: Console) -> int:
    """Train, and score the policy on windows that it saw and on those that were left out; everything lands in a run
    folder.

    Raises:
        UserError: no such table or architecture, nothing left to learn from, or a checkpoint of another kind.
    """
    import torch

    from agents.ppo.checkpoint import load_checkpoint
    from agents.universal.trainer import WindowTrainer, WindowTrainingOptions

    if arguments.episodes is not None or arguments.eval_freq is not None:
        raise UserError("--episodes and --eval-freq are for training on a model: with --windows name --total-timesteps")
    config, seed = arguments.configure(), check_seed(arguments.seed)
    torch.set_num_threads(1)
    resume = None if arguments.resume is None else load_checkpoint(arguments.resume)
    options = WindowTrainingOptions.load(arguments.table, arguments.without, seed, arguments.device)
    run = new_run(arguments.runs, "windows", "ppo")
    write_config(run, config, plain_arguments(arguments))
    options = replace(options, tensorboard_log=arguments.tensorboard_log or run / "tensorboard")
    trainer = WindowTrainer(options, config, run / "checkpoint", resume)
    console.print(f"run folder {run}", soft_wrap=True, markup=False)
    console.print(f"training on {trainer.trained_on}")
    progress = run_training(trainer, _display(console, config), arguments, run, console)
    summary = _summary(trainer, progress)
    write_json(run / "result.json", summary)
    plot_training(summary["training"], run, console)
    _tell(console, summary, run / "checkpoint")
    return 0


@contextmanager
def _display(console: Console, config: Config) -> Iterator[Any]:
    """Show how a training stands, in a file one line every `EVERY` seconds; yields the callback that updates it."""
    told = -EVERY
    with console.status("training") as status:

        def update(progress: TrainingProgress) -> None:
            nonlocal told
            line = (
                f"epoch {progress.epochs}/{config.pretraining.epochs} of imitation, "
                f"step {progress.timesteps}/{config.training.total_timesteps} of PPO, "
                f"a chain saves {progress.mean_reward:+.2%} of its window's time"
            )
            status.update(line)
            if not console.is_terminal and progress.seconds - told >= EVERY:
                told = progress.seconds
                console.print(f"  {progress.seconds:4.0f} s  {line}", soft_wrap=True, markup=False)

        yield update


def _summary(trainer: WindowTrainer, progress: TrainingProgress) -> dict[str, Any]:
    """Return what `result.json` holds: the course of the training, and mean shares that chains save in windows that it
    saw and in those that were left out."""
    from agents.universal.rollouts import best_shares, policy_choices, random_shares, saved_shares

    table, windows = trainer.options.table, _windows(trainer)
    scores = {}
    for name, numbers in windows.items():
        choices = policy_choices(trainer.policy, table, numbers, trainer.config.env.horizon)
        scores[name] = {
            "windows": len(numbers), "policy": float(saved_shares(table, numbers, choices).mean()),
            "random": float(random_shares(table, numbers).mean()), "best": float(best_shares(table, numbers).mean()),
        }  # fmt: skip
    return {
        "trained_on": trainer.trained_on, "left_out": list(trainer.options.without), "scores": scores,
        "training": {
            "epochs": progress.epochs, "timesteps": progress.timesteps, "episodes": progress.episodes,
            "seconds": round(progress.seconds, 1), "curve": [list(point) for point in progress.curve],
        },
    }  # fmt: skip


def _windows(trainer: WindowTrainer) -> dict[str, list[int]]:
    """Return the numbers of the windows that were learnt from, and of those that were left out, if there are any."""
    seen, table = list(trainer.windows), trainer.options.table
    left = [number for number, one in enumerate(table.windows) if one.family in trainer.options.without]
    return {"seen": seen, **({"left out": left} if left else {})}


def _tell(console: Console, summary: dict[str, Any], checkpoint: Path) -> None:
    for name, score in summary["scores"].items():
        console.print(
            f"{score['windows']} windows {name}: the policy's chains save {score['policy']:.2%} of the time, random "
            f"ones {score['random']:.2%}, the best ones {score['best']:.2%}",
            highlight=False,
        )  # fmt: skip
    console.print(f"checkpoint {checkpoint}", soft_wrap=True, markup=False)
