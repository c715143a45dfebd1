"""The logging of what a search by windows times."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from agents.conclusion.recordings import measured_with
from agents.core.base import Search, Visit
from graph_rewrite import zoo
from graph_rewrite.experience.describing import Positions, WindowTrace, model_part
from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.experience.records import LabelRow, SharedPart, canonical
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Plan
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window_meter import clock_of
from graph_rewrite.replay.addresses import Insertion
from graph_rewrite.replay.recorder import checkout_commit, installed_version
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.task.site_windows import SiteClass

Note = Callable[[Difference | None], None]
"""Told what a chain saves; None where it could not be timed."""


def _nothing(timed: Difference | None) -> None:
    return None


class LoggedChain:
    """A chain in a window, to be logged whenever it is timed. One that is not logged does nothing."""

    def __init__(self, window: LoggedWindow | None = None, trace: WindowTrace | None = None, part: float = 1.0) -> None:
        self._window, self._trace, self._part = window, trace, part

    def then(
        self, sites: Sequence[Site], applied: Sequence[tuple[Site, range]], after: Graph, part: float
    ) -> LoggedChain:
        """Return the chain with one more rewrite.

        Args:
            sites: all sites that the rewrite was offered.
            applied: those that it rewrote, with the ids that their nodes and values come from.
            after: the window after it.
            part: share of the window's time that is timed.
        """
        if self._window is None or self._trace is None or not self._window.round.log.is_on:
            return self
        with self._window.round.log.timing():
            insertions = [Insertion(site, tuple(n for n in ids if n in after.nodes)) for site, ids in applied]
            return LoggedChain(self._window, self._trace.then(sites, insertions, after), part)

    def noting(self, effort: str, plan: Plan) -> Note:
        """Return what notes a timing of the chain.

        Args:
            effort: `scan`; `careful`; `anew`, whatever was known.
            plan: the plan of the timing.
        """
        window, trace = self._window, self._trace
        if window is None or trace is None or not trace.steps:
            return _nothing
        return lambda timed: window.note(trace, timed, self._part, effort, plan)


class DeferredChain(LoggedChain):
    """A chain that is described only where it is needed, since few of those that are drafted are timed.

    Args:
        describe: returns the chain.
    """

    def __init__(self, describe: Callable[[], LoggedChain]) -> None:
        super().__init__()
        self._describe = describe

    def then(
        self, sites: Sequence[Site], applied: Sequence[tuple[Site, range]], after: Graph, part: float
    ) -> LoggedChain:
        return self._describe().then(sites, applied, after, part)

    def noting(self, effort: str, plan: Plan) -> Note:
        return self._describe().noting(effort, plan)


class LoggedWindow:
    """The window of a class of sites, and its place in the whole graph."""

    def __init__(self, round_: LoggedRound, site_class: SiteClass) -> None:
        self.round, self._sites = round_, len(site_class.sites)
        self.trace, self._window = WindowTrace.begin(site_class.window)
        self._place = SharedPart.of(
            "place",
            {
                "window": self._window.id, "model": round_.model.id, "applied": round_.applied,
                "nodes": len(round_.positions.graph.nodes), "at": round_.positions.of(site_class.sites),
                **round_.positions.boundary(site_class.window),
            },
        )  # fmt: skip

    def note(self, trace: WindowTrace, timed: Difference | None, part: float, effort: str, plan: Plan) -> None:
        """Log a timing of what a trace leads to."""
        log = self.round.log
        if not log.is_on:
            return
        with log.timing():
            used = SharedPart.of("plan", {"effort": effort, **plan.to_json()})
            body: dict[str, Any] = {
                "place": self._place.id, "context": self.round.context.id, "plan": used.id,
                "steps": [step.id for step in trace.steps], "sites": self._sites, "model_s": self.round.model_s,
                "status": "failed" if timed is None else timed.status,
            }  # fmt: skip
            if timed is not None:
                body |= {
                    "saved_s": timed.seconds, "low_s": timed.ci95[0], "high_s": timed.ci95[1], "runs": timed.runs,
                    "window_s": timed.window_seconds, "part": part, "cost_s": timed.cost_s,
                }  # fmt: skip
            label = LabelRow(canonical(body), int(time.time()))
            shared = (self.round.model, self.round.context, self._window, self._place, used, *trace.steps)
            log.add(label, shared)


class LoggedRound:
    """A round of a search: the graph that its windows are cut from."""

    def __init__(self, log: ExperienceLog, search: Search, start: Visit) -> None:
        self.log, self._search, self._start = log, search, start
        self.model_s = start.latency.ms / 1e3
        self.positions = Positions(start.graph)

    @cached_property
    def applied(self) -> dict[str, int]:
        """Rewrites that led to the graph, by rule, with the number of their sites."""
        found: dict[str, int] = {}
        for action in self._start.actions:
            found[action.rule] = found.get(action.rule, 0) + action.count
        return found

    @cached_property
    def model(self) -> SharedPart:
        """The description of the model."""
        model = self._search.problem.model
        family = zoo.family_of(model.uri)
        metadata = {entry.key: entry.value for entry in model.original.header.metadata_props}
        return model_part(model.graph, model.uri if family else "", family, metadata)

    @cached_property
    def context(self) -> SharedPart:
        """The description of machine, versions and deployment."""
        deployment = self._search.problem.deployment.asked_by(self._start.graph)
        return SharedPart.of(
            "context",
            {
                **measured_with(deployment.provider), "rewritegym": installed_version(), "commit": checkout_commit(),
                "deployment": deployment.to_json(), "clock": clock_of(deployment), "caches": "model",
            },
        )  # fmt: skip

    def window(self, site_class: SiteClass) -> LoggedChain:
        """Return the empty chain in the window of a class."""
        if not self.log.is_on:
            return LoggedChain()
        with self.log.timing():
            window = LoggedWindow(self, site_class)
            return LoggedChain(window, window.trace)
