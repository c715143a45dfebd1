"""PET's figure 13 here: exact rules alone, mutants alone, both, and mutants that are repaired by computing again alone.

    python -m benchmarks.papers.pet_ablation --models resnet18 --batch 1 16 --budget 180

Every variant is a search of its own with the same agent and budget; the search for mutants takes its part of that. The
results of a model are judged side by side by the protocol of `benchmarks.results`. The command goes on where it
stopped: searches and judgements that are done are kept in --runs, and the results file is written after every model.
At the end its page and its plots are written beside it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from agents.commands.common import stderr_console
from agents.core.config import uri_parameters
from benchmarks.papers.pet_search import VARIANTS
from benchmarks.protocol.harness import Harness, Tools
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.machine.description import machine, machine_name, versions
from benchmarks.protocol.plan import TablePlan
from benchmarks.protocol.searches.runs import Run
from benchmarks.protocol.table import Row, counts, write_results
from benchmarks.protocol.tools import check_models, tools_of
from benchmarks.results import make_figures
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.system.commands import run_command

MODELS = ("resnet18", "csrnet", "inception-v3", "bert", "resnet3d18")
"""The networks of PET's evaluation."""
COMMAND, PROCESS = "benchmarks.papers.pet_ablation", "benchmarks.papers.pet_search"
NEVER_BELOW = 0.995
"""No lower end of an interval should be below this."""


@dataclass(frozen=True)
class Arguments:
    """Search with exact rules, with mutants, and with both, and judge the results side by side."""

    models: tuple[str, ...] = MODELS
    """Names of the zoo."""
    batch: tuple[int, ...] = (1, 16)
    """Examples per inference."""
    variants: tuple[str, ...] = tuple(VARIANTS)
    """exact, mutants, both, recompute-only."""
    budget: float = 180.0
    """Seconds of each search, with the search for mutants and the conclusion."""
    agent: str = "regional"
    """The agent, by name, with options."""
    seeds: int = 1
    """Seeds of each variant: 0, 1, ..."""
    threads: int = 1
    """Threads per inference."""
    at_once: int = 2
    """Searches, and sessions of a judgement, side by side at most, each on cores of its own."""
    sessions: int = 6
    """Sessions of a judgement."""
    rounds: int = 8
    """Rounds of a session."""
    patience: float = 240.0
    """Seconds to wait for a quiet machine, at most."""
    runs: Path = Path("runs/pet")
    """Folder in which searches and judgements are kept."""
    out: Path = Path("benchmarks/results/papers/pet.json")
    """The results file."""
    no_figures: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Make no page and no plots of it."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""

    def plan(self) -> AblationPlan:
        """Return the plan of the table.

        Raises:
            UserError: a variant or an agent that there is not, or a number out of range.
        """
        unknown = [name for name in self.variants if name not in VARIANTS]
        if unknown:
            raise UserError(f"--variants {' '.join(unknown)}: there are {', '.join(VARIANTS)}")
        if min(self.batch, default=1) < 1:
            raise UserError(f"--batch {min(self.batch)}: 1 or more")
        models = tuple(of_batch(model, batch) for model in self.models for batch in self.batch)
        protocol = replace(Protocol(), sessions=self.sessions, rounds=self.rounds)
        return AblationPlan(
            models, (self.agent,), (), (), (self.budget,), self.seeds, self.threads, protocol=protocol,
            variants=self.variants, at_once=self.at_once,
        )  # fmt: skip


@dataclass(frozen=True)
class AblationPlan(TablePlan):
    """A table whose runs are variants of one agent's search. A model's batch is part of its name."""

    variants: tuple[str, ...] = tuple(VARIANTS)

    def runs(self, model: str) -> Iterator[Run]:
        """Yield the runs of a model, seeds outermost."""
        for seed in range(self.seeds):
            for name in self.variants:
                yield Run(model, name, self.agents[0], seed, self.budgets[0], None, self.threads)


def of_batch(model: str, batch: int) -> str:
    """Return the name of a model at a batch: that of the zoo for one example."""
    if batch == 1:
        return model
    name, _, parameters = model.removeprefix("zoo://").partition("?")
    return f"zoo://{name}?" + "&".join([*([parameters] if parameters else []), f"batch={batch}"])


def tools_for(plan: AblationPlan, console: Console, patience_s: float) -> Tools:
    """Return the tools of the protocol, with searches that look for mutants first."""
    return tools_of(plan, lambda text: _say(console, text), patience_s, PROCESS)


def run(arguments: Arguments, console: Console, tools: Tools | None = None) -> list[Row]:
    """Make the table, as far as it is not there yet. Return the rows of this command.

    Raises:
        UserError: there is no such model, agent or variant, or the results file is of another machine.
        SharedMeasurementError: two seeds share a measurement.
    """
    plan = arguments.plan()
    check_models(plan.models)
    tools = tools or tools_for(plan, console, arguments.patience)
    head, rows = _head(plan, tools), list[Row]()

    def keep(found: list[Row]) -> None:
        rows.extend({**row, "actions": None} for row in found)  # recordings fill megabytes, and lie in --runs
        write_results(arguments.out, head, rows)

    folder = arguments.runs.resolve() / machine_name() / f"cpu-t{plan.threads}"
    Harness(plan, folder, tools).rows(keep)
    return rows


def _head(plan: AblationPlan, tools: Tools) -> dict[str, Any]:
    listed = {
        "variants": plan.variants, "agent": plan.agents[0], "budget": plan.budgets[0], "seeds": plan.seeds,
        "threads": plan.threads, "command": f"python -m {COMMAND}",
    }  # fmt: skip
    return {
        "machine": {"name": machine_name(), **machine()}, "versions": versions(), "commit": tools.commit,
        "protocol": {**plan.protocol.to_json(), **listed},
    }  # fmt: skip


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def by_model(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Return the first row of each variant by model, seeds in their order."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        found.setdefault(row["model"], {}).setdefault(row["agent"], row)
    return found


def gain_of_mutants(variants: Mapping[str, Row]) -> float | None:
    """Return the speed-up with both over that of the exact rules alone; None where one of them does not count."""
    both, exact = variants.get("both"), variants.get("exact")
    if both is None or exact is None or not counts(both) or not counts(exact):
        return None
    return float(both["speedup"] / exact["speedup"])


def below(rows: Sequence[Row]) -> list[Row]:
    """Return the rows whose interval begins below what no result should."""
    return [row for row in rows if counts(row) and row["speedup_ci95"][0] < NEVER_BELOW]


def table(rows: Sequence[Row]) -> Table:
    """Return a table with a row per model and a column per variant."""
    found = by_model(rows)
    variants = list(dict.fromkeys(row["agent"] for row in rows))
    made = Table(title="Speed-up over ONNX Runtime with all its optimisations, with its 95% interval (PET, figure 13)")
    made.add_column("model")
    for variant in variants:
        made.add_column(variant, justify="right")
    made.add_column("both / exact", justify="right")
    for model, own in found.items():
        gain = gain_of_mutants(own)
        cells = [cell(own.get(variant)) for variant in variants]
        made.add_row(shown_name(model), *cells, "" if gain is None else f"{gain:.3f}")
    worse = below(rows)
    if worse:
        names = ", ".join(f"{shown_name(row['model'])} {row['agent']}" for row in worse)
        made.caption = f"lower end below {NEVER_BELOW}: {names}"
    return made


def cell(row: Row | None) -> str:
    """Return a speed-up with its interval, or the reason why there is none."""
    if row is None:
        return "-"
    if not counts(row):
        return str(row["failure"])[:60]
    low, high = row["speedup_ci95"]
    return f"{row['speedup']:.3f} ({low:.3f} to {high:.3f})"


def shown_name(model: str) -> str:
    """Return a model with its batch, as in `resnet18, batch 16`."""
    if "?" not in model:
        return model
    parameters = uri_parameters(model)
    batch = parameters.pop("batch", None)
    others = "".join(f", {key} {value}" for key, value in parameters.items())
    name = zoo.name_in(model)
    return name + others + (f", batch {batch}" if batch is not None else "")


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog=f"python -m {COMMAND}")

    def command() -> int:
        console = stderr_console()
        rows = run(arguments, console)
        if not arguments.no_figures:
            make_figures(arguments.out, console)
        if arguments.json:
            print(json.dumps({"rows": rows}))
        else:
            Console(width=None if sys.stdout.isatty() else 160).print(table(rows))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
