"""The process of a cold run: `python -m benchmarks.protocol.searches.process REQUEST.json FOLDER`.

It opens the model, then turns to an empty folder for all that RewriteGym keeps on disk, and lets the agent search. So
no latency, no time of a window and no result of an earlier run is known to it. Prices of operators are taken anew as
well; the seconds that this takes are outside the budget, and reported.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.conclusion.recordings import recording_or_none
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.config import load_config
from agents.core.registry import make_agent
from agents.reporting.runs import result_entry, write_json
from benchmarks.protocol.searches.faster_runtime import FASTER_RUNTIME, optimized_in_each_runtime
from benchmarks.protocol.searches.held_out import MAKERS
from benchmarks.protocol.searches.replaying import REPLAY, replayed_result
from benchmarks.protocol.searches.runs import (
    CONCLUSION_S,
    CONCLUSION_SHARE,
    DONE,
    FOUND,
    MISSING,
    RESULT,
    Run,
    failed,
)
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.runtime.ort_worker.following import follow
from graph_rewrite.task.problem import MeterSource, Problem, open_problem

TELLING_SHARE, TELLING_S = 0.1, 60.0
"""Share of the budget, and most seconds, that go from the search to telling a small lead from none, as for
`optimize`."""
CACHE = "REWRITEGYM_CACHE"
Prepare = Callable[[Problem, Run, Budget], Budget]
"""Prepares a problem for its search, inside the budget, and returns what is left of that."""
_KEPT = ("failed_measurements", "applications", "trajectory", "rule_histogram", "rule_faults", "memory", "deployment")


@contextmanager
def cold(folder: Path) -> Iterator[None]:
    """Keep all that is written to disk for later searches in an empty folder inside `folder`, removed at the end."""
    before = os.environ.get(CACHE)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="cache-", dir=folder) as empty:
        os.environ[CACHE] = empty
        try:
            yield
        finally:
            os.environ.pop(CACHE)
            if before is not None:
                os.environ[CACHE] = before


def budget_of(run: Run) -> Budget:
    """Return the limits of a run: search and conclusion together take its seconds, beside the pricing of operators."""
    conclusion = min(CONCLUSION_S, CONCLUSION_SHARE * run.budget_s)
    measurements = 10**9 if run.measurements is None else run.measurements
    return Budget(
        measurements, run.budget_s - conclusion, conclusion_s=conclusion, overtime_s=conclusion,
        telling_s=min(TELLING_S, TELLING_SHARE * run.budget_s),
    )  # fmt: skip


def unprepared(problem: Problem, run: Run, budget: Budget) -> Budget:
    """Leave a problem as it is."""
    return budget


def conducted(
    run: Run, folder: Path, meter: MeterSource | None = None, prepare: Prepare = unprepared
) -> dict[str, Any]:
    """Carry out a run, write its model into `folder`, and return the outcome. An agent that cannot run on this model or
    machine has status `missing`, with its reason."""
    if run.agent == FASTER_RUNTIME:
        return conducted_in_each_runtime(run, folder)
    config = load_config(run.model)
    problem = open_problem(
        run.uri, provider=run.provider, threads=run.threads, granularity=config.env.granularity, rules=config.env.rules,
        cached=False, meter=meter,
    )  # fmt: skip
    seen: list[Search] = []
    with cold(folder):
        try:
            # Learning the means takes seconds, which no search has to pay for.
            held_out = MAKERS[run.agent](run.model) if run.agent in MAKERS else None
            began = time.monotonic()
            if run.agent == REPLAY:
                result = replayed_result(problem)
            else:
                agent = held_out or make_agent(run.agent)
                budget = prepare(problem, run, budget_of(run))
                result = agent.optimize(problem, budget, seed=run.seed, progress=seen.append)
        except UserError as error:
            return failed(run, str(error), MISSING)
        wall = time.monotonic() - began
        path = result.checked.write_to(folder / RESULT) if result.verified and not result.is_original else None
        pricing = seen[-1].excluded if seen else 0.0
        return outcome_of(run, problem, result, path, config.env.rules) | {
            "seconds": round(wall - pricing, 3), "pricing_s": round(pricing, 3),
        }  # fmt: skip


def conducted_in_each_runtime(run: Run, folder: Path) -> dict[str, Any]:
    """Carry out a run in both runtimes of the CPU, as `conducted` does in one. An original that runs faster in OpenVINO
    counts as a result."""
    with cold(folder):
        began = time.monotonic()
        try:
            found = optimized_in_each_runtime(run)
        except (UserError, MachineError) as error:
            return failed(run, str(error), MISSING)
        wall, result = time.monotonic() - began, found.result
        kept = result.is_original and found.deployment.provider == "cpu"
        path = result.checked.write_to(folder / RESULT) if result.verified and not kept else None
        return outcome_of(run, found.problem, result, path, found.options.rule_names) | {
            "seconds": round(wall, 3), "kept_original": kept, "runtimes": [one.to_json() for one in found.runtimes],
        }  # fmt: skip


def outcome_of(run: Run, problem: Problem, result: OptimizationResult, path: Path | None, rules: str) -> dict[str, Any]:
    """Return the outcome of a search with some rules. What the search itself says of its result is kept under
    `search`."""
    entry = result_entry(result, problem, path)
    recording = recording_or_none(problem, result.actions, result.graph, rules)
    before, after = entry["memory"]["before"]["weights"], entry["memory"]["after"]["weights"]
    return {
        "status": DONE,
        "run": run.to_json(),
        "reason": entry["message"],
        "kept_original": result.is_original,
        "verified": result.verified,
        "max_rel_error": _finite(result.max_rel_error),
        "size_growth": after / before if before else 1.0,
        "measurements": result.measurements,
        "rewrites": [{"rule": action.rule, "sites": action.count} for action in result.actions],
        "actions": None if recording is None else replace(recording, model="").to_json(),
        "search": {
            name: entry[name] for name in ("speedup", "speedup_ci95", "latency_ms")
        } | {"baseline_ms": _finite(result.latency.baseline_ms), "seconds": entry["seconds"]},
        **{name: entry[name] for name in _KEPT},
    }  # fmt: skip


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def main(arguments: list[str], prepare: Prepare = unprepared) -> int:
    """Carry out the run of a request, and write what it finds. It ends with its parent, and at SIGTERM."""
    follow(os.getppid())
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    request, folder = Path(arguments[0]), Path(arguments[1])
    run = Run.from_json(json.loads(request.read_text()))
    write_json(folder / FOUND, conducted(run, folder, prepare=prepare))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
