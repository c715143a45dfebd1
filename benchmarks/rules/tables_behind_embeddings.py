"""Judge rules that look rows up in tables instead of computing them, under three kinds of inputs:

    python -m benchmarks.rules.tables_behind_embeddings --models bert-tiny bert [--json]

A table is as fast as its rows are near. With `one` repeated input they lie in the caches; `rotating` are the inputs of
every measurement, with token ids from the whole vocabulary; `text` rotates too, with ids as frequent as words of a text
are (Zipf, "Human Behavior and the Principle of Least Effort", 1949: the word of rank r is 1/r as frequent as the first;
vocabularies are sorted nearly by frequency). For every kind, the model with each list of rules is timed in turn with
the model without it, by the meter of all searches and the plan of reported results.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
from numpy.typing import NDArray

from agents.core.config import load_config, model_uri
from benchmarks.rules.rule_lists import rewritten
from graph_rewrite import Graph
from graph_rewrite.errors import UserError
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import JUDGE, Clock, Deployment, FeedSpec
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.rules.matmul.embedding import RULES
from graph_rewrite.runtime import Recipes
from graph_rewrite.runtime.ort_worker.feeds import make_feeds
from graph_rewrite.task.input_data import model_inputs
from graph_rewrite.task.meters import ort_meter, random_feeds
from graph_rewrite.task.models import open_model

KINDS = ("one", "rotating", "text")
TEXTS = 256
"""Inputs of the kind `text`."""


@dataclass(frozen=True)
class Arguments:
    """Judge tables behind embeddings."""

    models: tuple[str, ...] = ("bert-tiny", "bert")
    """Names of configurations."""
    lists: tuple[str, ...] = tuple(rule.__name__ for rule in RULES)
    """Rules by name, separated by commas within a list, each applied at all its sites. A list without a site in a model
    is left out of its rows and named on standard error."""
    base: str = ""
    """Rules that both sides have, such as FusePackedAttention."""
    refuse: tuple[str, ...] = ()
    """Optimisers of ONNX Runtime that both sides run without, such as SkipLayerNormFusion."""
    inputs: tuple[str, ...] = KINDS
    """Kinds of inputs: one, rotating, text."""
    seconds: float = JUDGE.budget_s
    """Most seconds for timing each row."""
    clock: Clock = "wall"
    """`cpu` counts what the thread itself computes, where other processes share the cores."""
    core: int | None = None
    """The core that runs are pinned to."""
    seed: int = 0
    """Seed of the inputs."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print {"rows": [...]} and nothing else."""


@dataclass(frozen=True)
class LookupRow:
    """One comparison: the speed-up of the model with a list of rules over the one without, and its 95% interval.
    `table_mb` are the megabytes that the rules add to the weights."""

    model: str
    rules: str
    inputs: str
    without_ms: float
    with_ms: float
    speedup: float
    speedup_ci95: tuple[float, float]
    table_mb: float


def recipes(graph: Graph, kind: str, folder: Path, seed: int) -> Recipes:
    """Return the inputs of a kind.

    Raises:
        UserError: there is no such kind.
    """
    random = replace(random_feeds(graph), seed=seed)
    if kind == "one":
        return replace(random, rotated=())
    if kind == "rotating":
        return random
    if kind == "text":
        return _texts(graph, random, folder)
    raise UserError(f"there are no inputs {kind!r}, only {', '.join(KINDS)}")


def _texts(graph: Graph, random: FeedSpec, folder: Path) -> list[FeedSpec]:
    """Write inputs with token ids as frequent as words into a file, and return recipes that read them."""
    rng, inputs = np.random.default_rng(random.seed), model_inputs(graph)
    made = make_feeds(inputs, random)
    arrays: dict[str, Any] = {name: np.broadcast_to(value, (TEXTS, *value.shape)) for name, value in made.items()}
    for name, (_, size) in index_ranges(graph).items():
        shape = arrays[name].shape
        arrays[name] = zipf(rng, size, shape).astype(made[name].dtype)
    path = folder / "texts.npz"
    np.savez(path, **arrays)
    return [FeedSpec(npz=str(path), item=item) for item in range(TEXTS)]


def zipf(rng: np.random.Generator, size: int, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return ranks 0 to `size` - 1, rank r about 1 / (r + 1) times as often as rank 0."""
    drawn: NDArray[np.int64] = np.exp(rng.random(shape) * np.log1p(size)).astype(np.int64) - 1
    return np.minimum(drawn, size - 1)


def rows(arguments: Arguments) -> Iterator[LookupRow]:
    """Measure model by model, list by list, and the kinds of inputs one after another."""
    for name in arguments.models:
        model = open_model(model_uri(name, dict(load_config(name).model)))
        without = rewritten(model.graph, arguments.base) if arguments.base else model.graph
        without = without.with_disabled_optimizers(arguments.refuse)
        for rules in arguments.lists:
            try:
                variant = rewritten(without, rules)
            except UserError as error:
                print(f"{name}: {error}", file=sys.stderr)
                continue
            grown = (weight_bytes(variant) - weight_bytes(without)) / 1e6
            for kind in arguments.inputs:
                with tempfile.TemporaryDirectory(prefix="tables-") as folder:
                    feeds = recipes(model.graph, kind, Path(folder), arguments.seed)
                    plan = replace(JUDGE, budget_s=arguments.seconds)
                    with ort_meter(
                        model, Deployment(), Path(folder), clock=arguments.clock, feeds=feeds, full=plan
                    ) as meter:
                        found = meter.compare(without, variant)
                yield LookupRow(
                    name, rules, kind, round(found.baseline_ms, 4), round(found.ms, 4), round(found.speedup, 4),
                    (round(found.ci95[0], 4), round(found.ci95[1], 4)), round(grown, 1),
                )  # fmt: skip


def main() -> None:
    """Measure and print row by row."""
    arguments = tyro.cli(Arguments)
    if arguments.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    found: list[LookupRow] = []
    for row in rows(arguments):
        found.append(row)
        if not arguments.json:
            low, high = row.speedup_ci95
            print(
                f"{row.model:12} {row.rules:28} {row.inputs:9} {row.without_ms:9.3f} ms  x{row.speedup:.3f} "
                f"({low:.3f} to {high:.3f})  {row.table_mb:+.1f} MB", flush=True,
            )  # fmt: skip
    if arguments.json:
        print(json.dumps({"rows": [asdict(row) for row in found]}, indent=1))


if __name__ == "__main__":
    main()
