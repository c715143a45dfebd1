"""Chains of rewrites, and the timing of what they change."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from agents.core.base import Search
from agents.regional.experience import LoggedChain, Note
from agents.regional.sites import RewriteStep
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.latency import MeasurementError
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair

CERTAIN = 2.0
"""Half-widths of the 95% interval that a saving must exceed to be certain: after a few runs they are luck as well."""


class Timer(Protocol):
    """Times a window, as `WindowMeter` does. Raises MeasurementError where ONNX Runtime cannot run it."""

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RewriteChain:
    """A chain of rewrites that makes a window faster, and what it gains at all sites of its class together."""

    steps: tuple[RewriteStep, ...]
    anchors: frozenset[int]
    """Nodes of the whole graph at which the first step's matches begin."""
    nodes: frozenset[int]
    """Nodes of the whole graph that it removes."""
    saved: float
    """Seconds per inference."""
    half: float
    """Half-width of the 95% interval of `saved`."""
    growth: int
    """Bytes of weights that it adds."""
    error: float
    """Largest `error_growth` of its rules."""
    cut: WindowPair = field(compare=False)
    """The window before and after."""
    price: float = 0.0
    """Seconds per inference that it must save for the weights that it adds."""
    parts: tuple[float, ...] = ()
    """Seconds per inference that each step saved when it was first timed, after those before it."""
    logged: LoggedChain = field(default_factory=LoggedChain, compare=False, repr=False)
    """The chain as it is logged."""
    sites: tuple[tuple[int, frozenset[int]], ...] = ()
    """Where the first step's matches begin, and the nodes that are removed there; empty for a chain that cannot be
    applied to a part of its sites."""

    @property
    def net(self) -> float:
        """Seconds per inference that it saves beyond the price of its weights."""
        return self.saved - self.price

    @property
    def lower_bound(self) -> float:
        """The lower bound of the 95% confidence interval of `net`, by which chains are ranked: of many, the one that
        seems to save most is the one with the widest interval."""
        return self.net - self.half

    @property
    def is_certain(self) -> bool:
        """True where more is saved, beyond the price, than timing is wrong by."""
        return self.net > CERTAIN * self.half

    def saved_by(self, step: int) -> float | None:
        """Return the part of `saved` that is due to a step, in seconds; None where steps were not timed one by one."""
        together = sum(self.parts)
        return self.parts[step] / together * self.saved if together > 0.0 else None

    def scaled(self, factor: float) -> RewriteChain:
        """Return the chain in a model that takes so many times as long as was thought."""
        return replace(
            self, saved=factor * self.saved, half=factor * self.half, price=factor * self.price,
            parts=tuple(factor * part for part in self.parts),
        )  # fmt: skip

    def without(self, nodes: frozenset[int]) -> RewriteChain | None:
        """Return the chain at those of its sites that remove none of these nodes, with their part of what it saves;
        None where none is left."""
        kept = tuple((anchor, removed) for anchor, removed in self.sites if not removed & nodes)
        if not kept:
            return None
        part = len(kept) / len(self.sites)
        return replace(
            self.scaled(part), anchors=frozenset(anchor for anchor, _ in kept),
            nodes=frozenset().union(*(removed for _, removed in kept)), growth=round(part * self.growth), sites=kept,
        )  # fmt: skip

    def __str__(self) -> str:
        return " > ".join(step.rule for step in self.steps)


def time_cut(
    search: Search, timer: Timer, cut: WindowPair, anew_s: float | None = None, note: Note | None = None
) -> Difference | None:
    """Time what a change saves, charged to the search as if it were timed now; None where it cannot be timed. With
    `anew_s` it is timed within so many seconds, whatever is known already. `note` is told of what is returned."""
    timed = _time(search, timer, cut, anew_s)
    if note is not None:
        note(timed)
    return timed


def time_cuts(search: Search, timer: Timer, cuts: Iterable[WindowPair]) -> tuple[float, float]:
    """Return the seconds per inference that changes save together, and the half-width of the 95% interval: infinite
    where one of them cannot be timed."""
    timings = [time_cut(search, timer, cut) for cut in cuts]
    known = [timed for timed in timings if timed is not None]
    if len(known) < len(timings):
        return 0.0, math.inf
    return sum(timed.seconds for timed in known), math.hypot(*(timed.half for timed in known))


def _time(search: Search, timer: Timer, cut: WindowPair, anew_s: float | None) -> Difference | None:
    begin = search.elapsed
    try:
        timed = timer.time(cut, anew_s, anew=anew_s is not None)
    except (MeasurementError, InvalidRewriteError) as error:
        search.trials.add(str(error))
        return None
    search.trials.add(None if timed.ok else f"{timed.status}: {timed.message}")
    search.charge((cut.key, id(timer)), timed.cost_s, search.elapsed - begin)
    search.tell()
    return timed if timed.ok and timed.window_seconds > 0.0 else None
