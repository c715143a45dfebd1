"""End-to-end latency in ONNX Runtime, of candidates against the model they came from."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

from graph_rewrite.errors import UserError
from graph_rewrite.latency.cache import MeasurementCache
from graph_rewrite.latency.device import device_key
from graph_rewrite.latency.estimates import is_torn, latency_of, pooled
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.latency.measured_inputs import FindRecipe, MeasuredInputs
from graph_rewrite.latency.meter import BaselineError, Effort, Latency, Materialize, Measurable, MeasurementError
from graph_rewrite.runtime import (
    FULL,
    SCREEN,
    Deployment,
    FeedSpec,
    Plan,
    Recipes,
    WorkerClient,
    WorkerFailure,
    runtime_of,
)
from graph_rewrite.runtime.custom_ops import hint
from graph_rewrite.runtime.ort_worker.wire import Message
from graph_rewrite.system.deadline import seconds_left

DISTURBED_RETRIES = 2
"""Further measurements where other load tore the interval apart."""

_Key = tuple[str, str]
Clock = Literal["wall", "cpu"]
"""The clock of a run: `wall` for the time that passes, `cpu` for the time that the thread itself computes."""


class _NotWrittenError(MeasurementError):
    """A candidate's file could not be written."""


@dataclass(frozen=True)
class _Side:
    """One of the two models of a comparison: a graph and how it is run."""

    graph: Measurable
    deployment: Deployment

    @cached_property
    def key(self) -> _Key:
        return self.graph.hash, self.deployment.key


class OrtMeter:
    """Times a graph and the baseline in turn in a worker process and compares them.

    The baseline is run plainly (every optimiser of ONNX Runtime on), a candidate with the optimisers refused and the
    session settings made that it asks for. `materialize` writes a graph into `workspace`; the file of a candidate is
    removed after its measurement unless `keep_files`. `screen` and `full` are the plans of the two efforts.

    Runs take the inputs of `feeds` in turn: those of each recipe, or many random ones of a single one.

    `other_feeds` looks for inputs that the baseline runs on, should it fail on `feeds`; it returns None where it finds
    none.

    `clock` says what the time of a run is: `wall`, what passes, or `cpu`, what the thread computes. On one thread of a
    quiet CPU they are the same; where other processes share its cores, only the second tells models apart.

    Values are memoised per graph and effort for the life of the meter, and good ones are kept in `cache` across
    runs; a `full` result also answers a later `screen`. A candidate that crashes, hangs, runs out of memory or cannot
    be opened gives a Latency that says so. Raises BaselineError when the baseline cannot be measured. Everything that
    loads the machine happens under one lock (`lock_path`, by default one per machine).

    The meter can be pickled and forked; each copy starts a worker of its own when it first needs one.
    """

    def __init__(
        self,
        baseline: Measurable,
        materialize: Materialize,
        deployment: Deployment | None = None,
        *,
        workspace: str | os.PathLike[str],
        cache: MeasurementCache | None = None,
        feeds: Recipes | None = None,
        screen: Plan = SCREEN,
        full: Plan = FULL,
        timeout_s: float = 30.0,
        memory_limit_mb: int | None = None,
        lock_path: str | os.PathLike[str] | None = None,
        keep_files: bool = False,
        clock: Clock = "wall",
        other_feeds: FindRecipe | None = None,
    ) -> None:
        self.deployment = deployment if deployment is not None else Deployment()
        if clock == "cpu" and (not self.deployment.facts.is_cpu or self.deployment.threads != 1):
            raise UserError("the clock `cpu` is that of one thread on the CPU; use `wall` for several threads or CUDA")
        self.clock: Clock = clock
        if memory_limit_mb is not None and not self.deployment.facts.is_cpu:
            raise UserError("memory_limit_mb works on the CPU only: a CUDA process maps far more than it uses")
        self.baseline = baseline
        self.workspace = Path(workspace)
        self.plans: dict[Effort, Plan] = {"screen": screen, "full": full}
        self._inputs = MeasuredInputs(FeedSpec() if feeds is None else feeds, other_feeds)
        self._materialize = materialize
        self._cache = cache
        self._keep_files = keep_files
        self._worker = WorkerClient(timeout_s=timeout_s, memory_limit_mb=memory_limit_mb)
        self._lock = MachineLock(lock_path)
        self._baseline_path: Path | None = None
        self._memo: dict[tuple[_Key, _Key, Effort], Latency] = {}
        self._measurements = 0

    @property
    def feeds(self) -> tuple[FeedSpec, ...]:
        """Recipes of the inputs that runs take in turn."""
        return self._inputs.recipes

    @property
    def measurements(self) -> int:
        """Number of comparisons that were really taken, those answered from memory or disk not counted."""
        return self._measurements

    def measure(self, graph: Measurable, effort: Effort = "screen") -> Latency:
        """Return the latency of `graph` and its speed-up over the baseline."""
        return self._compare(self._plain_baseline(), self._as_deployed(graph), effort)

    def compare(self, reference: Measurable, candidate: Measurable, plan: Plan | None = None) -> Latency:
        """Return the speed-up of `candidate` over `reference`, each as it asks to be run; by a plan, only this once."""
        sides = self._as_deployed(reference), self._as_deployed(candidate)
        return self._compare(*sides, "full") if plan is None else self._measure_anew(*sides, None, plan)

    def confirm(self, graph: Measurable, plan: Plan | None = None) -> Latency:
        """Take a full measurement anew, or one by `plan`, which replaces what is remembered if it is no shorter."""
        plan = plan or self.plans["full"]
        effort: Effort | None = "full" if plan.budget_s >= self.plans["full"].budget_s else None
        return self._measure_anew(self._plain_baseline(), self._as_deployed(graph), effort, plan)

    def active_optimizers(self, graph: Measurable) -> frozenset[str]:
        """Return the optimisers of ONNX Runtime that change this graph as deployed; refusing any other changes nothing.

        Single rewrite rules cannot be told apart: all of them count as active if any is. Raises MeasurementError
        where the graph cannot be written or opened.
        """
        side = self._as_deployed(graph)
        with self._lock, self._written(side) as path:
            reply = self._ask({"kind": "optimizers", "candidate": _plain(path, side.deployment)})
        if reply["status"] != "ok":
            raise MeasurementError(f"{side.deployment.facts.title} cannot open {path.name}: {reply['message']}")
        return frozenset(reply["active"])

    def close(self) -> None:
        """End the worker; a later measurement starts another."""
        self._worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _plain_baseline(self) -> _Side:
        return _Side(self.baseline, self.deployment.plain())

    def _as_deployed(self, graph: Measurable) -> _Side:
        return _Side(graph, self.deployment.asked_by(graph))

    def _compare(self, baseline: _Side, candidate: _Side, effort: Effort) -> Latency:
        known = self._recall(baseline, candidate, effort)
        return known if known is not None else self._measure_anew(baseline, candidate, effort, self.plans[effort])

    def _recall(self, baseline: _Side, candidate: _Side, effort: Effort) -> Latency | None:
        pair = (baseline.key, candidate.key)
        screened = self._memo.get((*pair, "screen"))
        # One crash or hang per candidate is enough, so a failed screening answers for both efforts.
        if screened is not None and (effort == "screen" or not screened.ok):
            return screened
        if (thorough := self._memo.get((*pair, "full"))) is not None:
            return thorough
        if self._cache is None:
            return None
        answering: tuple[Effort, ...] = ("full",) if effort == "full" else ("full", "screen")
        stored = self._cache.get(*(self._disk_key(baseline, candidate, effort) for effort in answering))
        if stored is None:
            return None
        latency = self._memo[(*pair, effort)] = Latency.from_json(stored)
        return latency

    def _measure_anew(self, baseline: _Side, candidate: _Side, effort: Effort | None, plan: Plan) -> Latency:
        """Measure by a plan; remember it as of an effort, unless that is None."""
        self._measurements += 1
        try:
            latency = self._take_calmly(baseline, candidate, plan)
        except _NotWrittenError as error:  # the disk's fault and not the graph's, so it is not remembered
            return Latency.failed("error", str(error))
        if effort is not None:
            self._memo[(baseline.key, candidate.key, effort)] = latency
            # A failure may be this machine's on this day: other runs try again.
            if latency.ok and self._cache is not None and plan == self.plans[effort]:
                self._cache.put(self._disk_key(baseline, candidate, effort), latency.to_json())
        return latency

    def _disk_key(self, baseline: _Side, candidate: _Side, effort: Effort) -> Mapping[str, Any]:
        return {
            "kind": "end-to-end",
            "graph": candidate.graph.hash,
            "deployment": candidate.deployment.key,
            "baseline": baseline.graph.hash,
            "baseline_deployment": baseline.deployment.key,
            **device_key(self.deployment.provider),
            **runtime_of(self.deployment.provider).version(),
            "feeds": self._inputs.key,
            "effort": effort,
            "plan": self.plans[effort].key,
            **({} if self.clock == "wall" else {"clock": self.clock}),
        }

    def _take_calmly(self, baseline: _Side, candidate: _Side, plan: Plan) -> Latency:
        """Take a measurement, again where other load tore the interval of a graph that may be faster; all count."""
        began = time.monotonic()
        latency = self._take(baseline, candidate, plan)
        took = time.monotonic() - began
        for _ in range(DISTURBED_RETRIES):
            if not is_torn(latency) or seconds_left() < 2.0 * took:
                break
            again = self._take(baseline, candidate, plan)
            latency = pooled(latency, again)
        return latency

    def _take(self, baseline: _Side, candidate: _Side, plan: Plan) -> Latency:
        # Writing may fold weights, which loads the machine as well, and workspaces may be shared.
        with self._lock, self._written(baseline) as reference_path, self._written(candidate) as candidate_path:
            request = {
                "kind": "compare",
                "baseline": _plain(reference_path, baseline.deployment),
                "candidate": _plain(candidate_path, candidate.deployment),
                "plan": (plan if candidate.key != baseline.key else plan.without_patience()).to_json(),
                "clock": self.clock,
            }
            reply = self._ask(request | {"feeds": self._inputs.to_json()})
            # It may have suffered from what ran in this worker before, the second one is fresh; or from its inputs.
            if _baseline_failed(reply) and reply["status"] != "error":
                reply = self._ask(request | {"feeds": self._inputs.to_json()})
            while _baseline_failed(reply) and self._inputs.fall_back(search=reply["status"] == "error"):
                reply = self._ask(request | {"feeds": self._inputs.to_json()})
        if _baseline_failed(reply):
            raise BaselineError(
                f"the baseline model cannot be measured with {baseline.deployment.to_json()}: {reply['message']}."
                f" Run it alone in {baseline.deployment.facts.title} to see why; inputs that it accepts are given by"
                " --input-data (`feeds`), a slow model needs a larger timeout_s, a large one a larger memory_limit_mb"
                + hint(reply["message"])
            )
        if reply["status"] != "ok":
            return Latency.failed(reply["status"], reply["message"])
        return latency_of(reply["blocks"], identical=baseline.key == candidate.key)

    def _ask(self, request: Message) -> Message:
        try:
            reply = self._worker.request(request)
        except WorkerFailure as failure:
            return {"status": failure.status, "phase": failure.phase, "message": failure.message}
        if reply["status"] == "oom" or (reply["status"] == "error" and not self.deployment.facts.is_cpu):
            # A fragmented heap or a broken CUDA context would fail the next model too.
            self._worker.close()
        return reply

    @contextmanager
    def _written(self, side: _Side) -> Iterator[Path]:
        """Write the side's model file for as long as it is needed; the baseline's is kept."""
        is_baseline = side.graph.hash == self.baseline.hash
        if is_baseline and self._baseline_path is not None and self._baseline_path.exists():
            yield self._baseline_path
            return
        try:
            path = self._materialize(side.graph, self.workspace)
        except OSError as error:
            if is_baseline:
                raise BaselineError(f"the baseline model cannot be written into {self.workspace}: {error}") from error
            raise _NotWrittenError(f"the model cannot be written into {self.workspace}: {error}") from error
        if is_baseline:
            self._baseline_path = path
        try:
            yield path
        finally:
            if not is_baseline and not self._keep_files:
                path.unlink(missing_ok=True)


def _plain(path: Path, deployment: Deployment) -> Message:
    return {"path": str(path), "deployment": deployment.to_request()}


def _baseline_failed(reply: Message) -> bool:
    return reply["status"] != "ok" and str(reply["phase"]).startswith("baseline")
