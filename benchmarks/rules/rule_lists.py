"""Measure lists of rules end to end, each rule applied at all its sites:

    python -m benchmarks.rules.rule_lists --model bert --refuse SkipLayerNormFusion \
        --lists FusePackedAttention,FeedForwardToPointwiseConvs FusePackedAttention,StrassenFeedForward

Lists are compared with the original under all of ONNX Runtime's optimisations, in turn, in one process, with fresh
sessions for each of `instances` blocks. No agent chooses: the benchmark shows the worth of a rule on a model, and
the gain that a search should have found.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.core.config import load_config, model_uri
from benchmarks.rules.blocked_layout import applied
from graph_rewrite import Graph, save
from graph_rewrite.errors import UserError
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.rules import registered_rules
from graph_rewrite.runtime import Block, Deployment, Estimate, FeedSpec, Plan, Runner, estimate, repeats_for, time_block
from graph_rewrite.task.models import open_model


@dataclass(frozen=True)
class Arguments:
    """Measure lists of rules on one model."""

    lists: tuple[str, ...]
    """Rules by name, separated by commas, in the order in which they are applied."""
    model: str = "bert"
    refuse: tuple[str, ...] = ()
    """Optimisers of ONNX Runtime that the rewritten models run without."""
    instances: int = 4
    """Pairs of sessions per list."""
    budget: float = 6.0
    """Seconds per pair of sessions."""
    core: int = 0
    """The core that runs are pinned to."""


def rewritten(graph: Graph, names: str) -> Graph:
    """Return the graph after each rule of a list, at all its sites.

    Raises:
        ValueError: there is no rule of a name, or it has no site.
    """
    known = {rule.name for rule in registered_rules()}
    for name in names.split(","):
        if name not in known:
            raise UserError(f"there is no rule {name!r}; `rewritegym rules list` shows them")
        before = graph
        graph = applied(graph, (name,))
        if graph is before:
            raise UserError(f"{name} has no site in the model as the rules before it left it")
    return graph


def compare(original: Graph, variant: Graph, arguments: Arguments, folder: Path) -> tuple[Estimate, float]:
    """Return the speed-up of a variant over the original, and the original's milliseconds."""
    paths = [str(save(graph, folder / f"{i}.onnx")) for i, graph in enumerate((original, variant))]
    deployments = (Deployment(), Deployment().with_disabled(arguments.refuse))
    feeds = FeedSpec(input_ranges=index_ranges(original))
    plan = Plan(min_pairs=5, max_pairs=200, target_ci_width=0.0)
    blocks: list[Block] = []
    for instance in range(arguments.instances):
        order = (0, 1) if instance % 2 == 0 else (1, 0)
        opened = {side: Runner(paths[side], deployments[side], feeds) for side in order}
        seconds = [opened[side].warm_up(2) for side in (0, 1)]
        blocks.append(time_block(opened[0].run, opened[1].run, plan, repeats_for(min(seconds)), arguments.budget))
    return estimate(blocks), 1e3 * min(seconds for block in blocks for seconds in block.baseline)


def main() -> None:
    """Measure and print list by list."""
    arguments = tyro.cli(Arguments)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {arguments.core})
    original = open_model(model_uri(arguments.model, dict(load_config(arguments.model).model))).graph
    for names in arguments.lists:
        try:
            variant = rewritten(original, names)
        except ValueError as error:
            sys.exit(str(error))
        with tempfile.TemporaryDirectory() as folder:
            found, baseline = compare(original, variant, arguments, Path(folder))
        print(
            f"{arguments.model}  {baseline:8.1f} ms  x{found.speedup:.3f} ({found.low:.3f} to {found.high:.3f})"
            f"  {len(variant.nodes):5} operators  {names}", flush=True
        )  # fmt: skip


if __name__ == "__main__":
    main()
