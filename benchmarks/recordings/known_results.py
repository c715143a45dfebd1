"""Write the results that come with RewriteGym: `python -m benchmarks.recordings.known_results`.

The fastest results are replayed on their models and recorded anew in `known_results/`, without measuring: one file
each, named like those of the user's memory of results. They come from the tables of benchmarks/results, from what
`benchmarks.time_limits` recorded there, and from `known_results/` itself: a result stays until a faster one is found.
Those of `benchmarks.time_limits` are what `rewritegym optimize` itself found, at its price of weights, and name the
machine: they are begun with first there. `rewritegym optimize` begins with them where a model has the architecture of
one, whatever its weights. A policy's results stand for its checkpoint: they are what its rollouts find, and need no
PyTorch.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.conclusion.recordings import actions_of
from agents.core.config import load_config, model_uri
from benchmarks import RESULTS
from benchmarks.protocol.table import table_files
from benchmarks.recordings.replay import results_of
from graph_rewrite import zoo
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay import Recording, record, replay
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.replay.remembered import RememberedResult
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.models import open_model

FOLDER = RESULTS.parents[1] / "known_results"
LEAST = 1.02
"""Speed-up from which a result is worth beginning with."""
AGENTS = ("regional", "ppo")
"""Agents whose results are taken: the one that finds most, and the one that stands for the checkpoints."""


@dataclass(frozen=True)
class Arguments:
    """Write the results that come with RewriteGym."""

    models: tuple[str, ...] = ()
    """Models, such as bert-tiny; all by default."""
    output: Annotated[Path, tyro.conf.arg(help="The folder to write to.")] = FOLDER


@dataclass(frozen=True, slots=True)
class RecordedSearch:
    """A recorded result, and what it was found for."""

    uri: str
    kind: str
    """The agent; `optimize` for the command, `standard` for operators of the ONNX standard alone."""
    threads: int
    granularity: str
    recording: Recording
    speedup: float
    provider: str
    device: str = ""
    """The machine, where results of others are kept beside it."""

    @property
    def name(self) -> str:
        """The model's name in the zoo."""
        return zoo.name_in(self.uri)


def recorded(folder: Path) -> Iterator[RecordedSearch]:
    """Yield the results in the tables of a folder."""
    for path in table_files(folder):
        for model, result in results_of(path):
            if result["agent"] not in AGENTS or result["speedup"] < LEAST:
                continue
            provider, threads = result["deployment"]["provider"], result["deployment"]["threads"]
            recording = Recording.from_json(result)
            yield _search(model, result["agent"], threads, recording, result["speedup"], provider)


def optimised(folder: Path) -> Iterator[RecordedSearch]:
    """Yield the results in the files of `benchmarks.time_limits`, with the speed-ups that they were judged to have."""
    for path in sorted(folder.glob("*/time-limits*.json")):
        stored = json.loads(path.read_text())
        for row in stored["rows"]:
            if row.get("actions") is None or not row["verified"] or row["judged"] < LEAST:
                continue
            recording = Recording.from_json(row["actions"])
            provider, device = recording.deployment["provider"], stored["machine"]
            yield _search(row["model"], "optimize", row["threads"], recording, row["judged"], provider, device)


def known(folder: Path) -> Iterator[RecordedSearch]:
    """Yield the known results in a folder."""
    for path in sorted(folder.glob("*.json")):
        stored = RememberedResult.from_json(json.loads(path.read_text()))
        context = stored.context
        yield _search(
            context["model"], context["found_by"], context["threads"], stored.recording, stored.speedup,
            context["provider"], context.get("device", ""),
        )  # fmt: skip


def _search(
    model: str, kind: str, threads: int, recording: Recording, speedup: float, provider: str, device: str = ""
) -> RecordedSearch:
    config = load_config(model)
    uri = model if "://" in model else model_uri(model, dict(config.model))
    return RecordedSearch(uri, kind, threads, config.env.granularity, recording, speedup, provider, device)


def fastest(found: Iterator[RecordedSearch]) -> list[RecordedSearch]:
    """Return the fastest result for each model, kind, number of threads and, where it is named, machine."""
    best: dict[tuple[str, str, int, str], RecordedSearch] = {}
    for one in found:
        place = (one.uri, one.kind, one.threads, one.device)
        if place not in best or one.speedup > best[place].speedup:
            best[place] = one
    return sorted(best.values(), key=lambda one: one.uri)


def remembered(one: RecordedSearch) -> RememberedResult | None:
    """Return a result as it is remembered; None where it does not replay as a whole."""
    old, graph = one.recording, _graph(one.uri)
    rewriter = Rewriter(rule_set(old.rules), one.granularity)  # type: ignore[arg-type]
    found = replay(old, graph, rewriter)
    if not found.complete:
        return None
    deployment = {"provider": one.provider, "threads": one.threads}
    made = record(graph, rewriter, actions_of(found.applied), end=found.graph, rules=old.rules, deployment=deployment)
    steps = tuple(replace(step, key="", description=step.description.partition(":")[0]) for step in made.steps)
    made = replace(made, steps=steps, version="", commit="", model=one.uri)
    context = {"model": one.uri, "found_by": one.kind, **deployment}
    if one.device:
        context["device"] = one.device
    return RememberedResult(made, round(one.speedup, 3), 0.0, context)


def _is_of(path: Path, models: Sequence[str]) -> bool:
    """Return whether a known result is of one of some models; without models all are."""
    return not models or zoo.name_in(json.loads(path.read_text())["context"]["model"]) in models


@lru_cache(maxsize=1)
def _graph(uri: str) -> Graph:
    return open_model(uri).graph


def run(arguments: Arguments, console: Console) -> int:
    """Write the results. Return the number that was lost."""
    memory, kept, lost = ResultMemory(arguments.output, most=10**6), set[Path](), 0
    before = {path for path in arguments.output.glob("*.json") if _is_of(path, arguments.models)}
    found = itertools.chain(known(arguments.output), recorded(RESULTS), optimised(RESULTS))
    for one in fastest(found):
        if arguments.models and one.name not in arguments.models:
            continue
        made = remembered(one)
        said = f"{one.uri}, {one.kind}, {one.threads} thread(s), x{one.speedup:.3f}"
        if made is None:
            lost += 1
            console.print(f"{said}: does not replay, left out", highlight=False)
            continue
        memory.remember(made)
        kept.add(memory.path_of(made))
        console.print(f"{said}: {len(made.recording.steps)} rewrites", highlight=False)
    for path in before - kept:
        path.unlink()
    return lost


def main() -> int:
    """Run the command and return the exit code: 1 where a result was lost."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.recordings.known_results")
    return run_command(lambda: int(run(arguments, stderr_console()) > 0))


if __name__ == "__main__":
    sys.exit(main())
