"""Attempts: graphs for all shapes are made and compared with the original until one agrees with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.delivery.ship import CheckedModel, checked_model
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.carrying import Carried, carry
from graph_rewrite.symbolic.comparing import LEAST_UNSEEN, ComparisonPlan, Values, largest_sizes
from graph_rewrite.symbolic.emission import NotEmittedError, emit
from graph_rewrite.symbolic.feeds import write_data
from graph_rewrite.symbolic.lanes import Lane, NotGeneralError, open_lane
from graph_rewrite.symbolic.limits import table_limits
from graph_rewrite.system.deadline import check_time
from graph_rewrite.task.problem import Problem

COMPARED = 7
"""Most bindings at which a result is compared, beside the one that was searched."""
ATTEMPTS = 8
"""Most graphs that are made and compared before generalisation is given up."""


@dataclass(frozen=True)
class Agreed:
    """A graph for all shapes that agrees with the original."""

    graph: Graph
    carried: Carried
    checked: CheckedModel
    verified_at: tuple[Values, ...]


@dataclass
class Attempts:
    """Makes graphs for all shapes until one agrees with the original."""

    problem: Problem
    candidates: Sequence[Candidate]
    bindings: DimensionBindings
    chosen: ComparisonPlan
    folder: Path
    """Where inputs are written."""
    excluded: set[int] = field(default_factory=set)
    extra: list[Values] = field(default_factory=list)
    """Bindings at which a result differed: they are lanes now."""
    _limits: dict[str, int] | None = None
    """Largest values of symbols; None before they are known."""
    _folded: frozenset[int] | None = None
    """The nodes that are folded at the binding that was searched; None before the first lane is open."""
    _data: tuple[FeedSpec, ...] = field(init=False)
    """The user's inputs, which are of the shape that was searched."""

    def __post_init__(self) -> None:
        self._data = write_data(self.problem.model.original, self.problem.data, self.folder / "data")

    def run(self) -> Agreed:
        for _ in range(ATTEMPTS):
            check_time()
            made = self._carried(self.excluded)
            if made is None:
                continue
            graph, carried = made
            if not any(carried.sites):
                reasons = "; ".join(dict.fromkeys(one.reason for one in carried.left_out))
                raise NotGeneralError(f"no rewrite holds at other shapes ({reasons})")
            failed: list[Values] = []
            checked = self._checked(graph, failed)
            if not failed:
                return Agreed(graph, carried, checked, tuple(values for values, _ in self._unseen()))
            self._learn(failed[0], checked.outcome.message)
        raise NotGeneralError(f"after {ATTEMPTS} attempts the outputs still differ at other shapes")

    def _carried(self, excluded: set[int]) -> tuple[Graph, Carried] | None:
        """Return the graph for all shapes; None where a rewrite had to be excluded first."""
        lanes = [self._lane(values) for values in (*self.chosen.seen, *self.extra)]
        if self._limits is None:
            self._limits = self._largest(lanes)
        if self._limits:
            lanes.append(self._lane({**self.chosen.seen[0], **self._limits}, frozenset(self._limits)))
        carried = carry(self.candidates, lanes, excluded)
        try:
            return emit(lanes, self._sources()), carried
        except NotEmittedError as error:
            if error.node not in carried.makers:
                raise
            self.excluded.add(carried.makers[error.node])
            return None

    def _lane(self, values: Values, limited: frozenset[str] = frozenset()) -> Lane:
        model = self.problem.model
        shapes = self.bindings.inputs.shapes(values)
        lane = open_lane(model.original, model.graph, values, shapes, limited, self._folded)
        if self._folded is None:  # this lane is the first, of the binding that was searched
            self._folded = lane.folded
        return lane

    def _largest(self, lanes: Sequence[Lane]) -> dict[str, int]:
        """Return the largest values of symbols that the original accepts, where its tables give them."""
        problem, limits = self.problem, table_limits(lanes)
        if not limits:
            return {}
        found = largest_sizes(
            problem.model.path, problem.model.graph, self.bindings.inputs, self.chosen.seen[0], limits,
            problem.deployment, self.folder,
        )  # fmt: skip
        try:
            self._lane({**self.chosen.seen[0], **found}, frozenset(found))
        except NotGeneralError:
            return {}
        return found

    def _sources(self) -> dict[str, tuple[int, int]]:
        graph = self.problem.model.graph
        by_name = {graph.names[value]: value for value in graph.inputs}
        return {s: (by_name[place.input], place.axis) for s, place in self.bindings.inputs.symbols.items()}

    def _checked(self, graph: Graph, failed: list[Values]) -> CheckedModel:
        """Save a graph and compare the file at the bound shape and at all unseen ones; add those at which it differs to
        `failed`."""
        problem = self.problem
        at = [(self.chosen.seen[0], self.chosen.bound), *self._unseen()]

        def compare(path: Path, deployment: Deployment) -> Equivalence:
            feeds = [spec for _, spec in at]
            outcome = self._equivalent(path, deployment, feeds, self._data)
            if outcome.ok:
                return outcome
            for values, spec in at:
                alone = self._equivalent(path, deployment, spec, self._data_at(values))
                if not alone.ok:
                    failed.append(values)
                    return replace(alone, message=f"at {_text(values)}: {alone.message}")
            raise NotGeneralError(f"the result cannot be compared with the original: {outcome.message}")

        return checked_model(
            graph, problem.model.path, problem.deployment, workspace=problem.workspace, compare=compare,
            external_weights=problem.external_weights,
        )  # fmt: skip

    def _data_at(self, values: Values) -> Sequence[FeedSpec]:
        """Return the user's inputs where a binding is their shape."""
        return self._data if values == self.chosen.seen[0] else ()

    def _equivalent(
        self, path: Path, deployment: Deployment, feeds: FeedSpec | Sequence[FeedSpec], data: Sequence[FeedSpec]
    ) -> Equivalence:
        problem = self.problem
        limits, original = problem.limits, problem.model.original
        return equivalent(
            problem.model.path, path, deployment, tolerance=limits.tolerance(original, problem.deployment),
            rtol=limits.rtol, atol=limits.atol, feeds=feeds, data=data,
        )  # fmt: skip

    def _unseen(self) -> list[tuple[Values, FeedSpec]]:
        """Return the bindings to compare at, but for those that are lanes now; the others are in reserve."""
        return [(values, feeds) for values, feeds in self.chosen.unseen if values not in self.extra][:COMPARED]

    def _learn(self, values: Values, message: str) -> None:
        """Let the next attempt know a binding at which the outputs differed, or leave out the rewrite to blame."""
        if values not in self.extra and values not in self.chosen.seen:
            self.extra.append(values)
            if len(self._unseen()) < LEAST_UNSEEN:
                raise NotGeneralError(f"the outputs differ at too many shapes ({message})")
            return
        self.excluded.add(self._culprit(values, message))

    def _culprit(self, values: Values, message: str) -> int:
        """Return the first rewrite with which the outputs differ at a binding, by bisection.

        Raises:
            NotGeneralError: they differ without any rewrite.
            OutOfTime: the time limit of the run is reached.
        """
        last = len(self.candidates)
        low, high = 0, last  # the outputs agree with `low` rewrites (unless low is 0) and differ with `high`
        if self._differs(values, last, 0):
            raise NotGeneralError(f"the model differs from itself at other shapes ({message})")
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._differs(values, last, middle) else (middle, high)
        return high - 1

    def _differs(self, values: Values, last: int, kept: int) -> bool:
        check_time()
        made = self._carried(self.excluded | set(range(kept, last)))
        if made is None:
            return True
        problem, model = self.problem, self.problem.model
        feeds = next((f for v, f in self.chosen.unseen if v == values), self.chosen.bound)

        def compare(path: Path, deployment: Deployment) -> Equivalence:
            return self._equivalent(path, deployment, feeds, self._data_at(values))

        checked = checked_model(made[0], model.path, problem.deployment, workspace=problem.workspace, compare=compare)
        return not checked.outcome.ok


def _text(values: Values) -> str:
    return ", ".join(f"{symbol}={value}" for symbol, value in values.items())
