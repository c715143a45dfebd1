"""Comparison of the values inside two models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .deployment import Deployment
from .runtimes.opening import open_session
from .session_runs import Report, Values, feeds_of, run_model
from .values import Array, compare_values, tells_nothing

_LIKE = 1e-2
"""Relative difference of norms beyond which two values are not compared element by element."""


@dataclass(frozen=True)
class Probe:
    """A value inside the original: whether it is the same on all inputs; the value of the optimised model that it was
    compared with, empty where there is none; and how they compare."""

    name: str
    tells_nothing: bool
    counterpart: str = ""
    error: float = np.inf
    problem: str = ""


def probe(request: Mapping[str, Any], report: Report) -> list[Probe]:
    """Compare values inside two models, whose files were given them as outputs: `original_values` and
    `optimised_values`. The models are bytes without their weights, which lie in the folders `*_folder`.

    A value of the original is compared with that of the same name. Where there is none, or the two differ, it is
    compared with those of the same elements in any shape: rewrites remove nodes that only reshape.
    """
    deployment = Deployment.from_request(request["deployment"])
    report("optimised: open with its inner values")
    session = open_session(request["optimised"], deployment, weights=request["optimised_folder"])
    feeds = feeds_of(session, request["feeds"])
    report("optimised: run with its inner values")
    optimised = [run_model(session, feed, request["optimised_values"]) for feed in feeds]
    del session
    report("original: open with its inner values")
    session = open_session(request["original"], deployment.unoptimised(), weights=request["original_folder"])
    report("original: run with its inner values")
    original = [run_model(session, feed, request["original_values"]) for feed in feeds]
    report("compare inner values")
    inputs = [Probe(name, tells_nothing([feed[name] for feed in feeds]), name, 0.0) for name in feeds[0]]
    alike = _Alike([{**feed, **values} for feed, values in zip(feeds, optimised, strict=True)], request["tolerance"])
    return [*inputs, *(_probe(name, original, alike) for name in request["original_values"])]


def _probe(name: str, original: Sequence[Values], alike: _Alike) -> Probe:
    values = [run[name] for run in original]
    if tells_nothing(values):
        return Probe(name, True)
    named = alike.compared(name, values) if name in alike.values[0] else None
    if named is not None and not named.problem and named.error <= alike.tolerance:
        return named
    return alike.find(name, values) or named or Probe(name, False)


class _Alike:
    """The values of the optimised model by number of elements and norm on the first input."""

    def __init__(self, values: Sequence[Values], tolerance: float) -> None:
        self.values, self.tolerance = values, tolerance
        self._by_size: dict[int, list[tuple[float, str]]] = {}
        for name, value in values[0].items():
            if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                self._by_size.setdefault(value.size, []).append((_norm(value), name))

    def compared(self, name: str, values: Sequence[Any]) -> Probe:
        pairs = [compare_values(value, run[name]) for value, run in zip(values, self.values, strict=True)]
        error, problem = max(pairs)
        return Probe(name, False, name, error, problem)

    def find(self, name: str, values: Sequence[Any]) -> Probe | None:
        """Return how a value compares with one of the same elements in the same order."""
        first = values[0]
        if not isinstance(first, np.ndarray) or first.dtype.kind != "f":
            return None
        norm = _norm(first)
        for size, other in self._by_size.get(first.size, ()):
            if not abs(size - norm) <= _LIKE * norm:
                continue
            runs = zip(values, self.values, strict=True)
            error, problem = max(compare_values(value.ravel(), run[other].ravel()) for value, run in runs)
            if not problem and error <= self.tolerance:
                return Probe(name, False, other, error)
        return None


def _norm(value: Array) -> float:
    return float(np.linalg.norm(value.astype(np.float64)))
