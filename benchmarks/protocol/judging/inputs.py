"""Inputs of a judgement: `python -m benchmarks.protocol.judging.inputs URI COUNT SEED FOLDER PROVIDER`.

A process of its own writes them, so that the harness holds no model in memory while others are timed. It prints how far
outputs may differ, as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.protocol.judging.contestant_process import write_feeds
from benchmarks.protocol.machine.processes import child_environment
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.errors import MachineError
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import Deployment, FeedSpec, open_session
from graph_rewrite.runtime.ort_worker.session_runs import feeds_of
from graph_rewrite.task.meters import random_feeds
from graph_rewrite.task.models import Model, open_model


def feed_specs(model: Model, count: int, seed: int = 0) -> list[FeedSpec]:
    """Return recipes for different inputs of a model. Token ids are spread over the whole tables, as in production."""
    usual = random_feeds(model.graph)
    ranges = {**usual.input_ranges, **index_ranges(model.graph)}
    return [replace(usual, seed=seed + place, input_ranges=ranges) for place in range(count)]


def make_inputs(model: Model, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Return different inputs of a model, by name; the first dimension of the list is the input."""
    session = open_session(model.path, Deployment().unoptimised())
    return feeds_of(session, [spec.to_json() for spec in feed_specs(model, count, seed)])


def write_inputs(uri: str, count: int, seed: int, folder: Path, provider: str = "cpu") -> float:
    """Write inputs of a model into a folder, and return the tolerance for its outputs with a provider, by a process of
    its own.

    Raises:
        MachineError: none can be made.
    """
    module = "benchmarks.protocol.judging.inputs"
    command = [sys.executable, "-m", module, uri, str(count), str(seed), str(folder), provider]
    done = subprocess.run(
        command, capture_output=True, text=True, env=child_environment(1), check=False, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise MachineError(f"no inputs can be made for {uri}: {said[-1] if said else done.returncode}")
    return float(json.loads(done.stdout.splitlines()[-1])["tolerance"])


def main(arguments: Sequence[str]) -> int:
    """Write the inputs of the command line."""
    uri, count, seed, folder, provider = arguments
    model = open_model(uri)
    write_feeds(Path(folder), make_inputs(model, int(count), int(seed)))
    print(json.dumps({"tolerance": default_tolerance(model.original, Deployment(provider))}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
