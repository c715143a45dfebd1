"""The end of a training on a model: the model is optimised with what was trained; results are written and shown."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.commands.plotting import plot_training
from agents.commands.signals import ending_search
from agents.commands.train_arguments import TrainArguments
from agents.conclusion.recordings import environment
from agents.core.base import Agent, Budget, Search
from agents.core.config import Config
from agents.ppo.progress import TrainingProgress
from agents.reporting.json_text import finite
from agents.reporting.progress import (
    baseline_ms,
    deployment_table,
    print_warnings,
    results_table,
    rewrites_table,
    search_display,
)
from agents.reporting.runs import result_entry, write_json, write_optimized
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.task.problem import Problem


def optimise_and_tell(
    agent: Agent, problem: Problem, arguments: TrainArguments, config: Config, run: Path,
    training: Mapping[str, Any], console: Console,
) -> int:  # fmt: skip
    """Optimise a model with a trained agent; write the model, `result.json` and the plots into the run's folder, and
    print the tables. Return the exit code.

    Args:
        training: the course of the training, as `result.json` holds it.
    """
    uri, budget = arguments.uri(config), Budget(**dataclasses.asdict(config.search))
    with ending_search(console) as watch, search_display(console, "ppo") as update:

        def progress(search: Search) -> None:
            watch(search)
            update(search)

        result = agent.optimize(problem, budget, seed=arguments.seed, progress=progress)
    optimized = write_optimized(result, run / "optimized.onnx")
    entry = result_entry(result, problem, optimized)
    provider = problem.deployment.provider
    summary = {
        "model": uri, "provider": provider, "environment": environment(provider),
        "baseline_ms": baseline_ms(entry), "results": [entry], "training": dict(training),
    }  # fmt: skip
    write_json(run / "result.json", finite(summary))
    plot_training(training, run, console)
    console.print(results_table(f"{uri} on {provider}, {threads_in_words(arguments.threads)}", [entry]))
    console.print(deployment_table([entry]))
    print_warnings(console, entry)
    console.print(rewrites_table(entry) if result.actions else result.message)
    where = "none" if optimized is None else str(optimized)
    console.print(f"optimised model {where}, checkpoint {run / 'checkpoint'}", soft_wrap=True, markup=False)
    return 0


def training_entry(progress: TrainingProgress) -> dict[str, Any]:
    """Return what `result.json` holds of the course of every training on a model."""
    return {
        "timesteps": progress.timesteps, "episodes": progress.episodes, "seconds": round(progress.seconds, 1),
        "curve": [list(point) for point in progress.curve],
    }  # fmt: skip
