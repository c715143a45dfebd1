"""A process that runs two models on the same inputs and compares their outputs: `python -m ort_worker.comparison`,
started by `graph_rewrite.delivery.comparison_process` as a process of its own, because a model may crash ONNX Runtime.

Arguments: a request (JSON) and a file for the findings, one JSON object per line: `{"stage": ...}` as each begins,
then `{"findings": [...], ...}` or `{"error": ...}`. A request of the kind `accept` runs one model alone, and gives
`{"refused": ...}` per input, an empty text where it runs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .deployment import Deployment
from .extra_inputs import ExtraInputs, Noise, Runs, Stopwatch, compare_with_noise, judge_all
from .feeds import Feeds, FeedSpec
from .following import follow
from .narrow_floats import storable
from .probing import probe
from .runtimes.opening import open_session
from .session_runs import Report, Values, feeds_of, refusal, run_model
from .sessions.protocol import ModelSession
from .values import beyond_tolerances, compare_values, is_constant, tells_nothing

_RANDOM_SHARES = (0.1, 0.2)
"""Shares of the time that the random inputs may take, but for the first: in the optimised model, in the original."""
_SHARES = (0.3, 0.55, 0.75, 0.95)
"""Shares of the time by which each stage of the extra inputs ends: in the optimised model, in the original, in the
original on disturbed inputs, and with all optimisations."""

Tolerances = tuple[float | None, float | None]
"""The relative and the absolute limit of every element's difference; None for no such limit."""

INPUT, BEFORE, AFTER = "input ", "before", "after"
"""Names in a file of kept values: inputs with their names behind this, and an output of both models."""


@dataclass(frozen=True)
class Finding:
    """One output on one input: `error` relative to the original's scale (inf where values, shapes or types do not
    correspond at all), and whether the output is constant, which makes agreement meaningless. On extreme inputs `noise`
    is how much rounding alone changes the output of the original there."""

    output: str
    number: int
    """Number of the input; -1 for extra ones."""
    error: float
    problem: str
    original_constant: bool
    optimised_constant: bool
    label: str
    """The input in words, such as `with seed 3`."""
    extreme: bool = False
    noise: float = 0.0
    kept: str = ""
    """On extreme inputs where the difference is large: the file with these inputs, and the output of both models."""


@dataclass(frozen=True)
class Findings:
    """The outcome of a comparison. `constant` are outputs that are the same in the original on all inputs; `random`
    are those that differ from themselves when the original runs twice on one input, with the difference. `extra` is how
    many of the extra inputs were judged; the original fails on `refused` of them, and the others had no time. Nor had
    `skipped` of the further random inputs."""

    findings: Sequence[Finding]
    constant: Sequence[str] = ()
    random: Mapping[str, float] = field(default_factory=dict)
    extra: int = 0
    refused: int = 0
    skipped: int = 0


def compare(request: Mapping[str, Any], report: Report) -> Findings:
    """Open and run both models, one after the other; `report(stage)` says what begins."""
    watch = Stopwatch(request["within_s"])
    deployment = Deployment.from_request(request["deployment"])
    asked, least = [*request["feeds"], *request["more"]], len(request["feeds"])
    specs = [FeedSpec.from_json(spec) for spec in asked]
    # The optimised model first: its inputs have fixed shapes, those of the original may be symbolic.
    report("optimised: open")
    session = open_session(request["optimised"], deployment)
    feeds = feeds_of(session, asked)
    extra = ExtraInputs([FeedSpec.from_json(spec) for spec in request["extra"]], feeds_of(session, request["extra"]))
    report("optimised: run")
    optimised = list(_run(session, feeds, least, watch.share_from_now(_RANDOM_SHARES[0])))
    report("optimised: run on extra inputs")
    more = extra.run(session, watch.share_from_start(_SHARES[0]))
    del session
    report("original: open")
    session = open_session(request["original"], deployment.unoptimised())
    report("original: run")
    original = list(_run(session, feeds[: len(optimised)], least, watch.share_from_now(_RANDOM_SHARES[1])))
    report("compare")
    tolerances = request.get("rtol"), request.get("atol")
    found, constant = compare_answers(specs, original, optimised, tolerances)
    if any(finding.problem or not finding.error <= request["tolerance"] for finding in found):
        # In the same session: a new one begins with the same random numbers.
        report("original: run again")
        random = _differences(original[0], run_model(session, feeds[0]), request["tolerance"])
        return Findings(found, constant, random)
    expected, variants = _run_original(request, session, extra, len(more), watch, report)
    del session
    refused = sum(isinstance(values, str) for values in expected)

    keeper = Keeper(Path(request["kept"]), extra, request["tolerance"])

    def judge(spec: FeedSpec, before: Values, after: Values | str, noise: Mapping[str, Noise | None]) -> None:
        for finding in _compare_extra(spec, before, after, noise, tolerances):
            found.append(keeper.keep(finding, spec, before, after))

    judged = judge_all(extra.specs, expected, more, variants, judge)
    return Findings(found, constant, {}, judged, refused, len(asked) - len(original))


def compare_answers(
    specs: Sequence[FeedSpec], original: Sequence[Values], optimised: Sequence[Values], tolerances: Tolerances
) -> tuple[list[Finding], list[str]]:
    """Compare the outputs of two models on random inputs. Return what was found, and the outputs that are the same in
    the original on all of them."""
    found = [
        finding
        for number, (spec, before, after) in enumerate(zip(specs, original, optimised, strict=False))
        for finding in _compare_outputs(number, spec, before, after, tolerances)
    ]
    return found, [name for name in original[0] if tells_nothing([values[name] for values in original])]


def _run(session: ModelSession, feeds: Sequence[Feeds], least: int, until: float) -> Iterator[Values]:
    """Yield the outputs on inputs in turn, on so many at least, and on no further one once the time is over."""
    for number, feed in enumerate(feeds):
        if number >= least and time.monotonic() >= until:
            return
        yield run_model(session, feed)


@dataclass(frozen=True)
class Keeper:
    """Keeps what large differences on extreme inputs are to be judged by: inputs and outputs, in files of a folder."""

    folder: Path
    extra: ExtraInputs
    tolerance: float

    def keep(self, finding: Finding, spec: FeedSpec, before: Values, after: Values | str) -> Finding:
        """Return a finding on an input, with the name of a file where the difference is beyond the tolerance."""
        if not finding.extreme or finding.problem or finding.error <= self.tolerance:
            return finding
        feed = self.extra.feeds[self.extra.specs.index(spec)]
        values = {f"{INPUT}{name}": value for name, value in feed.items()}
        values |= {BEFORE: before[finding.output], AFTER: after[finding.output]}  # type: ignore[index]
        if not all(isinstance(value, np.ndarray) for value in values.values()):
            return finding
        path = self.folder / f"{len(list(self.folder.iterdir()))}.npz"
        arrays: dict[str, Any] = {name: storable(value) for name, value in values.items()}
        np.savez(path, **arrays)
        return replace(finding, kept=str(path))


def _run_original(
    request: Mapping[str, Any],
    session: ModelSession,
    extra: ExtraInputs,
    count: int,
    watch: Stopwatch,
    report: Report,
) -> tuple[Runs, list[Runs]]:
    """Return the original's outputs on the first extra inputs, and those of runs that differ by rounding alone: on
    disturbed inputs, and with all optimisations."""
    if not count:
        return [], []
    report("original: run on extra inputs")
    expected = extra.run(session, watch.share_from_start(_SHARES[1]))[:count]
    if not any(spec.pattern for spec in extra.specs[: len(expected)]):
        return expected, []
    variants = [extra.run_disturbed(session, len(expected), watch.share_from_start(_SHARES[2]))]
    report("original: run on extra inputs with all optimisations")
    deployment = Deployment.from_request(request["deployment"])
    optimised: Runs = []
    if time.monotonic() < (until := watch.share_from_start(_SHARES[3])):
        session = open_session(request["original"], deployment.plain())
        optimised = extra.run(session, until)
    return expected, [*variants, optimised]


def _compare_outputs(
    number: int, spec: FeedSpec, before: Values, after: Values, tolerances: Tolerances
) -> list[Finding]:
    found = []
    rtol, atol = tolerances
    for name, value in before.items():
        if name not in after:
            found.append(Finding(name, number, np.inf, "is missing", is_constant(value), False, spec.label))
            continue
        error, problem = compare_values(value, after[name])
        if not problem and (rtol is not None or atol is not None):
            problem = beyond_tolerances(value, after[name], rtol or 0.0, atol or 0.0)
        found.append(Finding(name, number, error, problem, is_constant(value), is_constant(after[name]), spec.label))
    return found


def _compare_extra(
    spec: FeedSpec,
    before: Values,
    after: Values | str,
    noise: Mapping[str, Noise | None],
    tolerances: Tolerances,
) -> list[Finding]:
    """Compare outputs on one extra input; those that rounding alone may change at will are left out."""
    if isinstance(after, str):
        name = next(iter(before), "")
        return [Finding(name, -1, np.inf, f"cannot be computed: {after}", False, False, spec.label, True)]
    if not spec.pattern:
        return _compare_outputs(-1, spec, before, after, tolerances)
    found = []
    for name, value in before.items():
        known = noise[name]
        if known is not None and name in after:
            error, unit, problem = compare_with_noise(value, after[name], known)
            found.append(Finding(name, -1, error, problem, False, False, spec.label, True, unit))
    return found


def _differences(one: Values, other: Values, tolerance: float) -> dict[str, float]:
    """Return the outputs that differ, with the difference relative to their scale."""
    compared = {name: compare_values(value, other[name]) for name, value in one.items()}
    return {name: error for name, (error, problem) in compared.items() if problem or not error <= tolerance}


def _accept(session: ModelSession, request: Mapping[str, Any], write: Callable[[Mapping[str, Any]], None]) -> None:
    """Run a model on inputs in turn. With `group`, end with the first group of so many on all of which it runs; the
    rest of a group is not run once one is refused."""
    group, refused = request.get("group") or 0, ""
    for number, spec in enumerate(request["feeds"]):
        if not group or number % group == 0:
            refused = ""
        refused = refused or refusal(session, spec)
        write({"refused": refused})
        if group and not refused and (number + 1) % group == 0:
            return


def main(arguments: list[str]) -> int:
    follow()
    request, path = json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1])
    with path.open("w") as out:

        def write(message: Mapping[str, Any]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        def report(stage: str) -> None:
            write({"stage": stage})

        try:
            if request["kind"] == "accept":
                session = open_session(request["original"], Deployment.from_request(request["deployment"]))
                _accept(session, request, write)
                return 0
            if request["kind"] == "probe":
                reply: dict[str, Any] = {"probes": [asdict(found) for found in probe(request, report)]}
            else:
                reply = asdict(compare(request, report))
        except Exception as error:  # whatever ONNX Runtime says about a model is a finding
            write({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        else:
            write({"reply": reply})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
