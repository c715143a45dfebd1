"""A training as a command runs it: begun in a run folder, shown while it goes on, and stopped with the command that
resumes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from agents.commands.signals import interrupting_between_steps
from agents.commands.train_arguments import TrainArguments, resume_command
from agents.core.budget import check_seed
from agents.core.config import Config
from agents.ppo.progress import TrainingProgress
from agents.reporting.progress import line_log
from agents.reporting.runs import new_run, write_config
from graph_rewrite.task.problem import Problem


def begin_run(
    arguments: TrainArguments, config: Config, console: Console, *, in_effect: Config | None = None
) -> tuple[Problem, Path]:
    """Open the model that is trained on and make a run folder, and tell both. Return them. PyTorch gets one thread and
    the seed.

    Args:
        config: of the model.
        in_effect: the configuration that the folder keeps; by default the same.

    Raises:
        UserError: a seed, a model or a setting that makes no sense.
    """
    import torch

    torch.manual_seed(check_seed(arguments.seed))
    torch.set_num_threads(1)
    # Trainings are compared on what they measure, not on what an earlier run left on disk.
    problem = arguments.open(config, cached=False)
    run = new_run(arguments.runs, arguments.model, "ppo")
    write_config(run, in_effect or config, asdict(arguments))
    console.print(f"model {arguments.uri(config)}: {problem.model.report}")
    console.print(f"run folder {run}", soft_wrap=True, markup=False)
    return problem, run


@contextmanager
def status_line(console: Console, told: Callable[[TrainingProgress], str]) -> Iterator[Any]:
    """Show how a training stands, in a file one line now and then; yields the callback that updates it.

    Args:
        told: puts the progress into words.
    """
    log = line_log(console, at_once=True)
    with console.status("training") as status:

        def update(progress: TrainingProgress) -> None:
            line = told(progress)
            status.update(line)
            log(progress.seconds, f"  {progress.seconds:4.0f} s  {line}")

        yield update


class RunsTraining(Protocol):
    """A trainer: it saves its checkpoint, also where it is interrupted."""

    def run(self, progress: Callable[[TrainingProgress], None]) -> TrainingProgress: ...

    def close(self) -> None: ...


def run_training(
    trainer: RunsTraining, display: AbstractContextManager[Any], arguments: TrainArguments, run: Path, console: Console
) -> TrainingProgress:
    """Run a training to its end and close the trainer.

    Args:
        display: yields the callback that shows progress.
        run: the run's folder.

    Raises:
        KeyboardInterrupt: the user stopped it; the command that goes on is printed.
    """
    try:
        with interrupting_between_steps() as end_here, display as update:

            def stepped(progress: TrainingProgress) -> None:
                update(progress)
                end_here()

            return trainer.run(stepped)
    except KeyboardInterrupt:
        # As it stands: a command to be copied must not be broken into lines.
        command = resume_command(arguments, run)
        console.print(f"\nstopped; the checkpoint is saved. Go on with: {command}", soft_wrap=True, markup=False)
        raise
    finally:
        trainer.close()
