"""Time the construction of e-graphs as published.

    python -m benchmarks.egraphs.construction [MODEL] [--out FILE.json]

Two methods run without a time limit: TENSAT's saturation with its integer program, and tree search over the
construction with 128 simulations of 10 rules per rule and 2,000 e-nodes (Hartmann et al., PACT'24). Operators are
priced as in a search; the time of the first pricing is reported separately. Seconds are wall clock.
"""

from __future__ import annotations

import resource
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from agents.core.base import Budget, Search
from agents.egraph.base import NodePrices
from agents.egraph.tensat import TensatAgent
from agents.egraph_mcts.search import ConstructionOptions, ConstructionSearch
from agents.egraph_mcts.simulation import ConstructionState
from agents.reporting.runs import write_json
from agents.searching.cost_model import operator_prices
from graph_rewrite.egraph import from_graph
from graph_rewrite.egraph.costs import extract_graph
from graph_rewrite.latency.device import device_name
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.task.problem import Problem, open_problem


@dataclass(frozen=True)
class Arguments:
    """Build the e-graphs of one model."""

    model: tyro.conf.Positional[str] = "bert"
    """A model of the zoo, or an ONNX file."""
    workers: int = 0
    """Processes that simulate; 0 for one per core."""
    in_flight: int = 4
    """Simulations that run at the same time."""
    seed: int = 0
    out: Annotated[Path | None, tyro.conf.arg(name="out")] = None
    """JSON file for the figures."""


@dataclass(frozen=True)
class Construction:
    """Figures of one construction. Costs are milliseconds by the sum of operators; `cost_ms` is the best graph's."""

    agent: str
    seconds: float
    pricing_seconds: float
    rules: int
    e_nodes: int
    original_ms: float
    cost_ms: float
    simulations: int = 0
    peak_mib: float = 0.0
    """Peak memory of the largest process so far."""


def tree_search(problem: Problem, arguments: Arguments, workers: int, console: Console) -> Construction:
    """Run the search of `egraph-mcts`, without the measurements that follow it."""
    search = Search(problem, Budget(seconds=float("inf")))
    prices, before = NodePrices(search), operator_prices(problem).seconds
    began = time.monotonic()

    def moved(state: ConstructionState) -> None:
        rule = state.applications[-1].rule if state.applications else "the model"
        console.print(
            f"  {time.monotonic() - began:6.1f} s  {state.egraph.size:5} e-nodes  {state.cost:8.3f} ms  {rule}"
        )

    construction = ConstructionSearch(
        from_graph(problem.model.graph), problem.rewriter.rules, prices.cost,
        ConstructionOptions(in_flight=arguments.in_flight),
        np.random.default_rng(arguments.seed), on_move=moved, workers=workers, price=prices.price,
        needs_timing=prices.needs_timing,
    )  # fmt: skip
    with construction:
        built = construction.run()
        best = construction.best
    taken = time.monotonic() - began
    return Construction(
        "egraph-mcts", round(taken, 2), round(operator_prices(problem).seconds - before, 2), len(built.applications),
        built.egraph.size, construction.first.cost, best.cost, construction.simulations, peak_mib(),
    )  # fmt: skip


def saturation(problem: Problem) -> Construction:
    """Run the construction of `tensat` and the integer program on it."""
    search = Search(problem, Budget(seconds=float("inf")))
    prices, before = NodePrices(search), operator_prices(problem).seconds
    began = time.monotonic()
    egraph = from_graph(problem.model.graph)
    original = extract_graph(egraph, prices.cost, "shared")[1].cost
    applications = TensatAgent().construct(search, egraph, problem.rewriter.rules, prices.cost)
    cost = extract_graph(egraph, prices.cost, "ilp", time_limit=60.0)[1].cost
    taken = time.monotonic() - began
    changed = sum(one.changed for one in applications)
    return Construction(
        "tensat", round(taken, 2), round(operator_prices(problem).seconds - before, 2), changed, egraph.size, original,
        cost, peak_mib=peak_mib(),
    )  # fmt: skip


def peak_mib() -> float:
    """Return the peak memory of this process and of those it has waited for."""
    most = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(max(most) / 1024, 0)


def main() -> None:
    """Build, print, and write where asked to."""
    arguments, console = tyro.cli(Arguments), Console()
    uri = arguments.model
    problem = open_problem(uri, provider="cpu")
    workers = arguments.workers or available_cores()
    found = [saturation(problem), tree_search(problem, arguments, workers, console)]
    table = Table(title=f"{uri}, {workers} process(es)")
    for column in ("agent", "s", "pricing", "rules", "e-nodes", "runs", "from ms", "to ms", "MiB"):
        table.add_column(column, justify="left" if column == "agent" else "right")
    for one in found:
        table.add_row(
            one.agent, f"{one.seconds:.1f}", f"{one.pricing_seconds:.1f}", str(one.rules), str(one.e_nodes),
            str(one.simulations or ""), f"{one.original_ms:.2f}", f"{one.cost_ms:.2f}", f"{one.peak_mib:.0f}",
        )  # fmt: skip
    console.print(table)
    if arguments.out is not None:
        write_json(
            arguments.out,
            {
                "model": uri, "device": device_name("cpu"), "workers": workers, "in_flight": arguments.in_flight,
                "seed": arguments.seed, "built": [asdict(one) for one in found],
            },
        )  # fmt: skip


if __name__ == "__main__":
    main()
