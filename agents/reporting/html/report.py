"""The content of a report: the JSON of a result, and what only its graphs tell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from graph_rewrite.delivery.footprint import ModelFootprint
from graph_rewrite.errors import UserError
from graph_rewrite.rulebook.drawing import Diagram

_NEEDED = ("speedup", "speedup_ci95", "latency_ms", "verified", "deployment", "rewrites")


@dataclass(frozen=True, slots=True)
class RewriteDetails:
    """A rewrite: its rule, its sites and a drawing; empty where the rewrite cannot be followed."""

    equation: str = ""
    where: tuple[str, ...] = ()
    """Names of its sites in the original file."""
    before: Diagram | None = None
    """The operators at its first site."""
    after: Diagram | None = None
    """What takes their place."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A rule whose pattern occurs in the result, and why it does not apply there."""

    rule: str
    reason: str
    sites: int
    such_as: str
    """Name of a site."""


@dataclass(frozen=True, slots=True)
class OptimizationReport:
    """All that a report shows. What is None or empty is left out of it.

    `entry` is the object that `rewritegym optimize --json` prints, or an entry of `results` of `rewritegym evaluate
    --json`. The other fields come from the graphs and files of the result, while there are some.
    """

    entry: Mapping[str, Any]
    details: tuple[RewriteDetails, ...] = ()
    """One per rewrite, in order."""
    operators: tuple[Mapping[str, int], Mapping[str, int]] | None = None
    """Number of nodes by operator, before and after."""
    files: tuple[int, int] | None = None
    """Bytes of the model files with their weights, before and after."""
    footprints: tuple[ModelFootprint, ModelFootprint] | None = None
    """Measured before and after."""
    near_misses: tuple[NearMiss, ...] = ()
    code: Mapping[str, str] = field(default_factory=dict)
    """Code that opens the result, by language."""
    replay: str = ""
    """The command that applies the same rewrites to another copy of the model."""
    machine: Mapping[str, str] = field(default_factory=dict)
    """Hardware and versions by name."""
    tolerance: float | None = None
    """Largest error that an output might have."""

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> OptimizationReport:
        """Return the report of a result without its graphs.

        Raises:
            UserError: the object is no result.
        """
        missing = [name for name in _NEEDED if name not in entry]
        if missing:
            raise UserError(f"this JSON is no result of an optimisation: it has no field {missing[0]!r}")
        return cls(entry, details=tuple(RewriteDetails(where=names) for names in _recorded_sites(entry)))

    @property
    def model(self) -> str:
        """The name of the model, without its folder."""
        uri = str(self.entry.get("model") or self.entry.get("onnx_path") or "model")
        return uri.removeprefix("file:").removeprefix("zoo://").rpartition("/")[2] or uri

    @property
    def speedup(self) -> float:
        return float(self.entry["speedup"])

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% confidence interval of the speed-up."""
        low, high = self.entry["speedup_ci95"]
        return 0.0 if low is None else float(low), math.inf if high is None else float(high)

    @property
    def latency_ms(self) -> float | None:
        return None if self.entry["latency_ms"] is None else float(self.entry["latency_ms"])

    @property
    def baseline_ms(self) -> float | None:
        """The original's latency; that of the result times the speed-up, which was measured in pairs."""
        given = self.entry.get("baseline_ms")
        if given is not None:
            return float(given)
        return None if self.latency_ms is None else self.latency_ms * self.speedup

    @property
    def is_original(self) -> bool:
        """True where the original is kept."""
        return not self.entry["rewrites"]

    def details_of(self, number: int) -> RewriteDetails:
        """Return what is known of a rewrite, by its number from 0."""
        return self.details[number] if number < len(self.details) else RewriteDetails()


def _recorded_sites(entry: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the names of the sites of each rewrite, where its actions were recorded."""
    steps = (entry.get("actions") or {}).get("steps") or ()
    return [tuple(str(site.get("where", "")) for site in step.get("at") or ()) for step in steps]
