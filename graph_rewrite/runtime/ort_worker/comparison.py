"""A process that runs two models on the same inputs and compares their outputs: `python -m ort_worker.comparison`,
started by `graph_rewrite.delivery.equivalence` as a process of its own, because a model may crash ONNX Runtime.

Arguments: a request (JSON) and a file for the findings, one JSON object per line: `{"stage": ...}` as each begins,
then `{"findings": [...]}` or `{"error": ...}`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from .deployment import Deployment, open_session
from .feeds import Feeds, FeedSpec, ModelInput, make_feeds

Array = NDArray[Any]


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


def compare_values(original: Any, optimised: Any) -> tuple[float, str]:
    """Return the largest difference relative to the largest finite magnitude of `original`, and what else is wrong.

    Floats may differ; all other elements must be equal. NaN and infinities must stand in the same places. Values are
    arrays, lists of values (sequences) or None (an empty optional).
    """
    if isinstance(original, list) and isinstance(optimised, list):
        if len(original) != len(optimised):
            return np.inf, f"has {len(optimised)} elements instead of {len(original)}"
        found = [compare_values(a, b) for a, b in zip(original, optimised, strict=True)]
        return max(found, default=(0.0, ""))
    if not isinstance(original, np.ndarray) or not isinstance(optimised, np.ndarray):
        same = type(original) is type(optimised) and original == optimised
        return (0.0, "") if same else (np.inf, "is of another kind")
    if original.dtype != optimised.dtype or original.shape != optimised.shape:
        return np.inf, (
            f"is {optimised.dtype}{list(optimised.shape)} instead of {original.dtype}{list(original.shape)}"
        )
    if original.dtype.kind in "biuOSU":
        return (0.0, "") if np.array_equal(original, optimised) else (np.inf, "has other integers, booleans or strings")
    return _compare_floats(original, optimised)


def _compare_floats(original: Array, optimised: Array) -> tuple[float, str]:
    wide = np.complex128 if original.dtype.kind == "c" else np.float64
    a, b = original.astype(wide), optimised.astype(wide)
    finite = np.isfinite(a)
    if not np.array_equal(a[~finite], b[~finite], equal_nan=True) or not np.isfinite(b[finite]).all():
        return np.inf, "has NaN or infinity in other places"
    scale = float(np.abs(a[finite]).max(initial=0.0))
    difference = float(np.abs(a[finite] - b[finite]).max(initial=0.0))
    return (0.0, "") if difference == 0.0 else (difference / scale if scale else np.inf, "")


def is_constant(value: Any) -> bool:
    """Return whether all elements of a floating-point output (of several elements) are the same, or none is finite."""
    if not isinstance(value, np.ndarray) or value.dtype.kind in "biuOSU" or value.size < 2:
        return False
    finite = value[np.isfinite(value)]
    return bool(finite.size == 0 or (finite.size == value.size and np.all(finite == finite[0])))


def _feeds(session: ort.InferenceSession, request: Mapping[str, Any]) -> list[Feeds]:
    inputs = [ModelInput(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    return [make_feeds(inputs, FeedSpec.from_json(spec)) for spec in request["feeds"]]


def _run(session: ort.InferenceSession, feeds: list[Feeds]) -> list[dict[str, Any]]:
    names = [item.name for item in session.get_outputs()]
    known = {item.name for item in session.get_inputs()}
    results = []
    for feed in feeds:
        values = session.run(names, {name: array for name, array in feed.items() if name in known})
        results.append(dict(zip(names, values, strict=True)))
    return results


def compare(request: Mapping[str, Any], report: Any) -> list[Finding]:
    """Open and run both models, one after the other; `report(stage)` says what begins."""
    deployment = Deployment.from_json(request["deployment"])
    reference = Deployment(deployment.provider, deployment.threads, "none")
    # The optimised model first: its inputs have fixed shapes, those of the original may be symbolic.
    report("optimised: open")
    session = open_session(request["optimised"], deployment)
    feeds = _feeds(session, request)
    report("optimised: run")
    optimised = _run(session, feeds)
    del session
    report("original: open")
    session = open_session(request["original"], reference)
    report("original: run")
    original = _run(session, feeds)
    report("compare")
    found = []
    for seed, (before, after) in enumerate(zip(original, optimised, strict=True)):
        for name, value in before.items():
            if name not in after:
                found.append(Finding(name, seed, np.inf, "is missing", is_constant(value), False))
                continue
            error, problem = compare_values(value, after[name])
            found.append(Finding(name, seed, error, problem, is_constant(value), is_constant(after[name])))
    return found


def main(arguments: list[str]) -> int:
    request, path = json.loads(arguments[0]), Path(arguments[1])
    with path.open("w") as out:

        def write(message: Mapping[str, Any]) -> None:
            out.write(json.dumps(message) + "\n")
            out.flush()

        try:
            found = compare(request, lambda stage: write({"stage": stage}))
        except Exception as error:  # whatever ONNX Runtime says about a model is a finding
            write({"error": f"{type(error).__name__}: {' '.join(str(error).split())}"})
        else:
            write({"findings": [asdict(finding) for finding in found]})
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
