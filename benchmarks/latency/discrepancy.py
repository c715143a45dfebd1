"""Compare sums of operators with end-to-end latencies: table 1 of He et al., "X-RLflow", on the zoo.

`python -m benchmarks.latency.discrepancy [MODEL ...]` prints, for each model, the sum of its operators (each timed
alone in ONNX Runtime) and its latency end to end. It then takes the graph with the smallest sum of operators in an
e-graph of 2,000 e-nodes (TENSAT's construction, integer program), and prints the speed-up that the sum promises and the
measured one. It writes OUT.json and OUT.md after every model.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated

import onnxruntime
import tyro

from agents.core.base import Budget, Search
from agents.egraph.base import NodePrices
from agents.reporting.runs import write_json
from agents.searching.cost_model import SumOfOperators, operator_prices
from benchmarks.figures.tables import markdown
from graph_rewrite import zoo
from graph_rewrite.egraph import from_graph, saturate
from graph_rewrite.egraph.costs import extract_graph
from graph_rewrite.latency.device import device_name
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.task.problem import Problem, open_problem

ITERATIONS = 15
SATURATION_SECONDS, EXTRACTION_SECONDS = 10.0, 5.0
HEADINGS = ("model", "operators", "sum, ms", "end to end, ms", "difference", "promised", "measured", "95% interval")


@dataclass(frozen=True)
class Arguments:
    """Compare sums of operators with end-to-end latencies."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Models of the zoo, or ONNX files; all of the zoo by default."""
    out: Path | None = None
    """Path of the files to write, without a suffix."""
    resume: bool = False
    """Keep the rows that OUT.json has, and measure only the models that it lacks."""
    node_limit: int = 2000
    """E-nodes at which construction stops."""
    provider: str = "auto"
    threads: int = 1


@dataclass(frozen=True)
class DiscrepancyRow:
    """Figures of one model: milliseconds, and speed-ups over the original in ONNX Runtime as deployed."""

    model: str
    operators: int
    sum_ms: float
    end_to_end_ms: float
    promised: float
    """Speed-up by the sum of operators."""
    measured: float | None
    """Speed-up end to end; None where the graph could not be run."""
    ci95: tuple[float, float] | None
    seconds: float

    @property
    def difference(self) -> float:
        """Return the excess of the sum over the measured latency, relative to the latency."""
        return self.sum_ms / self.end_to_end_ms - 1.0


def compare(problem: Problem, name: str, node_limit: int = 2000) -> DiscrepancyRow:
    """Compare sum of operators and end-to-end latency of a model and of the graph with the smallest sum.

    Raises:
        BaselineError: the original cannot be run.
    """
    started = time.monotonic()
    graph, prices = problem.model.graph, operator_prices(problem)
    cost = SumOfOperators(prices)
    egraph = from_graph(graph)
    saturate(
        egraph, problem.rewriter.rules, iterations=ITERATIONS, node_limit=node_limit, matching="iteration",
        time_limit=SATURATION_SECONDS,
    )  # fmt: skip
    # A search without limits, so that every operator is priced.
    limitless = Search(problem, Budget(seconds=float("inf")))
    best, _ = extract_graph(egraph, NodePrices(limitless, prices).cost, "ilp", time_limit=EXTRACTION_SECONDS)
    latency = problem.measure(best, "screen")
    before = problem.measure(problem.model.original, "screen").ms
    return DiscrepancyRow(
        name, len(graph.nodes), cost(graph), before, cost(graph) / cost(best),
        latency.speedup if latency.ok else None, latency.ci95 if latency.ok else None,
        round(time.monotonic() - started, 1),
    )  # fmt: skip


def table(rows: Sequence[DiscrepancyRow]) -> str:
    """Return the rows as Markdown."""
    return markdown([HEADINGS, *(_cells(row) for row in rows)])


def _cells(row: DiscrepancyRow) -> list[str]:
    interval = "failed" if row.ci95 is None else f"{row.ci95[0]:.3f} to {row.ci95[1]:.3f}"
    measured = "failed" if row.measured is None else f"{row.measured:.3f}"
    return [
        row.model, str(row.operators), f"{row.sum_ms:.2f}", f"{row.end_to_end_ms:.2f}", f"{100 * row.difference:+.0f}%",
        f"{row.promised:.3f}", measured, interval,
    ]  # fmt: skip


def write(out: Path, rows: Sequence[DiscrepancyRow], machine: Mapping[str, object]) -> None:
    """Write OUT.json and OUT.md, each as a whole."""
    write_json(out.with_suffix(".json"), {**machine, "rows": [{**asdict(r), "difference": r.difference} for r in rows]})
    heading = ", ".join(f"{name} {value}" for name, value in machine.items())
    replace_file(out.with_suffix(".md"), f"{table(rows)}\n{heading}.\n")


def read(out: Path) -> list[DiscrepancyRow]:
    """Return the rows of OUT.json; none where there is no such file."""
    path = out.with_suffix(".json")
    if not path.exists():
        return []
    names = [field.name for field in fields(DiscrepancyRow)]
    held = [{name: entry[name] for name in names} for entry in json.loads(path.read_text("utf-8"))["rows"]]
    return [DiscrepancyRow(**{**entry, "ci95": entry["ci95"] and tuple(entry["ci95"])}) for entry in held]


def run(arguments: Arguments) -> Iterator[DiscrepancyRow]:
    """Yield a row per model and write each as it comes."""
    rows = read(arguments.out) if arguments.resume and arguments.out is not None else []
    yield from rows
    there = {row.model for row in rows}
    for model in (name for name in arguments.models or tuple(zoo.names()) if name not in there):
        problem = open_problem(model, provider=arguments.provider, threads=arguments.threads)
        rows.append(compare(problem, model, arguments.node_limit))
        if arguments.out is not None:
            machine = {
                "device": device_name(problem.deployment.provider), "threads": arguments.threads,
                "onnxruntime": onnxruntime.__version__, "load": round(os.getloadavg()[0], 1),
            }  # fmt: skip
            write(arguments.out, rows, machine)
        yield rows[-1]


def main() -> None:
    """Compare and print."""
    header = True
    for row in run(tyro.cli(Arguments)):
        lines = table([row]).splitlines()
        print("\n".join(lines if header else lines[2:]), flush=True)
        header = False


if __name__ == "__main__":
    main()
