"""A finished optimisation: the result of the search, and all that else was found out about it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.conclusion.recordings import write_recording
from agents.core.base import OptimizationResult
from agents.optimization.options import OptimizeOptions
from agents.optimization.other_threads import ByThreads, thread_entry, threads_warning
from agents.optimization.runtime_result import RuntimeResult
from agents.optimization.specialising import ShapeBundle
from agents.reporting.progress import baseline_ms
from agents.reporting.runs import result_entry, rewrite_entries
from graph_rewrite.delivery.bundles.manifest import GENERAL
from graph_rewrite.delivery.bundles.session import BundleSession
from graph_rewrite.delivery.checked_bundle import CheckedBundle
from graph_rewrite.latency import Deployment
from graph_rewrite.replay import Recording
from graph_rewrite.runtime import open_session
from graph_rewrite.task.problem import Problem

SUMMARY = (
    "model", "speedup", "speedup_ci95", "baseline_ms", "latency_ms", "verified", "max_rel_error", "deployment",
    "threads", "seconds", "measurements", "onnx_path", "message", "warnings", "memory", "rule_faults",
    "failed_measurements", "first_error", "tradeoff", "savings", "actions", "improvements", "dynamic", "custom_ops",
    "runtimes",
)  # fmt: skip
"""Fields of a result's entry that `--json` prints."""

BUSY = (
    "the machine is busy with other things, so times are those that the thread itself computes; on a quiet machine the"
    " time that passes is measured"
)
"""Said where the clock was changed for that reason."""


def needed_libraries(paths: Sequence[str]) -> str:
    """Return the sentence that a result was measured with libraries of operators."""
    return (
        f"the result runs with the operators of {', '.join(paths)}: no file beside it names a library, so every session"
        " needs it registered, as custom_ops=[...] of rewritegym.session does"
    )


@dataclass(frozen=True, slots=True)
class Optimization:
    """A finished optimisation: the problem, the result of the search, and what else was found out about it."""

    options: OptimizeOptions
    problem: Problem
    result: OptimizationResult
    began: float
    """The time at which the time limit began, by `time.monotonic`."""
    by_threads: ByThreads = ()
    """The result's latency with each number of threads that was asked for; empty where only one was."""
    recording: Recording | None = None
    """The rewrites, as `rewritegym apply` takes them; None where they lead to the result by something else."""
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    """What became of the model's symbolic dimensions; empty for static models."""
    bundle: ShapeBundle | None = None
    """The models for single shapes beside the result, with `specialise`."""
    kept: Any = None
    """Whatever must live as long as the outcome, such as the folder of a model that came without a file."""
    runtimes: tuple[RuntimeResult, ...] = ()
    """What each runtime would give, with the provider `best`."""

    @property
    def speedup(self) -> float:
        """Latency of the original over that of the result."""
        return self.result.latency.speedup

    @property
    def speedup_ci95(self) -> tuple[float, float]:
        """The 95% confidence interval of the speed-up."""
        return self.result.latency.ci95

    @property
    def verified(self) -> bool:
        """True where the saved file agrees with the original, opened as it will be deployed."""
        return self.result.verified

    @property
    def max_rel_error(self) -> float:
        """Largest difference of any output from the original's, relative to the output's scale."""
        return self.result.max_rel_error

    @property
    def message(self) -> str:
        """The outcome of the comparison in words, or the reason why the original is kept."""
        return self.result.message

    @property
    def rewrites(self) -> list[dict[str, Any]]:
        """The substitutions in order: `rule`, `where`, number of `sites`, `saved_ms` (None where it is not known)."""
        return [_shown(rewrite) for rewrite in rewrite_entries(self.result)]

    @property
    def deployment(self) -> Deployment:
        """Provider, threads and session options that the result was measured with."""
        return self.result.checked.deployment

    def session(self) -> Any:
        """Return an `onnxruntime.InferenceSession` on the result, opened as it was measured; on a bundle a
        `BundleSession`."""
        if self.bundle is not None and isinstance(self.bundle.writable, CheckedBundle):
            return BundleSession(self.bundle.writable.bundle)
        return open_session(self.result.checked.path, self.deployment)

    def to_json(self) -> dict[str, Any]:
        """Return what `rewritegym optimize --json` prints, without a file."""
        return self.summary(None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what a user should know before deploying the result."""
        slower = [threads_warning(count, latency) for count, latency in self.by_threads]
        for values, found in () if self.bundle is None else self.bundle.by_threads.items():
            name = f"the model for {', '.join(f'{symbol}={size}' for symbol, size in values)}"
            slower += [threads_warning(count, latency, name) for count, latency in found]
        own = getattr(self.problem.meter, "clock", self.options.clock) != self.options.clock
        libraries = (needed_libraries(self.deployment.custom_ops),) if self.deployment.custom_ops else ()
        return (*filter(None, slower), *libraries, *((BUSY,) if own else ()))

    def save(self, output: Path | str) -> Path | None:
        """Write the checked file, and its recorded actions beside it; None where the check failed. An original that is
        kept is copied byte by byte. With `specialise`, `output` is the folder of the bundle.

        Raises:
            UserError: that folder holds something else.
        """
        if not self.verified:
            return None
        if self.bundle is not None:
            return self.bundle.write_to(Path(output))
        written = self.result.checked.write_to(Path(output))
        write_recording(self.recording, written)
        return written

    def entry(self, written: Path | None) -> dict[str, Any]:
        """Return everything that is known of the result, as JSON; `written` is the file that holds it, or the folder of
        a bundle."""
        file = written / GENERAL if written is not None and self.bundle is not None else written
        entry = result_entry(self.result, self.problem, file)
        entry["seconds"] = round(time.monotonic() - self.began, 1)
        entry["model"] = self.problem.model.uri
        entry["baseline_ms"] = baseline_ms(entry)
        entry["threads"] = [thread_entry(count, found) for count, found in self.by_threads]
        entry["warnings"] = list(self.warnings)
        entry["actions"] = None if self.recording is None else self.recording.to_json()
        entry["dynamic"] = dict(self.dynamic) if self.bundle is None else self.bundle.told(self.dynamic, written)
        entry["custom_ops"] = list(self.deployment.custom_ops)
        entry["runtimes"] = [found.to_json() for found in self.runtimes]
        return entry

    def summary(self, written: Path | None, entry: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the part of `entry` that scripts read: the object that `--json` prints."""
        entry = self.entry(written) if entry is None else entry
        return {**{key: entry[key] for key in SUMMARY}, "rewrites": list(map(_shown, entry["rewrites"]))}


def _shown(rewrite: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a rewrite as scripts read it."""
    return {
        "rule": rewrite["rule"], "where": rewrite["description"], "sites": rewrite["sites"],
        "saved_ms": rewrite["saved_ms"],
    }  # fmt: skip
