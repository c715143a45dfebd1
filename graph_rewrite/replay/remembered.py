"""A remembered result: the recording of what an earlier search found, what it gained, and on what that depended."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from graph_rewrite.errors import UserError
from graph_rewrite.ir.hashing import digest
from graph_rewrite.replay.recording import Recording

FORMAT = "rewritegym.result"
VERSION = 1
MOST_STEPS = 20_000
"""Most steps of a remembered result: no search takes that many."""
FASTEST = 1e6
"""Speed-up above which a number is no measurement."""


class NewerFormatError(UserError):
    """A remembered result that a newer version wrote."""


@dataclass(frozen=True, slots=True)
class RememberedResult:
    """A result of an earlier search for a model of the same structure."""

    recording: Recording
    speedup: float
    seconds: float
    """Time limit of the search."""
    context: Mapping[str, Any]
    """What its latency and its choice depended on: machine, runtime, deployment, limits."""
    same_context: bool = True
    """Whether that is the same now; if not, it may or may not gain here."""
    path: tuple[tuple[int, float], ...] = ()
    """(steps applied, speed-up) of the graphs that were measured on the way to it."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Times in a row that it did not gain when it was tried, by the digest of the context."""

    def failures_in(self, context: Mapping[str, Any]) -> int:
        """Return how often in a row it did not gain in a context."""
        return self.failures.get(context_digest(context), 0)

    def has_rewrites_of(self, other: RememberedResult) -> bool:
        """Return whether two results have the same rewrites, whatever they gained."""
        return _outline(self.recording) == _outline(other.recording)

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return {
            "format": FORMAT, "format_version": VERSION, "speedup": self.speedup, "seconds": self.seconds,
            "context": dict(self.context), "path": [list(point) for point in self.path],
            "failures": dict(self.failures), "actions": self.recording.to_json(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the result of plain values, which may come from anywhere: every entry is checked.

        Raises:
            NewerFormatError: a newer version wrote it.
            UserError: something is missing, of another kind or out of range; the message says what.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise UserError("it is no remembered result")
        version = values.get("format_version")
        if type(version) is not int:
            raise UserError("its format_version is no whole number")
        if version > VERSION:
            raise NewerFormatError(f"it has format {version}, this RewriteGym reads up to {VERSION}")
        context, failures = values.get("context"), values.get("failures", {})
        if not isinstance(context, dict):
            raise UserError("its context is no object")
        if not isinstance(failures, dict) or not all(type(n) is int and n >= 0 for n in failures.values()):
            raise UserError("its failures are no counts")
        recording = Recording.from_json(values.get("actions"))
        steps = len(recording.steps)
        if not 0 < steps <= MOST_STEPS:
            raise UserError(f"it has {steps} steps")
        speedup = _number(values.get("speedup"), "speedup", 0.0, FASTEST)
        seconds = _number(values.get("seconds"), "seconds", 0.0, 1e9)
        return cls(recording, speedup, seconds, context, path=_path(values.get("path", []), steps), failures=failures)


def context_digest(context: Mapping[str, Any]) -> str:
    """Return a digest of a context."""
    return digest(json.dumps(context, sort_keys=True))[:16]


def _outline(recording: Recording) -> list[tuple[Any, ...]]:
    return [(s.rule, s.kind, s.sites, s.refused, dict(s.settings), s.after) for s in recording.steps]


def _number(value: object, name: str, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise UserError(f"its {name} is no number")
    if not least <= value <= most:
        raise UserError(f"its {name} is {value:g}")
    return float(value)


def _path(points: object, steps: int) -> tuple[tuple[int, float], ...]:
    """Return the points of a path, each further along the steps than the one before."""
    if not isinstance(points, Sequence) or isinstance(points, str):
        raise UserError("its path is no list")
    found: list[tuple[int, float]] = []
    for point in points:
        if not isinstance(point, list) or len(point) != 2 or type(point[0]) is not int:
            raise UserError("its path has an entry that is no number of steps with a speed-up")
        last = found[-1][0] if found else -1
        if not last < point[0] <= steps:
            raise UserError(f"its path leads to step {point[0]} of {steps} after step {last}")
        found.append((point[0], _number(point[1], "path", 0.0, FASTEST)))
    return tuple(found)
