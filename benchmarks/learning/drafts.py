"""Measure drafts: graphs that a search by windows puts together by forecasts alone, before it times anything.

    python -m benchmarks.learning.drafts
    python -m benchmarks.learning.drafts --models resnet18 densenet121 --out drafts.json

Each model is drafted by means and by the model of effects, both learnt from all windows, and without those of the
model's family of architectures (`python -m benchmarks.learning.window_policy --folds 4 --keep runs/held-out` trains
these models of effects). All graphs are then measured end to end against the original. Nothing chooses among drafts.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import tyro

from agents.commands.common import stderr_console
from agents.core.base import Budget, Search
from agents.core.config import load_config, model_uri
from agents.effects.learning_means import MeansLearner, means_on
from agents.effects.prior import LearntPrior
from agents.regional.assembly import best_of, within_limits
from agents.regional.gains import Effects
from agents.regional.options import DEFAULTS, RegionalOptions
from agents.regional.prior import StepPrior
from agents.regional.screen import Screen
from benchmarks.learning.reports import tell_report
from benchmarks.protocol.machine.description import commit, machine, versions
from benchmarks.protocol.searches.held_out import FURTHER, family_of, held_out_effects, means_without
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite import zoo
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.problem import Problem, open_problem
from graph_rewrite.task.site_windows import site_classes

KNOWN, LEFT_OUT = "", ", without its family"


@dataclass(frozen=True)
class Arguments:
    """Measure drafts of models."""

    models: tuple[str, ...] = ()
    """Models of the zoo; by default all, the further ones too."""
    tables: tuple[Path, ...] = (SHIPPED, *FURTHER)
    """The tables of windows that means are learnt from: of all processors, and of this kind beyond that."""
    threads: int = 1
    """Threads of an inference."""
    out: Path | None = None
    """File of the report, beside standard output."""


class _Untimed:
    """In place of what times windows: a draft needs none."""

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        raise AssertionError("a draft timed a window")

    def close(self) -> None:
        """Nothing to end."""


@dataclass(frozen=True)
class DraftedGraph:
    """A graph that was put together by forecasts."""

    graph: Graph
    chains: int
    forecast: float
    """Speed-up, end to end, by the forecasts."""
    seconds: float
    """Seconds that it took to list what is possible and to choose."""


def priors_for(
    learners: Sequence[MeansLearner], tables: Sequence[WindowTable], model: str, deployment: Deployment
) -> Iterator[tuple[str, StepPrior]]:
    """Yield means and models of effects with and without the family of a model; one of the two where the tables lack
    it.

    Raises:
        UserError: no model of effects was trained without the family.
    """
    kind, family = processor_kind(), family_of(tables, model)
    found = [(LEFT_OUT, means_without(family, learners, tables, kind), held_out_effects(family))]
    if family is not None:
        known = means_on([(learner, None) for learner in learners], kind)
        found = [(KNOWN, known, held_out_effects(None)), *found]
    for title, means, effects in found:
        yield f"means{title}", means
        yield f"effects{title}", LearntPrior(effects, deployment, means)


def draft(problem: Problem, latency_s: float, prior: StepPrior, options: RegionalOptions = DEFAULTS) -> DraftedGraph:
    """Draft a graph of a model that takes `latency_s`."""
    graph, began = problem.model.graph, time.perf_counter()
    search = Search(problem, Budget(seconds=float("inf")))
    classes = site_classes(problem.rewriter, graph, options.margin, options.compared_sites)
    screen = Screen(search, _Untimed(), Effects(), graph, latency_s, options, None, prior)
    chains = best_of(screen.forecast(classes, lambda: False))
    found = within_limits(search, graph, (), chains, options)
    left = max(1.0 - sum(chain.saved for chain in found.chains) / latency_s, 0.05)
    return DraftedGraph(found.graph, len(found.chains), 1.0 / left, time.perf_counter() - began)


def rows(
    model: str, learners: Sequence[MeansLearner], tables: Sequence[WindowTable], threads: int
) -> Iterator[dict[str, Any]]:
    """Draft and measure one model, with each of the priors."""
    config = load_config(model)
    problem = open_problem(
        model_uri(model, dict(config.model)), provider="cpu", threads=threads, rules=config.env.rules, cached=False
    )
    original = problem.measure(problem.model.graph)
    for name, prior in priors_for(learners, tables, model, problem.deployment):
        made = draft(problem, original.ms / 1e3, prior)
        latency = problem.measure(made.graph, "full") if made.chains else original
        low, high = latency.ci95 if made.chains else (1.0, 1.0)
        yield {
            "model": model, "prior": name, "chains": made.chains, "forecast": round(made.forecast, 3),
            "drafted_s": round(made.seconds, 2), "baseline_ms": latency.baseline_ms,
            "speedup": round(latency.speedup, 4) if made.chains else 1.0,
            "speedup_ci95": [round(low, 4), round(high, 4)], "failure": latency.message,
        }  # fmt: skip


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return, for each prior, how many models were drafted, on how many the draft is surely faster than the
    original and surely slower, and the geometric mean of the speed-up that a search begins with: 1 where a draft is
    slower."""
    found = {}
    for name in dict.fromkeys(row["prior"] for row in rows):
        mine = [row for row in rows if row["prior"] == name]
        found[name] = {
            "models": len(mine),
            "faster": sum(row["speedup_ci95"][0] > 1.0 for row in mine),
            "slower": sum(row["speedup_ci95"][1] < 1.0 for row in mine),
            "speedup": round(geometric_mean(max(1.0, row["speedup"]) for row in mine), 4),
        }
    return found


def _run(arguments: Arguments) -> int:
    tables, console = [WindowTable.load(path) for path in arguments.tables], stderr_console()
    learners, found = [MeansLearner(table) for table in tables], list[dict[str, Any]]()
    for model in arguments.models or (*zoo.names(), *zoo.further_names()):
        for row in rows(model, learners, tables, arguments.threads):
            console.print(f"{model}, {row['prior']}: {row['speedup']:.3f} {row['failure']}")
            found.append(row)
    head = {"machine": machine(), "versions": versions(), "commit": commit(), "threads": arguments.threads}
    tell_report({**head, "summary": summary(found), "rows": found}, arguments.out)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.drafts")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
