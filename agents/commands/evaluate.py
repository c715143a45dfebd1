"""evaluate.py: optimise a model with several agents at an equal budget, without training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from agents.base import Agent, Budget, make_agent
from agents.commands.common import ModelArguments, parse, run_command, stderr_console
from agents.config import Config
from agents.ppo.agent import PPOAgent
from agents.ppo.checkpoint import load_checkpoint
from agents.report import print_json, results_table, rewrites_table, search_display
from agents.runs import new_run, result_entry, write_config, write_json, write_optimized
from envs.problem import Problem


@dataclass(frozen=True, slots=True)
class EvaluateArguments(ModelArguments):
    """Optimise a model with several agents at an equal budget and compare them. Nothing is trained."""

    agents: tuple[str, ...] = ("ppo", "greedy", "random")
    """Agents to run, by name."""
    checkpoint: Path | None = None
    """Checkpoint or run folder for agent ppo; by default the one shipped for the model."""
    measurements: int | None = None
    """Measurements that each agent may take (default 100)."""
    seconds: float | None = None
    """Seconds that each agent may take (default 60)."""
    repeats: int = 1
    """Run each agent this many times, with seeds seed, seed + 1, ..."""
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""
    runs: Path = Path("runs")
    """Where run folders are made."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: EvaluateArguments = parse(EvaluateArguments, argv, "evaluate.py")
    return run_command(lambda: evaluate(arguments, stderr_console()))


def evaluate(arguments: EvaluateArguments, console: Console) -> int:
    """Run the agents in turn; results land in a run folder, a table on the console or JSON on standard output."""
    config = arguments.load()
    torch.set_num_threads(1)
    agents = [_agent(name, arguments) for name in arguments.agents]
    uri = arguments.uri(config)
    # Agents are compared on what they measure, not on what an earlier run left on disk.
    problem = arguments.open(config, cached=False)
    run = new_run(arguments.runs, arguments.model, "-".join(arguments.agents))
    write_config(run, config, {"model": uri, "agents": list(arguments.agents), "seed": arguments.seed})
    console.print(f"model {uri}: {problem.model.report}")
    entries: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    for repeat in range(arguments.repeats):
        for agent in agents:
            seed = arguments.seed + repeat
            entries.append(_run_agent(agent, problem, _budget(arguments, config), seed, run, console))
            # After every agent, so that an interrupted comparison keeps what it has.
            summary = summarise(uri, problem, entries)
            write_json(run / "result.json", summary)
    if arguments.json:
        print_json(summary)
    else:
        _print(Console(), uri, problem, arguments, entries)
    return 0


def _run_agent(
    agent: Agent, problem: Problem, budget: Budget, seed: int, run: Path, console: Console
) -> dict[str, Any]:
    with search_display(console, agent.name) as update:
        result = agent.optimize(problem, budget, seed=seed, progress=update)
    path = write_optimized(result, problem, run / f"{agent.name}-{seed}.onnx")
    entry = result_entry(result, problem, path)
    entry["seed"] = seed
    console.print(f"{agent.name} (seed {seed}): x{entry['speedup']:.3f} after {entry['measurements']} measurements")
    return entry


def summarise(uri: str, problem: Problem, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` prints: model, provider, the original's latency in milliseconds, and an entry per agent."""
    baselines = sorted(entry["latency_ms"] * entry["speedup"] for entry in entries)
    return {
        "model": uri,
        "provider": problem.deployment.provider,
        "baseline_ms": baselines[len(baselines) // 2] if baselines else None,
        "results": entries,
    }


def _agent(name: str, arguments: EvaluateArguments) -> Agent:
    if name != "ppo" or arguments.checkpoint is None:
        return make_agent(name)
    return PPOAgent(load_checkpoint(arguments.checkpoint))


def _budget(arguments: EvaluateArguments, config: Config) -> Budget:
    measurements, seconds = config.search.measurements, config.search.seconds
    return Budget(
        measurements if arguments.measurements is None else arguments.measurements,
        seconds if arguments.seconds is None else arguments.seconds,
    )


def _print(
    console: Console, uri: str, problem: Problem, arguments: EvaluateArguments, entries: list[dict[str, Any]]
) -> None:
    choices = "fixed deployment" if arguments.fixed_deployment else "with deployment choices"
    title = f"{uri} on {problem.deployment.provider}, {arguments.threads} thread(s), {choices}"
    console.print(results_table(title, entries))
    for entry in entries:
        if entry["rewrites"]:
            console.print(rewrites_table(entry))
        else:
            console.print(f"{entry['agent']}: {entry['message']}")
