"""`--provider best`: a search for each runtime of the CPU, their results timed in turn, and the faster deployed."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from agents.conclusion.conclude import original_file
from agents.conclusion.confirmation import judging_plan
from agents.optimization.options import BEST, OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.runtime_result import RuntimeResult
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency import Clock, Latency, OrtMeter, Provider, resolve_provider
from graph_rewrite.latency.files import DeployedFile, compare_deployed
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.runtime import PROVIDERS, Deployment, Recipes, WorkerClient
from graph_rewrite.symbolic.feeds import measured_feeds
from graph_rewrite.symbolic.inputs import symbolic_inputs
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left
from graph_rewrite.task.input_data import read_input_data
from graph_rewrite.task.meters import random_feeds
from graph_rewrite.task.models import open_model

FIRST: Provider = "cpu"
SECOND: Provider = "openvino"
"""The providers that are compared: speed-ups are relative to the original on the first, which also wins a tie."""
LEAD = 0.05
"""Lead of OpenVINO with the original from which it has as much time as ONNX Runtime. On nine models of the zoo where it
led by less, the result in ONNX Runtime was the faster one on eight; on the ninth nothing gained in either (Zen 4, half
of 600 s each)."""
FIRST_SHARE = 0.8
"""Share of the searches' time that ONNX Runtime has where OpenVINO does not lead."""
JUDGING_SHARE = 0.12
"""Share of the time limit for timing original and results in both runtimes."""
JUDGING_S = 90.0
"""Most seconds of it."""
_COMPARISONS = 3

Optimise = Callable[[OptimizeOptions, float], Optimization]
"""Searches with some options; the time limit counts from a moment of `time.monotonic`."""
Compare = Callable[[DeployedFile, DeployedFile], Latency]
"""Times two files in turn: the speed-up of the second over the first."""


def optimize_in_each(
    path: Path,
    options: OptimizeOptions,
    optimise: Optimise,
    *,
    began: float,
    seconds: float,
    interrupted: Callable[[], bool],
    compare: Compare | None = None,
) -> Optimization:
    """Time the original in both runtimes, search in each, time the results in turn, and return the faster. Its speed-up
    is relative to the original in ONNX Runtime; where the two are as fast, ONNX Runtime stays. Each search has half of
    the time; where OpenVINO does not lead with the original, ONNX Runtime has more.

    Args:
        began: when the time limit began, by `time.monotonic`.
        seconds: the time limit.
        interrupted: tells whether the user has ended the first search; there is no second one then.
        compare: times two files; by default in a worker process.

    Raises:
        UserError: options that do not go with `best`, or a mistake in another one.
        MachineError: OpenVINO is not installed, or the model cannot be measured in either runtime.
    """
    _check(options)
    for provider in (FIRST, SECOND):
        resolve_provider(provider)
    part = _comparison_s(seconds)
    searching = seconds - _COMPARISONS * part
    timed = _plain(path, options, began + part, part, compare)
    plain = timed if timed is not None and timed.ok else None
    found, told = dict[str, Optimization](), dict[str, str]()
    turns: tuple[tuple[Provider, float], ...] = (
        (FIRST, began + part + first_share(plain) * searching),
        (SECOND, began + part + searching),
    )
    for provider, ends in turns:
        if interrupted():
            told[provider] = "the search was ended before it"
            continue
        now = began if provider == FIRST else time.monotonic()
        try:
            own = replace(options, provider=provider, time_limit=f"{max(1.0, ends - now):.3f}s")
            found[provider] = optimise(own, now)
            told[provider] = found[provider].message
        except MachineError as error:
            told[provider] = str(error)
        except KeyboardInterrupt:  # the limit was brought forward before this model was open
            if not found:
                raise
            told[provider] = "the search was ended before it"
    if not found:
        raise MachineError("; ".join(f"{PROVIDERS[name].title}: {text}" for name, text in told.items()))
    best = _judged(path, options, found, told, plain, began + seconds, compare)
    return replace(best, options=options, began=began)


def first_share(plain: Latency | None) -> float:
    """Return the share of the searches' time that ONNX Runtime has, by the speed-up of the original in OpenVINO."""
    return 0.5 if plain is None or plain.lower_bound > 1.0 + LEAD else FIRST_SHARE


def _plain(
    path: Path, options: OptimizeOptions, until: float, seconds: float, compare: Compare | None
) -> Latency | None:
    """Time the original in both runtimes; None where its shapes are open, or no time is left. One that does not run on
    these inputs is a failed latency: the searches will tell, or find others."""
    threads = options.thread_counts[0]
    before, after = (DeployedFile(path, Deployment(provider, threads)) for provider in (FIRST, SECOND))
    with suppress(OutOfTime), ending_at(until):
        if compare is not None:
            return compare(before, after)
        original = load_once(path)
        if not symbolic_inputs(original).is_static:
            return None
        # As the search in ONNX Runtime will open it, so that it is opened once.
        graph = open_model(f"file:{path}", target_opset=options.target_opset).graph
        feeds: Recipes = read_input_data(options.input_data, original) or random_feeds(graph)
        with _in_worker(feeds, replace(options, provider=FIRST).clock_of(threads), seconds) as timed:
            return timed(before, after)
    return None


def _check(options: OptimizeOptions) -> None:
    if options.specialise:
        raise UserError(f"--provider {BEST} judges one model, and --specialise makes several: choose a provider")
    if len(options.thread_counts) > 1:
        raise UserError(f"--provider {BEST} judges with one number of threads: name one, or choose a provider")
    if options.custom_ops:
        raise UserError(f"--custom-ops: libraries are for ONNX Runtime alone; leave --provider {BEST} out")


def _judged(
    path: Path,
    options: OptimizeOptions,
    found: dict[str, Optimization],
    told: dict[str, str],
    plain: Latency | None,
    until: float,
    compare: Compare | None,
) -> Optimization:
    """Return the faster of the verified results, with what each runtime would give; `plain` is the original's latency
    in OpenVINO, where it is known."""
    results = {name: RuntimeResult(name, message=message) for name, message in told.items()}
    if FIRST in found:
        own = found[FIRST].result.latency
        results[FIRST] = replace(
            results[FIRST], plain=Latency(own.ms * own.speedup, 1.0, (1.0, 1.0), own.runs, own.ms * own.speedup),
            latency=own,
        )  # fmt: skip
    chosen = FIRST if FIRST in found and (found[FIRST].verified or SECOND not in found) else SECOND
    if SECOND in found and found[SECOND].verified:
        results[SECOND] = replace(results[SECOND], plain=plain)
        with suppress(OutOfTime), ending_at(until), _comparing(path, found[SECOND], compare) as timed:
            results[SECOND], duel = _timed(found, results[SECOND], timed)
            latency = results[SECOND].latency
            wins = duel is not None and duel.ok and duel.lower_bound > 1.0
            if wins and latency is not None and latency.ok:
                chosen = SECOND
    results[chosen] = replace(results[chosen], chosen=True)
    best, latency = found[chosen], results[chosen].latency
    if chosen == SECOND and latency is not None and latency.ok:
        best = replace(best, result=replace(best.result, latency=latency, message=_message(best, results[SECOND])))
    return replace(best, runtimes=tuple(results.values()))


def _message(best: Optimization, result: RuntimeResult) -> str:
    plain = result.plain
    if plain is None or not plain.ok:
        return best.message
    return f"OpenVINO runs the original {plain.speedup:.2f} times as fast as ONNX Runtime; there {best.message}"


def _timed(
    found: dict[str, Optimization], result: RuntimeResult, timed: Compare
) -> tuple[RuntimeResult, Latency | None]:
    """Time the result of OpenVINO against that of ONNX Runtime, where there is one that was checked, and against the
    original in ONNX Runtime; last, as nothing depends on it, the original in both, if that is not known. Each has its
    part of the time that is left: what does not end in it is not known."""
    second = found[SECOND]
    original, threads = original_file(second.problem), second.problem.deployment.threads
    before, plain = (DeployedFile(original, Deployment(provider, threads)) for provider in (FIRST, SECOND))
    first, ours = found.get(FIRST), plain if second.result.is_original else _file_of(second)
    duel = None if first is None or not first.verified else (_file_of(first), ours)
    known: dict[tuple[DeployedFile, DeployedFile] | None, Latency] = {}
    if result.plain is not None:
        known[before, plain] = result.plain
    wanted = dict.fromkeys((duel, (before, ours), (before, plain)))
    pairs = [pair for pair in wanted if pair is not None and pair not in known]
    for number, pair in enumerate(pairs):
        with suppress(OutOfTime), ending_at(time.monotonic() + seconds_left() / (len(pairs) - number)):
            known[pair] = timed(*pair)
    result = replace(result, plain=known.get((before, plain)), latency=known.get((before, ours)))
    return result, known.get(duel)


def _file_of(outcome: Optimization) -> DeployedFile:
    """Return the file of a result; of an original that is kept, one that can be run."""
    checked = outcome.result.checked
    kept = outcome.result.is_original or checked.path == outcome.problem.model.path
    return DeployedFile(original_file(outcome.problem) if kept else checked.path, checked.deployment)


@contextmanager
def _comparing(path: Path, outcome: Optimization, compare: Compare | None) -> Iterator[Compare]:
    """Yield what times two files, on the inputs that the searches have measured with."""
    if compare is not None:
        yield compare
        return
    problem = outcome.problem
    clock = problem.meter.clock if isinstance(problem.meter, OrtMeter) else "wall"
    with tempfile.TemporaryDirectory(prefix="judging-", dir=problem.workspace) as folder:
        inputs = symbolic_inputs(load_once(path))
        feeds: Recipes = problem.data or random_feeds(problem.model.graph)
        if not inputs.is_static:
            shapes = dict(problem.model.shapes)
            feeds = measured_feeds(
                problem.model.graph, inputs, shapes, problem.model.original, problem.data, Path(folder)
            )
        with _in_worker(feeds, clock, _comparison_s(outcome.options.seconds)) as timed:
            yield timed


@contextmanager
def _in_worker(feeds: Recipes, clock: Clock, seconds: float) -> Iterator[Compare]:
    """Yield what times two files in a worker process, for so many seconds."""
    plan = judging_plan(2 * seconds)
    with WorkerClient() as worker:
        yield lambda before, after: compare_deployed(before, after, worker, feeds=feeds, plan=plan, clock=clock)


def _comparison_s(seconds: float) -> float:
    """Return the seconds of a time limit that each comparison of two files may take."""
    return min(JUDGING_S, JUDGING_SHARE * seconds) / _COMPARISONS
