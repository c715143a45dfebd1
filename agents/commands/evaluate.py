"""evaluate.py: optimise a model with several agents at an equal budget, without training."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from agents.commands.common import ModelArguments, stderr_console
from agents.commands.plotting import can_plot
from agents.commands.signals import SearchWatch, ending_search
from agents.conclusion.recordings import environment
from agents.core.base import Agent, Budget, Search
from agents.core.budget import check_seed
from agents.core.config import Config
from agents.core.registry import make_agent
from agents.reporting.json_text import finite
from agents.reporting.progress import (
    baseline_ms,
    deployment_table,
    print_json,
    print_warnings,
    results_table,
    rewrites_table,
    rules_table,
    search_display,
)
from agents.reporting.runs import file_name, new_run, result_entry, write_config, write_json, write_optimized
from agents.searching.cost_model import cost_model_speedup
from agents.searching.mutants import MutantChoice, add_mutants
from graph_rewrite.errors import UserError
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.task.problem import Problem

OVERTIME_S = 240.0
"""Seconds that measuring and checking the result of an agent may take; with what a search may overrun, less than five
minutes. Few results need more than one of them."""
MOST_S = 600.0
"""Seconds of which a share goes to the search for mutants, where the agents have more or no limit."""
TRAINED = frozenset({"mcts", "ppo"})
"""Agents that take a checkpoint."""


@dataclass(frozen=True, slots=True)
class EvaluateArguments(ModelArguments):
    """Optimise a model with several agents at an equal budget and compare them. Nothing is trained."""

    agents: tuple[str, ...] = ("ppo", "greedy", "random")
    """Agents to run, by name, with options: greedy:beam=3,lookahead=2."""
    checkpoint: Path | None = None
    """Checkpoint or run folder for agents ppo and mcts; by default the one shipped for the model."""
    measurements: int | None = None
    """Measurements that each agent may take (default 100)."""
    seconds: float | None = None
    """Seconds that each agent may take (default 60); inf for no limit."""
    applications: int | None = None
    """Rewrites that each agent may apply to a graph (default: no limit)."""
    plots: bool = True
    """The run folder gets plots: speed-ups, rule use, latency over time and measurements, optimisation time.
    --no-plots leaves them out."""
    cost_model: bool = True
    """The table also says what the sum of operators, each timed alone, makes of every result. --no-cost-model leaves
    that out."""
    repeats: int = 1
    """Run each agent this many times, with seeds seed, seed + 1, ..."""
    mutants: MutantChoice = "off"
    """Programs that nobody wrote as a rule, offered to every agent: search looks for them once, before the agents
    begin; shipped takes those that come with RewriteGym."""
    json: bool = False
    """Print one JSON object on standard output and nothing else there."""
    runs: Path = Path("runs")
    """Folder in which run folders are made."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments: EvaluateArguments = parse(EvaluateArguments, argv, "rewritegym evaluate")
    return run_command(lambda: evaluate(arguments, stderr_console()))


def evaluate(arguments: EvaluateArguments, console: Console) -> int:
    """Run the agents in turn; results land in a run folder, a table on the console or JSON on standard output."""
    _check(arguments)
    check_seed(arguments.seed)
    config = arguments.load()
    budget = _budget(arguments, config)
    agents = _agents(arguments)
    uri = arguments.uri(config)
    # Agents are compared on what they measure, not on what an earlier run left on disk.
    problem = arguments.open(config, cached=False)
    run = new_run(arguments.runs, arguments.model, "-".join(arguments.agents))
    write_config(run, config, {"model": uri, "agents": list(arguments.agents), "seed": arguments.seed})
    plots = arguments.plots and can_plot(console)
    entries: list[dict[str, Any]] = []
    summary: dict[str, Any] = {}
    with ending_search(console) as watch:
        console.print(f"model {uri}: {problem.model.report}")
        if arguments.mutants != "off":
            found = add_mutants(
                problem, arguments.mutants, min(budget.seconds, MOST_S), watch,
                on_searched=lambda found: console.print(f"{found}"),
            )  # fmt: skip
            console.print(f"{len(found)} mutants beside {len(problem.rewriter.rules) - len(found)} rules")
        for repeat, agent in product(range(arguments.repeats), agents):
            seed = arguments.seed + repeat
            entries.append(_run_agent(agent, problem, budget, seed, run, console, arguments.cost_model, watch))
            # After every agent, so that a comparison that is killed keeps what it has.
            summary = {**summarise(uri, problem, budget, entries), "interrupted": watch.interrupted}
            write_json(run / "result.json", finite(summary))
            if plots:
                _save_plots(summary, run)
            if watch.interrupted:
                break
    if arguments.json:
        print_json(summary)
    else:
        _print(Console(), uri, problem, arguments, entries)
    return 0


def _check(arguments: EvaluateArguments) -> None:
    """Refuse a comparison of nothing.

    Raises:
        UserError: no repeats or no agents.
    """
    if arguments.repeats < 1:
        raise UserError(f"--repeats {arguments.repeats}: each agent must run at least once")
    if not arguments.agents:
        raise UserError("--agents names none: give one or more, such as --agents regional greedy")


def _run_agent(
    agent: Agent,
    problem: Problem,
    budget: Budget,
    seed: int,
    run: Path,
    console: Console,
    cost_model: bool,
    watch: SearchWatch,
) -> dict[str, Any]:
    with search_display(console, agent.name) as update:

        def progress(search: Search) -> None:
            watch(search)
            update(search)

        result = agent.optimize(problem, budget, seed=seed, progress=progress)
    path = write_optimized(result, run / f"{file_name(agent.name)}-{seed}.onnx")
    entry = result_entry(result, problem, path)
    entry["seed"] = seed
    used = {action.rule for action in result.actions}
    embedded = [rule.embedded for rule in problem.rewriter.rules if rule.name in used and rule.embedded is not None]
    if embedded:
        entry["mutants"] = embedded
    # Not part of the search, so not charged to it; who wants the program to end does not wait for it.
    priced = cost_model and not watch.interrupted
    entry["cost_model_speedup"] = cost_model_speedup(problem, result.graph) if priced else None
    console.print(f"{agent.name} (seed {seed}): x{entry['speedup']:.3f} after {entry['measurements']} measurements")
    print_warnings(console, entry)
    return entry


def summarise(uri: str, problem: Problem, budget: Budget, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the object that `--json` prints: model, provider, machine and versions, the original's latency in
    milliseconds, the budget (null where a limit is infinite or not set), and an entry per agent."""
    baselines = sorted(ms for entry in entries if (ms := baseline_ms(entry)) is not None)
    return {
        "model": uri,
        "provider": problem.deployment.provider,
        "environment": environment(problem.deployment.provider),
        "baseline_ms": baselines[len(baselines) // 2] if baselines else None,
        "budget": {
            name: None if limit is None or math.isinf(limit) else limit
            for name, limit in asdict(budget).items()
            if name in ("measurements", "seconds", "applications")  # those that a user sets
        },
        "results": entries,
    }


def _agents(arguments: EvaluateArguments) -> list[Agent]:
    twice = sorted(name for name, count in Counter(arguments.agents).items() if count > 1)
    if twice:
        raise UserError(f"--agents names {', '.join(twice)} twice; use --repeats to run agents several times")
    return [_agent(spec, arguments.checkpoint) for spec in arguments.agents]


def _agent(spec: str, checkpoint: Path | None) -> Agent:
    if checkpoint is None or spec.partition(":")[0] not in TRAINED:
        return make_agent(spec)
    from agents.ppo.checkpoint import load_checkpoint  # imports PyTorch, which takes seconds

    return make_agent(spec, checkpoint=load_checkpoint(checkpoint))


def _save_plots(summary: dict[str, Any], run: Path) -> None:
    from agents.reporting.plots import save_plots  # here, as it imports Matplotlib, which takes a second

    save_plots(summary, run)


def _budget(arguments: EvaluateArguments, config: Config) -> Budget:
    given = {"measurements": arguments.measurements, "seconds": arguments.seconds}
    given["applications"] = arguments.applications
    limits = {**asdict(config.search), **{name: limit for name, limit in given.items() if limit is not None}}
    return Budget(**limits, overtime_s=OVERTIME_S)


def _print(
    console: Console, uri: str, problem: Problem, arguments: EvaluateArguments, entries: list[dict[str, Any]]
) -> None:
    choices = "fixed deployment" if arguments.fixed_deployment else "with deployment choices"
    title = f"{uri} on {problem.deployment.provider}, {threads_in_words(arguments.threads)}, {choices}"
    console.print(results_table(title, entries))
    console.print(deployment_table(entries))
    console.print(rules_table(entries))
    for entry in entries:
        if entry["rewrites"]:
            console.print(rewrites_table(entry))
        else:
            console.print(f"{entry['agent']}: {entry['message']}")
