"""train.py: train an agent on a model, then optimise the model with it."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from agents.commands.common import ModelArguments, stderr_console
from agents.commands.signals import ending_search, interrupting_between_steps
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
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.system.extras import require
from graph_rewrite.task.problem import Problem

if TYPE_CHECKING:
    # At run time they are imported where they are used: they import PyTorch, which takes seconds and need not be there.
    from agents.ppo.checkpoint import Checkpoint


@dataclass(frozen=True, slots=True)
class TrainArguments(ModelArguments):
    """Train a PPO agent on a model and optimise the model with it."""

    n_envs: int | None = None
    """Environments that collect experience side by side; their measurements take turns."""
    total_timesteps: int | None = None
    """Steps of the environment to train for."""
    episodes: int | None = None
    """Train for about this many full episodes instead (of training.episode_steps or env.horizon steps)."""
    device: str = "cpu"
    """PyTorch device of the policy: cpu or cuda."""
    resume: Path | None = None
    """A run folder or checkpoint folder to go on from."""
    tensorboard_log: Path | None = None
    """Folder for TensorBoard files; by default inside the run's folder."""
    eval_freq: int | None = None
    """Steps between deterministic evaluation episodes; 0 for none."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""

    def configure(self) -> Config:
        """The configuration with this command line's settings on top."""
        config = self.load()
        training = config.training
        if self.n_envs is not None:
            training = dataclasses.replace(training, n_envs=self.n_envs)
        if self.episodes is not None:
            training = dataclasses.replace(training, total_timesteps=self.episodes * _episode_steps(config))
        if self.total_timesteps is not None:
            training = dataclasses.replace(training, total_timesteps=self.total_timesteps)
        if self.eval_freq is not None:
            training = dataclasses.replace(training, eval_freq=self.eval_freq)
        return dataclasses.replace(config, training=training)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: TrainArguments = parse(TrainArguments, argv, "rewritegym train")
    return run_command(lambda: train(arguments, stderr_console()))


def train(arguments: TrainArguments, console: Console) -> int:
    """Train, then optimise; everything lands in a run folder."""
    require("Training", *NEEDS["ppo"])
    import torch

    from agents.ppo.checkpoint import load_checkpoint

    config = arguments.configure()
    resume = None if arguments.resume is None else load_checkpoint(arguments.resume)
    torch.manual_seed(check_seed(arguments.seed))
    torch.set_num_threads(1)
    uri = arguments.uri(config)
    # Seeds are compared on what they measure, not on what an earlier run left on disk.
    problem = arguments.open(config, cached=False)
    run = new_run(arguments.runs, arguments.model, "ppo")
    write_config(run, config, _plain_arguments(arguments))
    console.print(f"model {uri}: {problem.model.report}")
    console.print(f"run folder {run}", soft_wrap=True, markup=False)
    progress, checkpoint = _learn(arguments, config, run, resume, console)
    result = _optimise(arguments, config, checkpoint, problem, console)
    optimized = write_optimized(result, run / "optimized.onnx")
    entry = result_entry(result, problem, optimized)
    write_json(run / "result.json", _summary(uri, problem, entry, progress))
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
    try:
        with (
            interrupting_between_steps() as end_here,
            training_display(console, config.training.total_timesteps) as update,
        ):

            def stepped(progress: TrainingProgress) -> None:
                update(progress)
                end_here()

            progress = trainer.run(stepped)
    except KeyboardInterrupt:
        # As it stands: a command to be copied must not be broken into lines.
        command = _resume_command(arguments, run)
        console.print(f"\nstopped; the checkpoint is saved. Go on with: {command}", soft_wrap=True, markup=False)
        raise
    finally:
        trainer.close()
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


def _resume_command(arguments: TrainArguments, run: Path) -> str:
    """The command line that goes on from a run, with all that was set in this one."""
    words = ["python", "train.py"]
    plain = TrainArguments()
    for field in dataclasses.fields(arguments):
        value = getattr(arguments, field.name)
        if field.name == "resume" or value == getattr(plain, field.name):
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(value, bool):
            words.append(flag)
        else:
            words += [word for item in (value if isinstance(value, tuple) else (value,)) for word in (flag, str(item))]
    return shlex.join([*words, "--resume", str(run)])


def _episode_steps(config: Config) -> int:
    """Return the steps of a full episode."""
    longest = config.training.episode_steps or config.env.horizon
    return min(longest, config.env.horizon)


def _plain_arguments(arguments: TrainArguments) -> dict[str, Any]:
    return {
        key: str(value) if isinstance(value, Path) else value for key, value in dataclasses.asdict(arguments).items()
    }


def _summary(uri: str, problem: Problem, entry: dict[str, Any], progress: TrainingProgress) -> dict[str, Any]:
    return {
        "model": uri,
        "provider": problem.deployment.provider,
        "baseline_ms": baseline_ms(entry),
        "results": [entry],
        "training": {
            "timesteps": progress.timesteps,
            "episodes": progress.episodes,
            "seconds": round(progress.seconds, 1),
            "curve": [list(point) for point in progress.curve],
        },
    }
