"""train.py --model: fine-tune the universal policy on a model, then optimise the model with it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from agents.commands.train_arguments import TrainArguments
from agents.commands.trained_result import optimise_and_tell, training_entry
from agents.commands.training_run import begin_run, run_training, status_line
from agents.ppo.progress import TrainingProgress

if TYPE_CHECKING:
    # At run time they are imported where they are used: they import PyTorch, which takes seconds and need not be there.
    from agents.ppo.checkpoint import Checkpoint

AXES = ("chains timed", "saved by the policy's chains, of what the best save")
"""The axes of the learning curve, in place of timesteps and rewards."""


def fine_tune(arguments: TrainArguments, resume: Checkpoint | None, console: Console) -> int:
    """Fine-tune, then optimise; everything lands in a run folder.

    Args:
        resume: the policy to begin with; by default the universal one that ships.

    Raises:
        UserError: an argument that makes no sense, or a policy that does not fit.
    """
    from agents.fine_tuning.lessons import Rehearsal
    from agents.fine_tuning.trainer import FineTuner, FineTuningOptions
    from agents.policy_agent import PolicyAgent
    from agents.universal.prior import shipped_policy

    config, learning = arguments.configure(), arguments.learning_config()
    taught, uri, seed = resume or shipped_policy(), arguments.uri(config), arguments.seed
    # The search and the seconds are the model's, all else that of learning on windows.
    in_effect = replace(learning, model=config.model, search=config.search)
    problem, run = begin_run(arguments, config, console, in_effect=in_effect)
    options = FineTuningOptions(
        uri, Rehearsal.of_shipped(learning.fine_tuning.rehearsed, seed), seed, arguments.device,
        arguments.tensorboard_log or run / "tensorboard",
    )  # fmt: skip
    trainer = FineTuner(problem, options, learning, run, taught, _folder_of(arguments.resume))
    console.print(f"training on {uri}, beginning with {taught.path}", soft_wrap=True, markup=False)
    progress = run_training(trainer, status_line(console, _status), arguments, run, console)
    agent = PolicyAgent(trainer.checkpoint)
    agent.starts = trainer.starts
    training = {
        **training_entry(progress), "axes": list(AXES), "rounds": progress.rounds, "chains": progress.labels,
        "epochs": progress.epochs, "begun_with": str(taught.path),
    }  # fmt: skip
    return optimise_and_tell(agent, problem, arguments, config, run, training, console)


def _folder_of(resume: Path | None) -> Path | None:
    """Return the run's folder that `--resume` names by itself or by its checkpoint."""
    return resume.parent if resume is not None and resume.name == "checkpoint" else resume


def _status(progress: TrainingProgress) -> str:
    """Tell what was timed in the rounds before this one, and what was learnt of it."""
    learnt = f"{progress.epochs} epochs of imitation and {progress.timesteps} steps of PPO"
    before = f"{progress.labels} chains timed before, {learnt}"
    return f"round {progress.rounds + 1}: {before}, best x{progress.best_speedup:.3f}"
