"""Inspection of a model: everything that `rewritegym inspect` tells, as plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from graph_rewrite.inspection.blocks import RepeatedBlock, repeated_blocks
from graph_rewrite.inspection.facts import Facts, facts_of
from graph_rewrite.inspection.matches import RuleSites, rule_sites
from graph_rewrite.inspection.profile import CannotRunError, Profile, profile_model
from graph_rewrite.inspection.regions import block_shares
from graph_rewrite.inspection.roofline import OperatorTime, Peaks, least_us, measure_peaks, operator_times
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rules import all_rules
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.runtime import Deployment, WorkerClient
from graph_rewrite.runtime.custom_ops import check_libraries, hint
from graph_rewrite.system.deadline import OutOfTime, check_time
from graph_rewrite.system.scratch import scratch_folder


@dataclass(frozen=True)
class Inspection:
    """All that is known of a model. `rules` and `profile` are None where the file leaves shapes open, and where no time
    was left for them; `profile` also where it was not asked for, or the model could not be run."""

    path: str
    file_bytes: int
    facts: Facts
    blocks: tuple[RepeatedBlock, ...]
    rules: tuple[RuleSites, ...] | None
    profile: Profile | None = None
    peaks: Peaks | None = None
    block_shares: tuple[float, ...] = ()
    """Share of the time that each of `blocks` takes; empty without a profile."""
    profile_error: str = ""
    """The reason why the model could not be run, in words."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes of inputs that the file leaves open, for which rules and times hold."""
    missing: tuple[str, ...] = ()
    """What no time was left for: of `blocks`, `rules`, `profile`, `peaks`."""

    @cached_property
    def least_ms(self) -> float | None:
        """Return the milliseconds that the model's kernels need at least, by the roofline; not more than it takes."""
        if self.profile is None or self.peaks is None:
            return None
        peaks = self.peaks
        return min(self.profile.ms, sum(least_us(kernel, peaks) for kernel in self.profile.kernels) / 1e3)

    def operator_times(self) -> list[OperatorTime]:
        """Return the time by operator, the most expensive first; empty without a profile."""
        return [] if self.profile is None else operator_times(self.profile.kernels, self.peaks)

    def to_json(self) -> dict[str, Any]:
        """Return plain values. Times are in milliseconds, shares from 0 to 1."""
        shares = self.block_shares or (None,) * len(self.blocks)
        blocks = [
            {"repeats": b.repeats, "nodes": b.length, "operators": dict(b.operators), "first": b.first, "share": share}
            for b, share in zip(self.blocks, shares, strict=True)
        ]
        return {
            "model": self.path,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
            "file_bytes": self.file_bytes,
            **asdict(self.facts),
            "blocks": blocks,
            "rules": None if self.rules is None else [asdict(entry) for entry in self.rules],
            "profile": self._profile_json(),
            "profile_error": self.profile_error,
            "missing": list(self.missing),
        }

    def _profile_json(self) -> dict[str, Any] | None:
        if self.profile is None:
            return None
        peaks = None if self.peaks is None else asdict(self.peaks)
        deployment = self.profile.deployment
        return {
            "provider": deployment.provider, "threads": deployment.threads, "ms": self.profile.ms,
            "least_ms": self.least_ms, "peaks": peaks, "operators": [asdict(entry) for entry in self.operator_times()],
        }  # fmt: skip


def inspect_model(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    provider: str = "cpu",
    threads: int = 1,
    profile: bool = True,
    custom_ops: Sequence[str] = (),
) -> Inspection:
    """Look at an ONNX file. With `profile`, the model is run on the CPU for some seconds, in a process of its own. The
    time limit of the run (`graph_rewrite.system.deadline`) ends that: `missing` says what it left out.

    Args:
        shapes: shapes of inputs by name, for models with symbolic dimensions. Without them such a model is neither
            matched with rules nor run.
        provider: the runtime of the profile.
        threads: threads per inference of the profile.
        custom_ops: libraries with the model's operators of custom domains, loaded by that process alone.

    Raises:
        ModelLoadError: no such file, or no readable ONNX model.
        UserError: libraries are given for a runtime that takes none.
        MachineError: no worker process starts, or the runtime fails on a small model.
        OutOfTime: the time limit is reached before the model is read.
    """
    given = dict(shapes or {})
    graph = load_once(path, given)
    facts = facts_of(graph)
    is_open = bool(facts.symbolic)
    if given:  # inputs and outputs are told as the file has them
        declared = facts_of(load_once(path))
        facts = replace(facts, inputs=declared.inputs, outputs=declared.outputs)
    found = Inspection(str(path), path.stat().st_size, facts, (), None, shapes=given)
    found = _or_missing(found, "blocks", lambda: replace(found, blocks=tuple(repeated_blocks(graph))))
    if is_open:
        return found
    found = _or_missing(found, "rules", lambda: replace(found, rules=_rules(graph, tuple(custom_ops))))
    if not profile:
        return found
    check_libraries(provider, custom_ops)
    return _with_profile(found, graph, Deployment(provider, threads, custom_ops=tuple(custom_ops)))


def _or_missing(found: Inspection, part: str, told: Callable[[], Inspection]) -> Inspection:
    """Return what `told` adds to what is known, or that it is missing where no time is left for it."""
    try:
        check_time()
        return told()
    except OutOfTime:
        return replace(found, missing=(*found.missing, part))


def _with_profile(found: Inspection, graph: Graph, deployment: Deployment) -> Inspection:
    try:
        with scratch_folder("inspect") as folder, WorkerClient() as worker, MachineLock():
            profiled = profile_model(graph, deployment, worker, folder)
            shares = tuple(block_shares(graph, found.blocks, profiled.kernels))
            timed = replace(found, profile=profiled, block_shares=shares)
            return _or_missing(timed, "peaks", lambda: replace(timed, peaks=measure_peaks(deployment, worker, folder)))
    except CannotRunError as error:
        return replace(found, profile_error=f"{error}{hint(str(error))}")
    except OutOfTime:
        return replace(found, missing=(*found.missing, "profile"))


def _rules(graph: Graph, libraries: tuple[str, ...]) -> tuple[RuleSites, ...]:
    """Return the rules that match the normalised graph.

    Args:
        libraries: libraries with operators of custom domains; see `normalise`.
    """
    rewriter = Rewriter(all_rules(), granularity="class", deployment=False, faults=RuleFaults())
    return tuple(rule_sites(normalise(graph, libraries=libraries)[0], rewriter))
