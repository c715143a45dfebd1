"""train.py --windows: train the universal policy on a table of windows."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agents.commands.plotting import plot_training
from agents.commands.train_arguments import TrainArguments
from agents.commands.training_run import run_training, status_line
from agents.core.budget import check_seed
from agents.core.config import Config
from agents.effects.own_means import labels_here
from agents.ppo.progress import TrainingProgress
from agents.reporting.json_text import finite
from agents.reporting.runs import new_run, write_config, write_json
from graph_rewrite.errors import UserError
from graph_rewrite.experience.cli import store_of

if TYPE_CHECKING:
    # At run time they are imported where they are used: they import PyTorch, which takes seconds and need not be there.
    from agents.ppo.checkpoint import Checkpoint
    from agents.universal.trainer import WindowTrainer


def train_on_windows(arguments: TrainArguments, console: Console) -> int:
    """Train, and score the policy on windows that it saw and on those that were left out; everything lands in a run
    folder.

    Raises:
        UserError: no such table, store or architecture, nothing left to learn from, or a checkpoint of another kind.
    """
    import torch

    from agents.ppo.checkpoint import load_checkpoint

    if arguments.episodes is not None or arguments.eval_freq is not None:
        raise UserError("--episodes and --eval-freq are for training on a model: with --windows name --total-timesteps")
    if arguments.experience is not None and not arguments.from_experience:
        raise UserError("--experience names what to learn from: add --from-experience")
    if arguments.from_experience and (arguments.table or arguments.without):
        raise UserError("--from-experience learns from all that was timed: leave out --table and --without")
    config = arguments.configure()
    check_seed(arguments.seed)
    torch.set_num_threads(1)
    resume = None if arguments.resume is None else load_checkpoint(arguments.resume)
    if arguments.from_experience:
        run, trainer = _on_experience(arguments, config, resume, console)
    else:
        run, trainer = _on_table(arguments, config, resume)
    console.print(f"run folder {run}", soft_wrap=True, markup=False)
    console.print(f"training on {trainer.trained_on}")
    display = status_line(console, lambda progress: _status(progress, trainer.config))
    progress = run_training(trainer, display, arguments, run, console)
    summary = _summary(trainer, progress)
    write_json(run / "result.json", finite(summary))
    plot_training(summary["training"], run, console)
    _tell(console, summary, run / "checkpoint")
    return 0


def _new_run(arguments: TrainArguments, config: Config) -> tuple[Path, Path]:
    """Make the run's folder; return it, and the one of TensorBoard's files."""
    run = new_run(arguments.runs, "windows", "ppo")
    write_config(run, config, asdict(arguments))
    return run, arguments.tensorboard_log or run / "tensorboard"


def _on_table(arguments: TrainArguments, config: Config, resume: Checkpoint | None) -> tuple[Path, WindowTrainer]:
    """Return the run's folder, and a training on a table that goes on with a policy, if one is given."""
    from agents.universal.trainer import WindowTrainer, WindowTrainingOptions

    options = WindowTrainingOptions.load(arguments.table, arguments.without, arguments.seed, arguments.device)
    run, log = _new_run(arguments, config)
    return run, WindowTrainer(replace(options, tensorboard_log=log), config, run / "checkpoint", resume)


def _on_experience(
    arguments: TrainArguments, config: Config, resume: Checkpoint | None, console: Console
) -> tuple[Path, WindowTrainer]:
    """Return the run's folder, and a training that goes on with a policy on what was timed on this kind of processor:
    by default with the one that ships.

    Raises:
        UserError: there is no such store, or nothing in it can be learnt from.
    """
    from agents.effects.tabulating import tabulated
    from agents.fine_tuning.lessons import Rehearsal, fine_tuning_config, lesson
    from agents.universal.prior import shipped_policy

    source, taught, seed = store_of(arguments.experience), resume or shipped_policy(), arguments.seed
    labels = labels_here(source)
    console.print(f"{len(labels)} labels in {source}", soft_wrap=True, markup=False)
    table = tabulated(labels).table
    settings = fine_tuning_config(config, taught.description, config.training.seconds)
    rehearsed = Rehearsal.of_shipped(config.fine_tuning.rehearsed, seed)
    run, log = _new_run(arguments, settings)
    return run, lesson(
        table, source.name, settings, run / "checkpoint", taught, rehearsed.decisions(settings.env.horizon), seed,
        arguments.device, log, resumed=resume is not None,
    )  # fmt: skip


def _status(progress: TrainingProgress, config: Config) -> str:
    return (
        f"epoch {progress.epochs}/{config.pretraining.epochs} of imitation, "
        f"step {progress.timesteps}/{config.training.total_timesteps} of PPO, "
        f"a chain saves {progress.mean_reward:+.2%} of its window's time"
    )


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
