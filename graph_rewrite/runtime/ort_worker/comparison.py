"""A process that runs two models on the same inputs and compares their outputs: `python -m ort_worker.comparison`,
started by `graph_rewrite.delivery.comparison_process` as a process of its own, because a model may crash ONNX Runtime.

Arguments: a request (JSON) and a file for the findings, one JSON object per line: `{"stage": ...}` as each begins,
then `{"findings": [...], ...}` or `{"error": ...}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .deployment import Deployment, open_session
from .probing import probe
from .session_runs import Report, Values, feeds_of, run_model
from .values import beyond_tolerances, compare_values, is_constant, tells_nothing


@dataclass(frozen=True)
class Finding:
    """One output on one input: `error` relative to the original's scale (inf where values, shapes or types do not
    correspond at all), and whether the output is constant, which makes agreement meaningless."""

    output: str
    seed: int
    error: float
    problem: str
    original_constant: bool
    optimised_constant: bool


@dataclass(frozen=True)
class Findings:
    """The outcome of a comparison. `constant` are outputs that are the same in the original on all inputs; `random`
    are those that differ from themselves when the original runs twice on one input, with the difference."""

    findings: Sequence[Finding]
    constant: Sequence[str] = ()
    random: Mapping[str, float] | None = None


def compare(request: Mapping[str, Any], report: Report) -> Findings:
    """Open and run both models, one after the other; `report(stage)` says what begins."""
    deployment = Deployment.from_json(request["deployment"])
    # The optimised model first: its inputs have fixed shapes, those of the original may be symbolic.
    report("optimised: open")
    session = open_session(request["optimised"], deployment)
    feeds = feeds_of(session, request["feeds"])
    report("optimised: run")
    optimised = [run_model(session, feed) for feed in feeds]
    del session
    report("original: open")
    session = open_session(request["original"], Deployment(deployment.provider, deployment.threads, "none"))
    report("original: run")
    original = [run_model(session, feed) for feed in feeds]
    report("compare")
    found = [
        finding
        for seed, (before, after) in enumerate(zip(original, optimised, strict=True))
        for finding in _compare_outputs(seed, before, after, request.get("rtol"), request.get("atol"))
    ]
    constant = [name for name in original[0] if tells_nothing([values[name] for values in original])]
    wrong = any(finding.problem or not finding.error <= request["tolerance"] for finding in found)
    random = {}
    if wrong:
        # In the same session: a new one begins with the same random numbers.
        report("original: run again")
        random = _differences(original[0], run_model(session, feeds[0]), request["tolerance"])
    return Findings(found, constant, random)


def _compare_outputs(seed: int, before: Values, after: Values, rtol: float | None, atol: float | None) -> list[Finding]:
    found = []
    for name, value in before.items():
        if name not in after:
            found.append(Finding(name, seed, np.inf, "is missing", is_constant(value), False))
            continue
        error, problem = compare_values(value, after[name])
        if not problem and (rtol is not None or atol is not None):
            problem = beyond_tolerances(value, after[name], rtol or 0.0, atol or 0.0)
        found.append(Finding(name, seed, error, problem, is_constant(value), is_constant(after[name])))
    return found


def _differences(one: Values, other: Values, tolerance: float) -> dict[str, float]:
    """Return the outputs that differ, with the difference relative to their scale."""
    compared = {name: compare_values(value, other[name]) for name, value in one.items()}
    return {name: error for name, (error, problem) in compared.items() if problem or not error <= tolerance}


def main(arguments: list[str]) -> int:
    request, path = json.loads(Path(arguments[0]).read_text("utf-8")), Path(arguments[1])
    with path.open("w") as out:

        def write(message: Mapping[str, Any]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        def report(stage: str) -> None:
            write({"stage": stage})

        try:
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
