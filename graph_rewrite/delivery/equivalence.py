"""Comparison of an optimised model with the original: both run in ONNX Runtime, the original with all its optimisations
off, the optimised one as it will be deployed."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graph_rewrite.delivery.acceptance import inputs_instead, refused_inputs
from graph_rewrite.delivery.comparison_inputs import SEEDS, ComparisonInputs, comparison_inputs
from graph_rewrite.delivery.comparison_process import ComparisonError, run_comparison
from graph_rewrite.delivery.exact_reference import is_nearer
from graph_rewrite.delivery.hidden_values import ModelFile, examine
from graph_rewrite.delivery.random_operators import random_operators
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.ort_worker.comparison import Finding
from graph_rewrite.system.scratch import scratch_folder

TIMEOUT_S = 900.0
"""For opening both models and running each on all inputs."""

_TIME_SHARE = 0.6
"""Part of the time that is left which a comparison may take, if the inputs that it must have take no longer."""
_NOISES = 4.0
"""Times what rounding changes in the original on an extreme input, by which a right rewrite may differ there."""


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The outcome of a comparison. `max_rel_error` is the largest difference of any output, relative to the largest
    magnitude in that output of the original."""

    ok: bool
    max_rel_error: float
    tolerance: float
    message: str
    vacuous: tuple[str, ...] = ()
    """Outputs that are the same on all inputs, and of which nothing tells whether they are right. With one of them
    `ok` is False."""
    random: tuple[str, ...] = ()
    """Outputs that differ from themselves when the original runs twice on the same input. With one of them `ok` is
    True for an unchanged model alone."""


def equivalent(
    original: str | os.PathLike[str],
    optimised: str | os.PathLike[str],
    deployment: Deployment,
    *,
    seeds: int = SEEDS,
    tolerance: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    feeds: FeedSpec | Sequence[FeedSpec] | None = None,
    data: Sequence[FeedSpec] = (),
    extremes: bool = True,
) -> Equivalence:
    """Compare an optimised model file, run as deployed, with the original, run by the same provider without any
    optimisation, on `seeds` random inputs, on the user's, and on extreme ones.

    Floats of an output may differ by `tolerance` (by default `default_tolerance`) times the output's largest
    magnitude; integers, booleans and strings must be equal; NaN and infinities must stand in the same places. Of
    outputs that are the same on all inputs the values before them decide (`hidden_values`). On extreme inputs an output
    may also differ by four times what rounding alone changes in the original there, and by more where it lies nearer
    to exact arithmetic than the original's own (`exact_reference`). Both models run in a process of their own: a crash,
    a hang or a failure of either is an outcome, not an exception.

    Two random inputs and the first of the user's always run; the other random ones, unless a time limit
    (`system.deadline`) is short. The rest run as far as the time limit goes; without one, for as long as those before
    them took. The message says how many did.

    Args:
        rtol: with `atol`, a further limit for every element, as in `numpy.allclose`: differences of at most
            `atol + rtol * |original|`. Where one alone is given, the other is 0. Extreme inputs are exempt.
        feeds: how to make the random inputs; by default floats are standard normal, indices of Gather lie in range, and
            masks are all ones for the first input and random for the others. Where the original refuses those, inputs
            such as shapes and axes get values that it accepts (`acceptance`), or the user's inputs alone are run. A
            file of feeds gives one input, and several recipes one each, which may have different shapes where the model
            has symbolic dimensions; no other input is run but `data`.
        data: the user's inputs.
        extremes: run extreme inputs too: magnitudes of 1e-4 and 1e4, zeros, equal and one-hot values, the lowest and
            the highest index.

    Raises:
        ModelLoadError: the original is no readable ONNX model.
        OutOfTime: the time limit is reached.
        ValueError: `seeds` is less than 1.
    """
    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}")
    graph = load_once(Path(original))
    limit = default_tolerance(graph, deployment) if tolerance is None else tolerance
    inputs = comparison_inputs(graph, seeds, feeds, data, extremes)
    limits = {"tolerance": limit, "rtol": rtol, "atol": atol}

    def compared(inputs: ComparisonInputs) -> Equivalence:
        with scratch_folder("extremes") as folder:
            reply = _reply(_request(original, optimised, deployment, inputs) | limits | {"kept": str(folder)})
            return _outcome(reply, ModelFile(Path(original), graph), Path(optimised), deployment, inputs, limit)

    instead: ComparisonInputs | str = ""
    try:
        return compared(inputs)
    except ComparisonError as error:
        message = str(error)
        if error.stage.endswith(": run"):
            instead = inputs_instead(Path(original), graph, deployment, seeds, feeds, data, extremes)
    if not isinstance(instead, ComparisonInputs):
        return Equivalence(False, math.inf, limit, refused_inputs(instead) if instead else message)
    try:
        return compared(instead)
    except ComparisonError as error:
        return Equivalence(False, math.inf, limit, str(error))


def _request(
    original: str | os.PathLike[str],
    optimised: str | os.PathLike[str],
    deployment: Deployment,
    inputs: ComparisonInputs,
) -> dict[str, object]:
    """Return what the process that compares is asked, without the limits of the differences."""
    return {
        "kind": "compare",
        "original": os.fspath(original),
        "optimised": os.fspath(optimised),
        "deployment": deployment.to_request(),
        "feeds": [spec.to_json() for spec in inputs.run],
        "more": [spec.to_json() for spec in inputs.more],
        "extra": [spec.to_json() for spec in inputs.extra],
    }


def _outcome(
    reply: Mapping[str, Any],
    original: ModelFile,
    optimised: Path,
    deployment: Deployment,
    inputs: ComparisonInputs,
    tolerance: float,
) -> Equivalence:
    """Return the outcome of a comparison that came to its end, on as many of the extra inputs as the reply says."""
    outcome = judge_findings([Finding(**finding) for finding in reply["findings"]], tolerance, original.graph)
    if not outcome.ok:
        return _random_outcome(original.graph, optimised, reply["random"], outcome) if reply["random"] else outcome
    further = len(inputs.extra) + reply["skipped"]
    outcome = replace(outcome, message=outcome.message + _extra_text(further, reply["extra"], reply["refused"]))
    if not reply["constant"]:
        return outcome
    return _with_hidden_values(outcome, original, optimised, reply["constant"], deployment, inputs.run)


def _with_hidden_values(
    outcome: Equivalence,
    original: ModelFile,
    optimised: Path,
    constant: Sequence[str],
    deployment: Deployment,
    feeds: Sequence[FeedSpec],
) -> Equivalence:
    """Return an outcome with what the values before constant outputs tell."""
    side = ModelFile(optimised, load(optimised))
    hidden = examine(original, side, constant, deployment, feeds, outcome.tolerance, TIMEOUT_S)
    untold = [found for found in hidden if found.reason]
    if untold:
        vacuous = tuple(found.output for found in untold)
        return replace(outcome, ok=False, message=f"vacuous: {untold[0]}", vacuous=vacuous)
    return replace(outcome, message="; ".join([outcome.message, *map(str, hidden)]))


def _reply(request: Mapping[str, object]) -> Any:
    try:
        return run_comparison(request, TIMEOUT_S, _TIME_SHARE)
    except ComparisonError as error:
        if error.stage.startswith("original: run on extra"):
            # An input at which the original crashes or hangs tells nothing about the optimised model.
            return run_comparison({**request, "extra": []}, TIMEOUT_S, _TIME_SHARE)
        raise


def _extra_text(asked: int, judged: int, refused: int) -> str:
    """Return what is to be said of the extra inputs."""
    left_out = asked - judged - refused
    texts = [f", and on {judged} more" if judged else ""]
    if refused:
        texts.append(f"; the original does not run on {refused} of the further inputs")
    if left_out > 0:
        texts.append(f"; {left_out} of {asked} further inputs were left out for lack of time")
    return "".join(texts)


def _random_outcome(graph: Graph, optimised: Path, random: Mapping[str, float], outcome: Equivalence) -> Equivalence:
    """Return the outcome for a model that differs from itself: only the unchanged model is equal to it."""
    operators = random_operators(graph)
    drawn = f" ({', '.join(operators)})" if operators else ""
    name, error = next(iter(random.items()))
    message = (
        f"the original draws random numbers{drawn}: its output {name!r} differs from itself by {error:.2g} of its scale"
        " on the same input, so nothing can be compared; export it in eval mode, or make the random numbers an input"
    )
    unchanged = load(optimised).hash == graph.hash
    if unchanged:
        message += "; this model is the original, unchanged"
    return replace(outcome, ok=unchanged, message=message, random=tuple(random))


def judge_findings(findings: Sequence[Finding], tolerance: float, original: Graph) -> Equivalence:
    """Return the outcome of a comparison with these findings.

    Args:
        original: the graph of the original; decides on extreme inputs where exact arithmetic has to.
    """
    usual = [finding for finding in findings if not finding.extreme]
    worst = max((finding.error for finding in usual), default=0.0)
    names = list(dict.fromkeys(finding.output for finding in usual))
    constant = {n for n in names if all(f.original_constant for f in usual if f.output == n)}
    for finding in findings:
        where = _where(finding)
        if finding.optimised_constant and finding.output not in constant and not finding.original_constant:
            return Equivalence(False, worst, tolerance, f"vacuous: {where} is constant, that of the original is not")
        if finding.problem:
            return Equivalence(False, max(worst, finding.error), tolerance, f"{where} {finding.problem}")
    beyond = [finding for finding in findings if not finding.error <= _limit(finding, tolerance)]
    beyond = [finding for finding in beyond if not is_nearer(original, finding, tolerance)]
    if beyond:
        bad = max(beyond, key=lambda finding: finding.error / _limit(finding, tolerance))
        limit = _limit(bad, tolerance)
        message = f"{_where(bad)} differs by {bad.error:.2g} of its scale, more than {limit:.2g}"
        return Equivalence(False, max(worst, bad.error), tolerance, message)
    inputs = len({(finding.number, finding.label) for finding in usual})
    message = f"outputs agree on {inputs} inputs within {worst:.2g} of their scale (tolerance {tolerance:.2g})"
    return Equivalence(True, worst, tolerance, message)


def _where(finding: Finding) -> str:
    return f"output {finding.output!r} {finding.label}"


def _limit(finding: Finding, tolerance: float) -> float:
    """Return the largest error that an output may have on an input."""
    return max(tolerance, _NOISES * finding.noise)
