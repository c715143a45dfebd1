"""The inputs that a model accepts: whether it runs on given ones, and others for a model that refuses random ones."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from graph_rewrite.delivery.comparison_inputs import ComparisonInputs, comparison_inputs, seeded_inputs
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.usual_values import attempts
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.leaf_process import LimitBroughtForward, leaf_command, run_leaf
from graph_rewrite.system.bounded import BoundedDict
from graph_rewrite.system.deadline import OutOfTime, check_time, seconds_left
from graph_rewrite.system.scratch import scratch_folder

SECONDS = 60.0
"""Most seconds for trying inputs."""
_TIME_SHARE = 0.5
SEEDS = 5
"""Random inputs, which a model must run on with the same values of the others."""
_CRASHES = 3
"""Crashes of ONNX Runtime after which no more inputs are tried: a division by zero may end a process."""


@dataclass(frozen=True)
class Acceptance:
    """The inputs that a model runs on. `refusal` is why it does not run on random ones, empty where it does; `values`
    are those of some inputs, by name, with which it runs then, and None where no such were found."""

    refusal: str = ""
    values: Mapping[str, Any] | None = field(default_factory=dict)


def refused_inputs(refusal: str) -> str:
    """Return what is to be said where no inputs are found that a model runs on."""
    return (
        f"the original does not run on random inputs ({refusal}); give inputs that it accepts by --input-data FILE.npz"
    )


_known: BoundedDict[tuple[str, str], Acceptance] = BoundedDict(64)


def acceptance(model: Path, graph: Graph, deployment: Deployment) -> Acceptance:
    """Return whether a model runs on random inputs, and values of some inputs with which it runs where it does not.

    An input that says how a node works, such as a shape or an axis, gets the value that the declared types ask for, and
    other integers small numbers.

    Args:
        model: the file that is run, without optimisation.
        graph: its graph.

    Raises:
        OutOfTime: the time limit is reached.
    """
    key = (graph.named_hash, json.dumps(deployment.unoptimised().to_request(), sort_keys=True))
    while key not in _known:
        check_time()
        within = min(SECONDS, _TIME_SHARE * seconds_left())
        with suppress(LimitBroughtForward):
            _known[key] = _tried(model, graph, deployment, within)
    return _known[key]


def _tried(model: Path, graph: Graph, deployment: Deployment, seconds: float) -> Acceptance:
    tried: list[Mapping[str, Any]] = [{}, *attempts(graph, index_ranges(graph))]
    groups = [seeded_inputs(graph, SEEDS, FeedSpec(values=values)) for values in tried]
    refused = ""
    with scratch_folder("accept") as name:
        for _ in range(_CRASHES):
            specs = [spec for group in groups for spec in group]
            found = refusals(model, specs, deployment, Path(name), seconds, group=SEEDS)
            answers = [found[i : i + SEEDS] for i in range(0, len(found), SEEDS)]
            refused = refused or next(filter(None, answers[0]), "")
            accepted = next((i for i, answer in enumerate(answers) if not any(answer)), None)
            if accepted is not None:
                return Acceptance(refused, tried[accepted])
            if seconds < SECONDS and any(answer.startswith(_UNTRIED) for answer in found):
                raise OutOfTime("no time was left to try which inputs the model accepts")
            crashed = next((i for i, answer in enumerate(answers) if CRASHED in answer), len(answers))
            groups, tried = groups[crashed + 1 :], tried[crashed + 1 :]
            if not groups:
                break
    return Acceptance(refused, None)


CRASHED = "ONNX Runtime crashed, or cannot open the model"
_UNTRIED = "not tried within"


def refusals(
    model: Path,
    feeds: Sequence[FeedSpec],
    deployment: Deployment,
    folder: Path,
    seconds: float,
    *,
    group: int = 0,
) -> list[str]:
    """Run a model on each of some inputs, without optimisation, in a process of its own.

    Args:
        group: inputs come in groups of so many; end with the first group on all of which the model runs.

    Returns:
        Per input an empty text, or why the model does not run on it. What was not tried within `seconds` counts as
        refused.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    report = folder / "acceptance.jsonl"
    report.unlink(missing_ok=True)
    plain = deployment.unoptimised()
    asked = folder / "acceptance.json"
    specs = [spec.to_json() for spec in feeds]
    request = {
        "kind": "accept", "original": str(model), "deployment": plain.to_request(), "feeds": specs, "group": group,
    }  # fmt: skip
    asked.write_text(json.dumps(request), "utf-8")
    command = leaf_command("ort_worker.comparison", [str(asked), str(report)])
    reason = CRASHED
    try:
        run_leaf(command, seconds)
    except subprocess.TimeoutExpired:
        reason = f"{_UNTRIED} {seconds:.0f} s"
    lines = report.read_text().splitlines() if report.exists() else []
    found = [str(json.loads(line).get("refused", reason)) for line in lines if line.endswith("}")]
    return found + [reason] * (len(feeds) - len(found))


def inputs_instead(
    original: Path,
    graph: Graph,
    deployment: Deployment,
    seeds: int,
    given: FeedSpec | Sequence[FeedSpec] | None,
    data: Sequence[FeedSpec],
    extremes: bool,
) -> ComparisonInputs | str:
    """Return other inputs for a model that does not run on random ones, with values of some inputs that it accepts, or
    else the user's alone; where there are none, the reason why it does not run, empty where random inputs are right.

    Raises:
        OutOfTime: the time limit is reached.
    """
    if given is not None and (not isinstance(given, FeedSpec) or given.npz is not None):
        return ""
    accepted = acceptance(original, graph, deployment)
    if not accepted.refusal:
        return ""
    if accepted.values is not None:
        first = given or FeedSpec()
        values = {**accepted.values, **first.values}
        return comparison_inputs(graph, seeds, replace(first, values=values), data, extremes)
    return ComparisonInputs(data[:1], data[1:]) if data else accepted.refusal
