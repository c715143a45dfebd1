"""Generalisation: the rewrites that a search found at one binding, carried over to a model whose inputs keep their
symbolic dimensions, and compared with the original at bindings that nothing before has seen."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay.recorder import KeyedAction, find_by_key
from graph_rewrite.replay.steps import TracedGraph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.session_choices import session_candidate
from graph_rewrite.symbolic.attempts import Attempts
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.carrying import LeftOut
from graph_rewrite.symbolic.comparing import LEAST_UNSEEN, ComparisonPlan, Values, choose_bindings
from graph_rewrite.symbolic.lanes import NotGeneralError
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.problem import Problem

TRIAL_S, TRIAL_SHARE = 60.0, 0.3
"""Most seconds, and share of the time left, for trying which shapes the original accepts."""
COMPARED = 7
"""Most bindings at which a result is compared, beside the one that was searched."""
ATTEMPTS = 8
"""Most graphs that are made and compared before generalisation is given up."""


@dataclass(frozen=True)
class SymbolicResult:
    """The outcome of `generalise`. Without a model the rewrites do not generalise, and `message` says why."""

    bindings: DimensionBindings
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
            "note": self.bindings.note,
            "message": self.message,
        }


def generalise(problem: Problem, actions: Sequence[KeyedAction], bindings: DimensionBindings) -> SymbolicResult:
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
            if names := sorted(bindings.inputs.open):
                raise NotGeneralError(f"the number of dimensions of the input {names[0]} is not known")
            candidates = recorded_candidates(problem, actions)
            model = problem.model
            chosen = choose_bindings(
                model.path, model.graph, bindings.inputs, bindings.values, problem.deployment, Path(folder),
                min(TRIAL_SHARE * max(0.0, seconds_left()), TRIAL_S),
            )  # fmt: skip
            if len(chosen.unseen) < LEAST_UNSEEN:
                raise NotGeneralError(_too_few(chosen))
            made = Attempts(problem, candidates, bindings, chosen, Path(folder)).run()
            return SymbolicResult(
                bindings, made.graph, made.checked, made.carried.sites, made.carried.left_out, made.verified_at,
                chosen.fixed, made.checked.outcome.message,
            )  # fmt: skip
        except NotGeneralError as error:
            return SymbolicResult(bindings, message=str(error))
        except OutOfTime:
            return SymbolicResult(bindings, message="no time was left to carry the rewrites over to other shapes")


def recorded_candidates(problem: Problem, actions: Sequence[KeyedAction]) -> list[Candidate]:
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


def _find(problem: Problem, graph: Graph, action: KeyedAction) -> Candidate | None:
    setting = session_candidate(graph, action.rule)
    if setting is not None and setting.key == action.key:
        return setting
    return find_by_key(TracedGraph(graph, problem.rewriter), action.rule, action.key)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _too_few(chosen: ComparisonPlan) -> str:
    said = "; ".join(f"{symbol}: {reason}" for symbol, reason in chosen.fixed.items())
    return f"the original runs at too few other shapes ({len(chosen.unseen)}) to compare a result at {LEAST_UNSEEN}" + (
        f" ({said})" if said else ""
    )
