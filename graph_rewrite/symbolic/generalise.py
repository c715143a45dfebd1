"""Generalisation: the rewrites that a search found at one binding, carried over to a model whose inputs keep their
symbolic dimensions, and compared with the original at bindings that nothing before has seen."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.delivery.ship import CheckedModel, checked_model
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.rewriting.session_choices import session_candidate
from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.symbolic.bindings import Bindings
from graph_rewrite.symbolic.carrying import Carried, LeftOut, carry
from graph_rewrite.symbolic.comparing import LEAST_UNSEEN, Comparison, Values, choose_bindings
from graph_rewrite.symbolic.emission import NotEmittedError, emit
from graph_rewrite.symbolic.lanes import Lane, NotGeneralError, open_lane
from graph_rewrite.system.deadline import OutOfTime, check_time, seconds_left
from graph_rewrite.task.problem import Problem

TRIAL_S, TRIAL_SHARE = 60.0, 0.3
"""Most seconds, and share of the time left, for trying which shapes the original accepts."""
COMPARED = 7
"""Most bindings at which a result is compared, beside the one that was searched."""
ATTEMPTS = 8
"""Most graphs that are made and compared before generalisation is given up."""


class Recorded(Protocol):
    """A rewrite as a search records it."""

    @property
    def key(self) -> str: ...
    @property
    def rule(self) -> str: ...


@dataclass(frozen=True)
class SymbolicResult:
    """The outcome of `generalise`. Without a model the rewrites do not generalise, and `message` says why."""

    bindings: Bindings
    graph: Graph | None = None
    """The rewritten graph with symbolic dimensions."""
    checked: CheckedModel | None = None
    """The saved graph, as it was compared with the original at all bindings."""
    sites: tuple[int, ...] = ()
    """Number of sites that hold for all shapes, per recorded rewrite."""
    left_out: tuple[LeftOut, ...] = ()
    verified_at: tuple[Values, ...] = ()
    """Values of the symbols at which the outputs were compared, and that no step before had seen."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Symbols for which the original accepts no other value, with what it says."""
    message: str = ""

    @property
    def ok(self) -> bool:
        return self.checked is not None and self.checked.outcome.ok

    def to_json(self) -> dict[str, Any]:
        """Return the object `dynamic` of a result's JSON: symbols with their inputs, the binding that was searched,
        those at which the result was compared, and the rewrites that were left out."""
        places = self.bindings.inputs.symbols
        return {
            "symbols": {name: {"input": place.input, "axis": place.axis} for name, place in places.items()},
            "bound": dict(self.bindings.values[0]),
            "verified_at": [dict(values) for values in self.verified_at],
            "left_out": [
                {"rule": one.rule, "where": one.where, "sites": one.sites, "reason": one.reason}
                for one in self.left_out
            ],
            "fixed": dict(self.fixed),
            "symbolic": self.ok,
            "message": self.message,
        }


def generalise(problem: Problem, actions: Sequence[Recorded], bindings: Bindings) -> SymbolicResult:
    """Make the model with symbolic dimensions that recorded rewrites lead to, and compare it with the original.

    The rewrites are applied to the original at several bindings at once. A site that does not hold at all of them is
    left out. Where the outcome differs from the original at a binding that was not among them, it is made anew with
    that one among them; where that does not help, without the rewrite that makes the difference.

    Args:
        problem: the problem that was searched, at the first of `bindings`.
        actions: the rewrites, in their order.
        bindings: what the search was for, and other bindings that were asked for.

    The time limit of the run (`graph_rewrite.system.deadline`) bounds it: what is not finished by then does not
    generalise.
    """
    with tempfile.TemporaryDirectory(prefix="symbolic-", dir=_made(problem.workspace)) as folder:
        try:
            candidates = recorded_candidates(problem, actions)
            model = problem.model
            chosen = choose_bindings(
                model.path, model.graph, bindings.inputs, bindings.values, problem.deployment, Path(folder),
                min(TRIAL_SHARE * max(0.0, seconds_left()), TRIAL_S),
            )  # fmt: skip
            if len(chosen.unseen) < LEAST_UNSEEN:
                raise NotGeneralError(_too_few(chosen))
            return _Generaliser(problem, candidates, bindings, chosen).run()
        except NotGeneralError as error:
            return SymbolicResult(bindings, message=str(error))
        except OutOfTime:
            return SymbolicResult(bindings, message="no time was left to carry the rewrites over to other shapes")


def recorded_candidates(problem: Problem, actions: Sequence[Recorded]) -> list[Candidate]:
    """Return the candidates that recorded rewrites were, each in the graph that those before it lead to.

    Raises:
        NotGeneralError: a rewrite is not among the candidates of its graph, such as those of e-graph searches.
    """
    graph, found = problem.model.graph, list[Candidate]()
    for action in actions:
        candidate = _find(problem, graph, action)
        if candidate is None:
            raise NotGeneralError(f"{action.rule} was not found by single rewrites, which could be carried over")
        found.append(candidate)
        graph = candidate.apply()
    return found


def _find(problem: Problem, graph: Graph, action: Recorded) -> Candidate | None:
    setting = session_candidate(graph, action.rule)
    for offered in (
        deployment_candidates(graph) if setting is None else [setting],
        problem.rewriter.candidates_by(graph, (action.rule,)),
        problem.rewriter.candidates(graph),
    ):
        for candidate in offered:
            if candidate.key == action.key:
                return candidate
    return None


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _too_few(chosen: Comparison) -> str:
    said = "; ".join(f"{symbol}: {reason}" for symbol, reason in chosen.fixed.items())
    return f"the original runs at too few other shapes ({len(chosen.unseen)}) to compare a result at {LEAST_UNSEEN}" + (
        f" ({said})" if said else ""
    )


@dataclass
class _Generaliser:
    problem: Problem
    candidates: Sequence[Candidate]
    bindings: Bindings
    chosen: Comparison
    excluded: set[int] = field(default_factory=set)
    extra: list[Values] = field(default_factory=list)
    """Bindings at which a result differed: they are lanes now."""

    def run(self) -> SymbolicResult:
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
                return self._result(graph, carried, checked)
            self._learn(failed[0], checked.outcome.message)
        raise NotGeneralError(f"after {ATTEMPTS} attempts the outputs still differ at other shapes")

    def _carried(self, excluded: set[int]) -> tuple[Graph, Carried] | None:
        """Return the graph for all shapes; None where a rewrite had to be excluded first."""
        lanes = [self._lane(values) for values in (*self.chosen.seen, *self.extra)]
        carried = carry(self.candidates, lanes, excluded)
        try:
            return emit(lanes, self._sources()), carried
        except NotEmittedError as error:
            if error.node not in carried.makers:
                raise
            self.excluded.add(carried.makers[error.node])
            return None

    def _lane(self, values: Values) -> Lane:
        model = self.problem.model
        return open_lane(model.original, model.graph, values, self.bindings.inputs.shapes(values))

    def _sources(self) -> dict[str, tuple[int, int]]:
        graph = self.problem.model.graph
        by_name = {graph.names[value]: value for value in graph.inputs}
        return {s: (by_name[place.input], place.axis) for s, place in self.bindings.inputs.symbols.items()}

    def _checked(self, graph: Graph, failed: list[Values]) -> CheckedModel:
        """Save a graph and compare the file at the bound shape and at all unseen ones; add those at which it differs to
        `failed`."""
        problem = self.problem
        limit = problem.limits.tolerance(problem.model.original, problem.deployment)
        at = [(self.chosen.seen[0], self.chosen.bound), *self._unseen()]

        def compare(path: Path, deployment: Deployment) -> Equivalence:
            worst = Equivalence(True, 0.0, limit, "")
            for values, feeds in at:
                outcome = equivalent(problem.model.path, path, deployment, tolerance=limit, feeds=feeds)
                if not outcome.ok:
                    failed.append(values)
                    return Equivalence(False, outcome.max_rel_error, limit, f"at {_text(values)}: {outcome.message}")
                if outcome.max_rel_error >= worst.max_rel_error:
                    worst = outcome
            message = f"outputs agree at {len(at)} shapes within {worst.max_rel_error:.2g} of their scale"
            return Equivalence(True, worst.max_rel_error, limit, f"{message} (tolerance {limit:.2g})")

        return checked_model(
            graph, problem.model.path, problem.deployment, workspace=problem.workspace, compare=compare
        )

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
        limit = problem.limits.tolerance(model.original, problem.deployment)

        def compare(path: Path, deployment: Deployment) -> Equivalence:
            return equivalent(model.path, path, deployment, tolerance=limit, feeds=feeds)

        checked = checked_model(made[0], model.path, problem.deployment, workspace=problem.workspace, compare=compare)
        return not checked.outcome.ok

    def _result(self, graph: Graph, carried: Carried, checked: CheckedModel) -> SymbolicResult:
        return SymbolicResult(
            self.bindings, graph, checked, carried.sites, carried.left_out,
            tuple(values for values, _ in self._unseen()), self.chosen.fixed, checked.outcome.message,
        )  # fmt: skip


def _text(values: Values) -> str:
    return ", ".join(f"{symbol}={value}" for symbol, value in values.items())
