"""Windows of a model as problems: the steps of a window in place of candidates, and a meter that times them there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Protocol, Self

from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.latency import Effort, Latency, MeasurementError
from graph_rewrite.latency.meter import Measurable
from graph_rewrite.latency.windows import Difference, WindowPair
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import saved_share, timed_part, trial_pair
from graph_rewrite.latency.windows.window import MARGIN
from graph_rewrite.rewriting.candidates import Candidate, Candidates
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.task.models import Model
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import SiteClass, further_steps, site_classes

MOST_SAVED = 0.99
"""Share of a window's time that a measurement may give at most: noise may give more than all of it."""
_ANY_GROWTH = 1e9
"""Growth of a window's weights is no limit: how much a model may grow is decided for the whole of it."""


class WindowTimer(Protocol):
    """Times both sides of a window, as `WindowMeter` does. Raises MeasurementError where ONNX Runtime cannot."""

    def time(self, pair: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference: ...

    def close(self) -> None: ...


class WindowRewriter(Rewriter):
    """Lists the steps of one window, each a rule at all its sites: those that the window was cut out for, then those
    that the last step made possible.

    Args:
        base: its rules, domains and collector of faults are taken over.
        window: the window before the first step.
        first: sites of each first step.
    """

    def __init__(self, base: Rewriter, window: Graph, first: Sequence[tuple[Site, ...]]) -> None:
        super().__init__(base.rules, "class", False, base.domains, base.faults)
        self.window, self._first = window, tuple(first)
        self._steps = MemoKey[Candidates]("steps of a window")

    def candidates(self, graph: Graph) -> Candidates:
        """Return the steps that a graph offers, in the order of the rules."""
        found = graph.memo.get(self._steps)
        if found is None:
            groups: Sequence[tuple[Site, ...]] = self._first
            if graph is not self.window:
                before = self.window if graph.edit is None else graph.edit.before
                groups = tuple(further_steps(self, self.window, before, graph).values())
            head = [Candidate("class" if len(sites) > 1 else "site", graph, sites) for sites in groups]
            found = graph.memo.put(self._steps, Candidates(graph, head))
        return found


class OneWindowMeter:
    """The latency of one window after rewrites, relative to the window before them.

    Args:
        window: the window before the first step.
        timer: times windows; it may be shared.
    """

    def __init__(self, window: Graph, timer: WindowTimer) -> None:
        self.window, self.timer = window, timer
        self._measurements = 0

    @property
    def measurements(self) -> int:
        """Number of graphs that were timed."""
        return self._measurements

    def measure(self, graph: Measurable, effort: Effort = "screen") -> Latency:
        """Return the latency of a graph made from the window; both efforts are one."""
        assert isinstance(graph, Graph)
        if graph.hash == self.window.hash:
            ms = 1e3 * estimated_seconds(graph)
            return Latency(ms, 1.0, (1.0, 1.0), 1, ms)
        pair = trial_pair(self.window, graph, 1)
        self._measurements += 1
        try:
            timed = self.timer.time(pair)
        except (MeasurementError, InvalidRewriteError) as error:
            return Latency.failed("error", str(error))
        if not timed.ok:
            return Latency.failed(timed.status, timed.message)
        share, half, seconds = saved_share(timed, timed_part(self.window, pair.before))
        left = max(1.0 - share, 1.0 - MOST_SAVED)
        low, high = 1.0 / (left + half), 1.0 / max(left - half, 1.0 - MOST_SAVED)
        return Latency(1e3 * seconds * left, 1.0 / left, (low, high), timed.runs, 1e3 * seconds)

    def close(self) -> None:
        """Do nothing: whoever made the timer closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def window_problems(problem: Problem, timer: WindowTimer, margin: int = MARGIN) -> dict[str, Problem]:
    """Return the windows of a model as problems, by the model's URI and a number: `zoo://bert-tiny#3`.

    Classes of sites that have the same window are its first steps.

    Raises:
        UserError: no rewrite applies to the model in a window that can be timed alone.
    """
    graph = problem.model.graph
    groups: dict[frozenset[int], list[SiteClass]] = {}
    for site_class in site_classes(problem.rewriter, graph, margin):
        groups.setdefault(frozenset(site_class.window.nodes), []).append(site_class)
    if not groups:
        raise UserError(f"{problem.model.uri} has no window: no rewrite applies to it where it can be timed alone")
    found = (_window_problem(problem, timer, number, classes) for number, classes in enumerate(groups.values()))
    return {one.model.uri: one for one in found}


def _window_problem(problem: Problem, timer: WindowTimer, number: int, classes: Sequence[SiteClass]) -> Problem:
    window, model = classes[0].window, problem.model
    first = [site_class.sites[:1] for site_class in classes]
    return Problem(
        Model(f"{model.uri}#{number}", model.path, window, window, model.report),
        WindowRewriter(problem.rewriter, window, first),
        OneWindowMeter(window, timer),
        problem.deployment,
        problem.workspace,
        replace(problem.limits, size_growth=_ANY_GROWTH),
    )
