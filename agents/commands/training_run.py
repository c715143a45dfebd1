"""A training as a command runs it: shown while it goes on, and stopped with the command that resumes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from agents.commands.signals import interrupting_between_steps
from agents.commands.train_arguments import TrainArguments, resume_command
from agents.ppo.progress import TrainingProgress

EVERY = 30.0
"""Seconds between lines of progress where the console is no terminal."""


@contextmanager
def status_line(console: Console, told: Callable[[TrainingProgress], str]) -> Iterator[Any]:
    """Show how a training stands, in a file one line every `EVERY` seconds; yields the callback that updates it.

    Args:
        told: puts the progress into words.
    """
    shown = -EVERY
    with console.status("training") as status:

        def update(progress: TrainingProgress) -> None:
            nonlocal shown
            line = told(progress)
            status.update(line)
            if not console.is_terminal and progress.seconds - shown >= EVERY:
                shown = progress.seconds
                console.print(f"  {progress.seconds:4.0f} s  {line}", soft_wrap=True, markup=False)

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
