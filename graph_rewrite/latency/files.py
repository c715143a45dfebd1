"""Latency of a model file as it is deployed, against another file: no graph is loaded, nothing is written."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graph_rewrite.latency.estimates import latency_of
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.latency.meter import FileMeter, Latency, LatencyMeter, Measurable
from graph_rewrite.latency.ort_meter import Clock, OrtMeter
from graph_rewrite.runtime import (
    JUDGE,
    Deployment,
    Plan,
    Recipes,
    WorkerClient,
    WorkerFailure,
    as_recipes,
    recipes_to_json,
)
from graph_rewrite.runtime.ort_worker.wire import Message


@dataclass(frozen=True)
class _File:
    """A model file, as a meter sees it."""

    path: Path
    disabled_optimizers: frozenset[str] = frozenset()
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()

    @property
    def hash(self) -> str:
        return hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()


def compare_files(
    original: Path,
    optimised: Path,
    deployment: Deployment,
    *,
    workspace: Path,
    plan: Plan = JUDGE,
    feeds: Recipes | None = None,
    threads: int | None = None,
    clock: Clock = "wall",
) -> Latency:
    """Return the latency of a model file opened with `deployment`, and its speed-up over `original`, opened as anybody
    would: with the same provider and threads. Both run in a worker of their own.

    Args:
        feeds: inputs to run with, in turn.
        threads: threads of the original, where they differ.
        clock: as in `OrtMeter`.

    Raises:
        BaselineError: the original cannot be measured.
    """
    plain = deployment if threads is None else replace(deployment, threads=threads)
    settings = dict(deployment.settings.to_json())
    if plain.threads != deployment.threads:
        settings["threads"] = deployment.threads
    asked = _File(optimised, deployment.disabled_optimizers, tuple(sorted(settings.items())))
    with OrtMeter(
        _File(original), _in_place, plain, workspace=workspace, feeds=feeds, keep_files=True, clock=clock
    ) as meter:
        return meter.confirm(asked, plan)


@dataclass(frozen=True)
class DeployedFile:
    """A model file with the way in which it is run."""

    path: Path
    deployment: Deployment

    def to_request(self) -> dict[str, Any]:
        """Return plain values for a worker."""
        return {"path": str(self.path), "deployment": self.deployment.to_request()}


def compare_deployed(
    before: DeployedFile,
    after: DeployedFile,
    worker: WorkerClient,
    *,
    plan: Plan,
    feeds: Recipes,
    clock: Clock = "wall",
) -> Latency:
    """Return the latency of a file and its speed-up over another, each run in its own way, even in different runtimes.
    They are timed in turn in a worker process; a failure of either is a result.

    Args:
        feeds: inputs to run with, in turn.
        clock: as in `OrtMeter`.

    Raises:
        OutOfTime: the time limit is reached.
    """
    return compare_with_answers(before, after, worker, plan=plan, feeds=feeds, clock=clock)[0]


def compare_with_answers(
    before: DeployedFile,
    after: DeployedFile,
    worker: WorkerClient,
    *,
    plan: Plan,
    feeds: Recipes,
    clock: Clock = "wall",
    answers: Message | None = None,
) -> tuple[Latency, Message]:
    """Return what `compare_deployed` does, and the reply of the worker.

    Args:
        answers: inputs on which the outputs of both are compared before they are timed, and limits of the differences;
            the findings are in the reply.

    Raises:
        OutOfTime: the time limit is reached.
    """
    request = {
        "kind": "compare", "baseline": before.to_request(), "candidate": after.to_request(), "plan": plan.to_json(),
        "clock": clock, "feeds": recipes_to_json(as_recipes(feeds)), **({"answers": answers} if answers else {}),
    }  # fmt: skip
    try:
        with MachineLock():
            reply = worker.request(request)
    except WorkerFailure as failure:
        return Latency.failed(failure.status, failure.message), {}
    if reply["status"] != "ok":
        return Latency.failed(reply["status"], reply["message"]), reply
    return latency_of(reply["blocks"], identical=before == after), reply


def deployed_latency(
    meter: LatencyMeter, original: Path, optimised: Path, deployment: Deployment, *, workspace: Path, plan: Plan
) -> Latency | None:
    """Return the latency of a saved file as it will be deployed, against the original, with what `meter` measures by;
    None for a meter that times no files.

    Raises:
        BaselineError: the original cannot be measured.
        OutOfTime: the time limit is reached.
    """
    if isinstance(meter, FileMeter):
        return meter.compare_files(original, optimised, deployment, plan)
    if not isinstance(meter, OrtMeter):
        return None
    return compare_files(
        original, optimised, deployment, workspace=workspace, plan=plan, feeds=meter.feeds,
        threads=meter.deployment.threads, clock=meter.clock,
    )  # fmt: skip


def _in_place(graph: Measurable, folder: Path) -> Path:
    if not isinstance(graph, _File):
        raise TypeError(f"not a file: {type(graph).__name__}")
    return graph.path
