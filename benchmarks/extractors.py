"""What extraction methods take the same graphs for: table 1 of Hartmann et al., PACT'24, on the zoo.

`python -m benchmarks.extractors [MODEL ...]` prints, for the initial e-graph of each model, the cost that each method
estimates and the true one of its choice. An initial e-graph holds one graph only, so all choices are the same, and an
estimate that differs from the integer program's is wrong. Every operator costs 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from graph_rewrite.egraph import EGraph, from_graph
from graph_rewrite.egraph.costs import costed, unit_cost
from graph_rewrite.egraph.extract import METHODS, Extraction, extract
from graph_rewrite.models import open_model

SMALL = ("squeezenet", "mobilenet-v2", "resnet18", "resnet50", "resnext50", "inception-v3", "nasrnn", "bert-tiny")
"""Zoo models that are exported within seconds."""


@dataclass(frozen=True)
class Arguments:
    """What to compare."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = SMALL
    """Models of the zoo, or ONNX files."""
    time_limit: float = 30.0
    """Seconds per extraction."""


def compare(egraph: EGraph, time_limit: float = 30.0) -> dict[str, Extraction]:
    """What each method extracts from one e-graph, by method."""
    arrays = costed(egraph, unit_cost)
    return {method: extract(arrays.graph, method, time_limit=time_limit) for method in METHODS}


def rows(models: tuple[str, ...], time_limit: float) -> Iterator[str]:
    """A header and a line per model: estimates by method, then the cost that the integer program proves."""
    yield f"{'model':16s}" + "".join(f"{method:>12s}" for method in METHODS) + f"{'true':>12s}"
    for model in models:
        found = compare(from_graph(open_model(model).graph), time_limit)
        estimates = "".join(f"{found[method].estimate:12.4g}" for method in METHODS)
        yield f"{model:16s}{estimates}{found['ilp'].cost:12.4g}"


def main() -> None:
    """Compare and print."""
    arguments = tyro.cli(Arguments)
    for row in rows(arguments.models, arguments.time_limit):
        print(row, flush=True)


if __name__ == "__main__":
    main()
