"""Profiles of originals and of results, under the deployment that each was measured with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from agents.core.config import load_config
from benchmarks.figures.rows import Results, Row, Series
from benchmarks.headroom.roofs import distances, roof
from benchmarks.protocol.searches.runs import uri_of
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.inspection.profile import Profile, profile_model
from graph_rewrite.inspection.roofline import Peaks, measure_peaks
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.replay import Recording, replay
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.runtime import Deployment, WorkerClient
from graph_rewrite.system.scratch import scratch_folder
from graph_rewrite.task.models import Model, open_model

ORIGINAL = "original"


class Profiler(Protocol):
    """Profiles graphs on one machine; tests plant their own."""

    peaks: Peaks

    def __call__(self, graph: Graph, deployment: Deployment) -> Profile: ...


class MachineProfiler:
    """Profiles graphs in a worker process on this machine."""

    def __init__(self, worker: WorkerClient, folder: Path, threads: int) -> None:
        self._worker, self._folder = worker, folder
        self.peaks = measure_peaks(Deployment("cpu", threads), worker, folder)

    def __call__(self, graph: Graph, deployment: Deployment) -> Profile:
        return profile_model(graph, deployment, self._worker, self._folder)


@contextmanager
def this_machine(threads: int) -> Iterator[MachineProfiler]:
    """Yield a profiler; nothing else measures on this machine meanwhile.

    Raises:
        MachineError: no worker process starts, or ONNX Runtime fails on a small model.
    """
    with scratch_folder("headroom") as folder, WorkerClient() as worker, MachineLock():
        yield MachineProfiler(worker, folder, threads)


def headroom_of(model: str, profiler: Profiler, threads: int, results: Results | None = None) -> dict[str, Any]:
    """Return the headroom of a model: of its original and, with results, of each series by its judged latency.

    Raises:
        UserError: there is no such model.
        MachineError: ONNX Runtime cannot run it.
    """
    batch = 1 if results is None else int(results.protocol.get("batch", 1))
    opened = open_model(uri_of(model, batch))
    original = roof(profiler(opened.original, Deployment("cpu", threads)), profiler.peaks)
    found: dict[str, Any] = {"model": model, "peaks": asdict(profiler.peaks), ORIGINAL: original, "ours": None}
    leader = None if results is None else results.leader()
    if results is None or leader is None:
        return found | {"contestants": distances(original, {ORIGINAL: original["ms"]})}
    try:
        found["ours"] = _ours(model, leader, results, opened, profiler)
    except (UserError, MachineError) as error:  # the latencies are told all the same
        found["ours_missing"] = str(error)
    latencies = judged_latencies(results, model) or {ORIGINAL: original["ms"]}
    return found | {"contestants": distances(original, latencies, leader.label, found["ours"])}


def judged_latencies(results: Results, model: str) -> dict[str, float]:
    """Return the judged milliseconds of a model's original and of each agent and peer, medians over runs that count."""
    found = {}
    baseline = results.baseline_ms(model)
    if baseline is not None:
        found[ORIGINAL] = baseline
    for series in results.series("agent", "peer"):
        told = [r.latency_ms for r in results.of(series, model) if r.counts and r.latency_ms]
        if told:
            found[series.label] = median(told)
    return found


def _ours(model: str, leader: Series, results: Results, opened: Model, profiler: Profiler) -> dict[str, Any]:
    """Return the roof of the leader's result in the middle of its seeds: its rewrites are replayed.

    Raises:
        UserError: it recorded no rewrites, or they do not replay as a whole.
        MachineError: ONNX Runtime cannot run it.
    """
    row, stored = _middle(results, leader, model)
    if row.keeps_original:
        raise UserError(f"{leader.label} keeps the original")
    recording = Recording.from_json(stored)
    granularity = load_config(model).env.granularity
    replayed = replay(recording, opened.graph, Rewriter(rule_set(recording.rules), granularity))
    if not replayed.complete:
        raise UserError(f"the rewrites of {leader.label} do not replay: {replayed.first_difference}")
    deployment = Deployment.from_json(stored["deployment"]) if "deployment" in stored else Deployment("cpu")
    return roof(profiler(replayed.graph, deployment), profiler.peaks) | {"seed": row.seed}


def _middle(results: Results, leader: Series, model: str) -> tuple[Row, Mapping[str, Any]]:
    """Return the run of the leader whose latency is in the middle, and what the file has stored of it."""
    stored: Sequence[Mapping[str, Any]] = json.loads(results.path.read_text())["rows"]
    runs = [
        (row, entry) for row, entry in zip(results.rows, stored, strict=True)
        if row in results.of(leader, model) and row.counts and row.latency_ms is not None
    ]  # fmt: skip
    if not runs:
        raise UserError(f"no run of {leader.label} counts")
    return sorted(runs, key=lambda run: run[0].latency_ms or 0.0)[(len(runs) - 1) // 2]
