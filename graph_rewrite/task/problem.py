"""Problems: a model, its rewriter, its meter and the limits of a result. Environments and agents share them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import (
    BaselineError,
    Clock,
    ComparingMeter,
    ConfirmingMeter,
    Deployment,
    Effort,
    FeedSpec,
    InspectingMeter,
    Latency,
    LatencyMeter,
    MeasurementError,
    Plan,
    resolve_provider,
    unblocked_time,
)
from graph_rewrite.onnx_files.custom_domains import require_operators
from graph_rewrite.onnx_files.normalisation import INTERNAL_OPSET
from graph_rewrite.operators.input_types import require_feedable
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.rules.strict import strict_rules
from graph_rewrite.runtime.custom_ops import check_libraries, library_paths
from graph_rewrite.system.deadline import check_time
from graph_rewrite.task.input_data import read_input_data
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.meters import shared_meter
from graph_rewrite.task.models import Model, open_model
from graph_rewrite.task.workspace import workspace

MeterFactory = Callable[[Model, Deployment, Path], LatencyMeter]
MeterSource = LatencyMeter | MeterFactory
"""A meter, or a function that makes one for a model, a deployment and a folder for files."""

_SHARED_REWRITERS = 16


@dataclass
class Problem:
    """The task to make `model` faster as run by `deployment`, within `limits`.

    Speed-ups are relative to `model.original`.
    """

    model: Model
    rewriter: Rewriter
    meter: LatencyMeter
    deployment: Deployment
    workspace: Path
    limits: ResultLimits = field(default_factory=ResultLimits)
    thread_choices: tuple[int, ...] = ()
    """Numbers of threads that a search may choose instead of the deployment's; none where that is fixed."""
    data: tuple[FeedSpec, ...] = ()
    """The user's inputs. Results are measured with them in turn, and compared on them too."""
    strict: bool = False
    """Whether results must keep NaN, infinities, denormals and the sign of zero."""
    external_weights: bool = False
    """Whether a result is saved with its weights in a file of their own, however few they are."""
    _memo: dict[tuple[str, Effort], Latency] = field(default_factory=dict, repr=False)
    _seconds: dict[tuple[str, Effort], float] = field(default_factory=dict, repr=False)
    _confirmed: dict[tuple[str, Plan | None, int], tuple[Latency, float]] = field(default_factory=dict, repr=False)
    _compared: dict[tuple[str, str, Plan | None], tuple[Latency, float]] = field(default_factory=dict, repr=False)
    _active: dict[str, frozenset[str] | None] = field(default_factory=dict, repr=False)
    _faults_before: Counter[str] = field(default_factory=Counter, repr=False)

    def __post_init__(self) -> None:
        if self.rewriter.faults is not None:
            self._faults_before = self.rewriter.faults.counts.copy()

    @property
    def rule_faults(self) -> RuleFaults:
        """The exceptions that the code of rules raised since this problem was made, counted by rule.

        Problems of a process share a rewriter and the candidates that it has listed. So a fault on a graph that an
        earlier problem has listed is counted there, and problems that are searched in turn share their counts. Empty
        where the rewriter has no collector, since exceptions go through then.
        """
        found = RuleFaults()
        if (collected := self.rewriter.faults) is not None:
            found.counts = collected.counts - self._faults_before
            found.tracebacks = {rule: collected.tracebacks[rule] for rule in found.counts}
        return found

    def add_rules(self, found: Sequence[Rule]) -> None:
        """Offer the rewrites of further rules, such as mutants, after those of the others. A strict problem takes none
        that may lose a value."""
        old = self.rewriter
        known = {rule.name for rule in old.rules}
        named = {rule.name: rule for rule in (strict_rules(found) if self.strict else found)}
        if new := [rule for name, rule in named.items() if name not in known]:
            self.rewriter = Rewriter((*old.rules, *new), old.granularity, old.deployment, old.domains, old.faults)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        """Return the latency of a graph; for one graph and effort the same value every time.

        A graph that cannot be built or run, or breaks a limit, gives a Latency that says so.

        Raises:
            OutOfTime: the time limit of the run is reached; nothing is remembered then.
        """
        key = (graph.hash, effort)
        known = self._memo.get(key)
        if known is None:
            check_time()
            begin = unblocked_time()
            violation = self.violation(graph)
            try:
                known = Latency.failed("error", violation) if violation else self.meter.measure(graph, effort)
            except InvalidRewriteError as error:  # its folded weights cannot be computed
                known = Latency.failed("error", f"the model cannot be built: {error}")
            self._memo[key] = known
            self._seconds[key] = unblocked_time() - begin
        return known

    def violation(self, graph: Graph) -> str:
        """Return the limit that a graph breaks, in words; empty where it breaks none."""
        return self.limits.violation(self.model.original, graph)

    def cost(self, graph: Graph, effort: Effort = "screen") -> float:
        """Return the seconds that the first measurement of a graph took, without the time that it waited for other
        processes; 0.0 where it was not measured.

        Agents that share a problem are charged the same for the same graph, whoever asked first.
        """
        return self._seconds.get((graph.hash, effort), 0.0)

    def confirm(self, graph: Graph, plan: Plan | None = None, look: int = 0) -> Latency:
        """Measure a graph anew, with full effort or by `plan`; once per graph, plan and number of the look.

        The best of many screened graphs owes part of its lead to luck, a fresh measurement does not. A meter that is no
        `ConfirmingMeter` gives its usual full measurement.
        """
        key = (graph.hash, plan, look)
        known = self._confirmed.get(key)
        if known is None:
            begin = unblocked_time()
            if isinstance(self.meter, ConfirmingMeter):
                latency = self.meter.confirm(graph, plan)
            else:
                latency = self.measure(graph, "full")
            known = self._confirmed[key] = (latency, unblocked_time() - begin)
        return known[0]

    def confirming_s(self, graph: Graph, plan: Plan | None = None, look: int = 0) -> float:
        """Return the seconds that `confirm` took with the same arguments; 0 before it was asked."""
        known = self._confirmed.get((graph.hash, plan, look))
        return 0.0 if known is None else known[1]

    def compare(self, reference: Graph, candidate: Graph, plan: Plan | None = None) -> tuple[Latency, float] | None:
        """Time two graphs in turn with full effort, or by a plan. The same graphs and plan always give the same value.

        Of two graphs that are nearly as fast this tells more than their latencies against the original.

        Returns:
            The speed-up of `candidate` over `reference` and the seconds that this took; a Latency that says so where
            one of them cannot be built or run. None where the meter is no `ComparingMeter`.
        """
        if not isinstance(self.meter, ComparingMeter):
            return None
        key = (reference.hash, candidate.hash, plan)
        if key not in self._compared:
            begin = unblocked_time()
            try:
                latency = self.meter.compare(reference, candidate, plan=plan)
            except (BaselineError, InvalidRewriteError) as error:
                latency = Latency.failed("error", f"the graphs cannot be compared: {error}")
            self._compared[key] = (latency, unblocked_time() - begin)
        return self._compared[key]

    def settle(self, graph: Graph) -> Latency:
        """Confirm a graph, and let `measure` return the confirmed latency from now on.

        A learner would otherwise be drawn for ever to a graph whose measurement was luck.
        """
        confirmed = self.confirm(graph)
        self._memo[graph.hash, "screen"] = confirmed
        return confirmed

    def active_optimizers(self, graph: Graph) -> frozenset[str] | None:
        """Return the optimisers of ONNX Runtime that change a graph as deployed.

        Refusing any other gives the same model, so that a measured difference is noise. None where the meter is no
        `InspectingMeter`, or the graph cannot be built or opened.
        """
        if graph.hash not in self._active:
            self._active[graph.hash] = None
            if isinstance(self.meter, InspectingMeter):
                with suppress(BaselineError, MeasurementError, InvalidRewriteError):
                    self._active[graph.hash] = self.meter.active_optimizers(graph)
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
    thread_choices: tuple[int, ...] = (),
    target_opset: int | None = None,
    strict: bool = False,
    input_data: Sequence[str] = (),
    custom_ops: Sequence[str] = (),
    mutants: Sequence[Rule] = (),
) -> Problem:
    """Open a model by URI and measure it in the runtime of `provider`, or with `meter`.

    The problems of a process share what is expensive: the model, the candidates of its first graph, and the meter of a
    model and deployment with its worker process and baseline. Exceptions that rules raise are counted in
    `Problem.rule_faults` and do not end a search.

    Args:
        granularity: offer a rule per `site`, per `class` of sites, or `both`.
        provider: that of ONNX Runtime, `auto` for the one with which a device answers; or `openvino`.
        deployment_choices: offer to refuse or to keep ONNX Runtime's optimisers; another runtime has none to refuse.
        shapes: shapes of inputs by name, for models with symbolic dimensions.
        rules: names of rule sets (`graph_rewrite.rules.rule_set`).
        cached: remember latencies on disk from run to run.
        limits: the limits that every result keeps.
        clock: `wall`, or `cpu` to count only what one thread on the CPU computes, where others share the cores.
        thread_choices: numbers of threads to choose from; speed-ups stay relative to the original on `threads`.
        target_opset: the operator set to convert the model to; by default the newest with rules, or with operators of
            the provider, that the model runs in.
        strict: leave out rules and session settings that do not keep NaN, infinities, denormals or the sign of zero,
            and rules that overflow before the operators which they replace.
        input_data: .npz files or globs of them: inputs to measure with, in turn, and to compare on (`task.input_data`).
        custom_ops: libraries with operators of custom domains. Only the processes that run the model load them.
        mutants: rules that were found for this model, listed after the others.

    Raises:
        UserError: unknown model, provider, granularity or rule set, less than one thread, the clock `cpu` for more
            than one or a choice of threads, an impossible `target_opset`, an operator unknown to ONNX Runtime, or an
            input for which no values can be made.
        ModelLoadError: a file that is no readable ONNX model.
        ProviderError: the provider does not work on this machine.
    """
    _check_threads(threads, thread_choices, clock)
    found, libraries = resolve_provider(provider), library_paths(custom_ops)
    check_libraries(found, libraries)
    deployment = Deployment(found, threads, custom_ops=libraries)
    usual = deployment.facts.opset or INTERNAL_OPSET
    opened, folder = open_model(model, shapes, target_opset, deployment.custom_ops, usual), workspace()
    if meter is None:
        require_operators(opened.original, deployment.custom_ops)
        require_feedable(opened.original)
    elif callable(meter):
        meter = meter(opened, deployment, folder)
    data = read_input_data(input_data, opened.original)
    measuring = meter or shared_meter(opened, deployment, folder, cached, clock, data or None)
    kept = ResultLimits() if limits is None else limits
    domains = kept.allowed_domains(opened.original, deployment.provider)
    choices = deployment_choices and deployment.facts.is_onnxruntime
    rewriter = _shared_rewriter(granularity, choices, rules, domains, strict)
    problem = Problem(opened, rewriter, measuring, deployment, folder, kept, thread_choices, data, strict)
    problem.add_rules(mutants)
    return problem


def _check_threads(threads: int, choices: tuple[int, ...], clock: Clock) -> None:
    if threads < 1:
        raise UserError(f"threads must be at least 1, got {threads}")
    if min(choices, default=1) < 1 or (choices and clock == "cpu"):
        raise UserError(f"numbers of threads to choose from are 1 or more, with the clock `wall`; got {choices}")


@lru_cache(maxsize=_SHARED_REWRITERS)
def _shared_rewriter(
    granularity: Granularity, deployment_choices: bool, rules: str, domains: frozenset[str] | None, strict: bool
) -> Rewriter:
    chosen = strict_rules(rule_set(rules)) if strict else rule_set(rules)
    return Rewriter(chosen, granularity, deployment_choices, domains, RuleFaults())
