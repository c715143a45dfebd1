"""A problem: a model, what can be done to it, and how its latency is measured. What environments and agents share."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import (
    SCREEN,
    BaselineError,
    Clock,
    Deployment,
    Effort,
    Latency,
    LatencyMeter,
    Measurable,
    MeasurementCache,
    OrtMeter,
    Plan,
    resolve_provider,
    unblocked_time,
)
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.models import Model, open_model
from graph_rewrite.task.workspace import workspace

MeterFactory = Callable[[Model, Deployment, Path], LatencyMeter]
MeterSource = LatencyMeter | MeterFactory
"""A meter, or a function that makes one for a model, a deployment and a folder for files."""


@dataclass
class Problem:
    """Make `model` faster as run by `deployment`, within `limits`. Speed-ups are relative to `model.original`."""

    model: Model
    rewriter: Rewriter
    meter: LatencyMeter
    deployment: Deployment
    workspace: Path
    limits: ResultLimits = field(default_factory=ResultLimits)
    _memo: dict[tuple[str, Effort], Latency] = field(default_factory=dict, repr=False)
    _seconds: dict[tuple[str, Effort], float] = field(default_factory=dict, repr=False)
    _confirmed: dict[tuple[str, Plan | None], Latency] = field(default_factory=dict, repr=False)
    _compared: dict[tuple[str, str], tuple[Latency, float]] = field(default_factory=dict, repr=False)
    _active: dict[str, frozenset[str] | None] = field(default_factory=dict, repr=False)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        """The latency of a graph; for one graph and effort the same value every time.

        A graph that cannot be built or run, or breaks a limit, gives a Latency that says so.
        """
        key = (graph.hash, effort)
        known = self._memo.get(key)
        if known is None:
            begin = unblocked_time()
            violation = self.limits.violation(self.model.original, graph)
            try:
                known = Latency.failed("error", violation) if violation else self.meter.measure(graph, effort)
            except (ValueError, NotImplementedError) as error:  # its folded weights cannot be computed
                known = Latency.failed("error", f"the model cannot be built: {error}")
            self._memo[key] = known
            self._seconds[key] = unblocked_time() - begin
        return known

    def cost(self, graph: Graph, effort: Effort = "screen") -> float:
        """Seconds that the first measurement of a graph took, without waiting for other processes to end theirs; 0.0
        where it was not measured.

        Agents that share a problem are charged the same for the same graph, whoever asked first.
        """
        return self._seconds.get((graph.hash, effort), 0.0)

    def confirm(self, graph: Graph, plan: Plan | None = None) -> Latency:
        """A full measurement of a graph that was chosen among many, or one by `plan`, taken anew: the winner's screened
        lead is partly luck. Once per graph and plan."""
        known = self._confirmed.get((graph.hash, plan))
        if known is None:
            again = getattr(self.meter, "confirm", None)
            known = self.measure(graph, "full") if again is None else again(graph, plan)
            self._confirmed[graph.hash, plan] = known
        return known

    def compare(self, reference: Graph, candidate: Graph) -> tuple[Latency, float] | None:
        """The speed-up of one graph over another, timed in turn with full effort, and the seconds that this took: of
        two graphs nearly as fast it tells more than how each does against the original. None where the meter knows
        the original alone; a Latency that says so where one of them cannot be built or run."""
        measure = getattr(self.meter, "compare", None)
        if measure is None:
            return None
        key = (reference.hash, candidate.hash)
        if key not in self._compared:
            begin = unblocked_time()
            try:
                latency = measure(reference, candidate)
            except (BaselineError, ValueError, NotImplementedError) as error:
                latency = Latency.failed("error", f"the graphs cannot be compared: {error}")
            self._compared[key] = (latency, unblocked_time() - begin)
        return self._compared[key]

    def settle(self, graph: Graph) -> Latency:
        """`confirm`, and from now on what `measure` says of this graph too: a learner that comes back to a graph whose
        measurement was luck would be drawn to it for ever."""
        confirmed = self.confirm(graph)
        self._memo[graph.hash, "screen"] = confirmed
        return confirmed

    def active_optimizers(self, graph: Graph) -> frozenset[str] | None:
        """Optimisers of ONNX Runtime that change a graph as deployed: refusing any other gives the same model, and what
        a measurement says of it is noise. None where the meter cannot tell, or the graph cannot be built."""
        if graph.hash not in self._active:
            ask = getattr(self.meter, "active_optimizers", None)
            try:
                self._active[graph.hash] = None if ask is None else ask(graph)
            except (RuntimeError, ValueError, NotImplementedError, OSError):
                self._active[graph.hash] = None
        return self._active[graph.hash]

    @property
    def measurements(self) -> int:
        """Number of (graph, effort) pairs asked for so far, whether timed or found in a cache: an agent's budget."""
        return len(self._memo)


def open_problem(
    model: str,
    *,
    provider: str = "auto",
    threads: int = 1,
    granularity: Granularity = "both",
    deployment_choices: bool = True,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    rules: str = "default",
    meter: MeterSource | None = None,
    cached: bool = True,
    limits: ResultLimits | None = None,
    clock: Clock = "wall",
) -> Problem:
    """Open a model by URI and measure it in ONNX Runtime, or with `meter`.

    What is expensive is shared by all problems of a process: the model, the candidates of its first graph, and the
    meter of a model and deployment with its worker process and baseline. With `cached`, latencies are remembered on
    disk from run to run. `rules` names the rule sets that rewrite it (`graph_rewrite.rules.rule_set`); `limits` are
    those of every result. `clock="cpu"` counts what the thread computes and not what else the machine runs: for one
    thread on the CPU, where cores are shared.

    Raises:
        UserError: unknown model, provider, granularity or rule set, or the clock `cpu` for more than one thread.
        ModelLoadError: a file that is no readable ONNX model.
        ProviderError: provider `cuda` does not work on this machine.
    """
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    opened = open_model(model, shapes)
    deployment = Deployment(resolve_provider(provider), threads)
    folder = workspace()
    measuring: LatencyMeter
    if meter is None:
        measuring = _shared_meter(opened, deployment, folder, cached, clock)
    else:
        measuring = meter(opened, deployment, folder) if callable(meter) else meter
    kept = limits if limits is not None else ResultLimits()
    rewriter = _shared_rewriter(
        granularity, deployment_choices, rules, kept.allowed_domains(opened.original, deployment.provider)
    )
    return Problem(opened, rewriter, measuring, deployment, folder, kept)


@cache
def _shared_rewriter(
    granularity: Granularity, deployment_choices: bool, rules: str, domains: frozenset[str] | None
) -> Rewriter:
    return Rewriter(rule_set(rules), granularity=granularity, deployment=deployment_choices, domains=domains)


_meters: dict[tuple[str, str, Path, bool, Clock], OrtMeter] = {}


def _shared_meter(model: Model, deployment: Deployment, folder: Path, cached: bool, clock: Clock) -> OrtMeter:
    key = (model.original.hash, deployment.key, folder, cached, clock)
    if key not in _meters:
        _meters[key] = ort_meter(model, deployment, folder, MeasurementCache() if cached else None, clock=clock)
    return _meters[key]


def ort_meter(
    model: Model,
    deployment: Deployment,
    folder: Path,
    cache: MeasurementCache | None = None,
    screen: Plan = SCREEN,
    clock: Clock = "wall",
) -> OrtMeter:
    """A meter that runs a model's rewritten graphs in ONNX Runtime, from files in `folder`."""
    return OrtMeter(
        model.original, _write_candidate, deployment, workspace=folder, cache=cache, screen=screen, clock=clock
    )


def _write_candidate(graph: Measurable, folder: Path) -> Path:
    if not isinstance(graph, Graph):
        raise TypeError(f"only a Graph can be written as a model, not {type(graph).__name__}")
    return materialize(graph, folder)


@atexit.register
def close_meters() -> None:
    """End the worker processes of all shared meters; they start again when needed."""
    for meter in _meters.values():
        meter.close()
