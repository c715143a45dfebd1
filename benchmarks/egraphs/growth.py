"""Measure time and memory of e-graphs: `python -m benchmarks.egraphs.growth [MODEL] [--nodes N]`.

Prints the growth of the model's e-graph by each rule, the time of an application, the time of extraction by each
method, and time and memory at N e-nodes. Times are CPU seconds of this process.
"""

from __future__ import annotations

import resource
import statistics
import time
from dataclasses import dataclass

import tyro

from graph_rewrite import all_rules
from graph_rewrite.egraph import Application, EGraph, apply_rule, from_graph
from graph_rewrite.egraph.costs import costed, unit_cost
from graph_rewrite.egraph.extract import METHODS, extract
from graph_rewrite.task.models import open_model


@dataclass(frozen=True)
class Arguments:
    """Measure the e-graph of one model."""

    model: tyro.conf.Positional[str] = "bert"
    """A model of the zoo, or an ONNX file."""
    nodes: int = 50_000
    """E-nodes up to which the e-graph is grown for the last part."""
    time_limit: float = 60.0
    """Seconds per extraction."""


def timed_application(egraph: EGraph, name: str) -> tuple[float, Application]:
    """Return the CPU seconds of one application, and its result."""
    rule = next(rule for rule in all_rules() if rule.name == name)
    started = time.process_time()
    report = apply_rule(egraph, rule)
    return time.process_time() - started, report


def extractions(egraph: EGraph, time_limit: float) -> None:
    """Extract by every method at unit costs."""
    arrays = costed(egraph, unit_cost)
    print(f"  below the roots: {len(arrays.nodes)} e-nodes in {len(arrays.classes)} classes")
    for method in METHODS:
        started = time.process_time()
        found = extract(arrays.graph, method, time_limit=time_limit)
        gap = "" if found.gap is None else f", gap {100 * found.gap:.2f}%"
        taken = time.process_time() - started
        print(f"  {method}: cost {found.cost:g}, estimate {found.estimate:g}{gap}, {taken:.2f} s")


def memory_mib() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def each_rule(egraph: EGraph) -> list[tuple[float, Application]]:
    """Apply every rule once, each to a fork of its own."""
    return [timed_application(egraph.fork(), rule.name) for rule in all_rules()]


def main() -> None:
    """Measure and print."""
    arguments = tyro.cli(Arguments)
    graph = open_model(arguments.model).graph
    started = time.process_time()
    egraph = from_graph(graph)
    print(f"{arguments.model}: {len(graph.nodes)} operators, {egraph.size} e-nodes, "
          f"converted in {time.process_time() - started:.3f} s")  # fmt: skip
    extractions(egraph, arguments.time_limit)

    alone = each_rule(egraph)
    grown = [report.added for _, report in alone if report.changed]
    times = [1e3 * taken for taken, _ in alone]
    print(f"each of {len(alone)} rules alone, once: {len(grown)} change it, by {min(grown)} to {max(grown)} e-nodes; "
          f"median {statistics.median(times):.1f} ms, longest {max(times):.0f} ms")  # fmt: skip

    together, started = egraph.fork(), time.process_time()
    for rule in all_rules():
        apply_rule(together, rule)
        if together.size >= arguments.nodes:
            break
    print(f"all rules once, one after another, to {rule.name}: {together.size} e-nodes in "
          f"{len(together.classes())} classes, {together.filtered} filtered, "
          f"{time.process_time() - started:.1f} s")  # fmt: skip

    before, iteration = memory_mib(), 0
    while together.size < arguments.nodes and iteration < 5:
        iteration += 1
        for rule in all_rules():
            apply_rule(together, rule)
            if together.size >= arguments.nodes:
                break
    print(f"grown on to {together.size} e-nodes: {memory_mib():.0f} MiB in all, {memory_mib() - before:.0f} MiB more")
    started = time.process_time()
    together.fork()
    print(f"  fork: {1e3 * (time.process_time() - started):.1f} ms")
    rows = sorted(each_rule(together), key=lambda row: -row[0])
    over = sum(taken > 1 for taken, _ in rows)
    print(f"  one application: median {rows[len(rows) // 2][0]:.3f} s, longest {rows[0][0]:.2f} s "
          f"({rows[0][1].rule}), over 1 s: {over} of {len(rows)}")  # fmt: skip
    extractions(together, arguments.time_limit)


if __name__ == "__main__":
    main()
