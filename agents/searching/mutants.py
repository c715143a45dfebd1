"""Mutants for a search: rules that are found for its model, or come with RewriteGym, before the search begins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import onnxruntime

from agents.core.base import Budget, Search
from agents.searching.cost_model import operator_prices
from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import BaselineError, MeasurementCache, MeasurementError, OperatorSpec
from graph_rewrite.latency.device import device_name
from graph_rewrite.latency.windows import Difference, WindowMeter, traffic_of
from graph_rewrite.latency.windows.window_meter import clock_of
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.mutate.mutant_rules.shipped import shipped_mutants
from graph_rewrite.mutate.optimizing.optimizer import ROUNDS, FoundRules, Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices
from graph_rewrite.mutate.optimizing.store import MutantStore
from graph_rewrite.mutate.repairs import REPAIRS, Kind, RepairMethod
from graph_rewrite.mutate.search import Limits
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.task.problem import Problem

MutantChoice = Literal["off", "shipped", "search"]
SHARE = 0.35
"""Part of a search's seconds in which mutants are looked for."""
LIMITS = Limits()
"""Limits of that search, but for its seconds."""
TIMING_SHARE = 0.2
"""Part of these seconds in which the mutants that were found are timed in windows."""
WINDOW_S = 0.8
"""Seconds for timing one of them."""
MOST = 24
"""Mutants that a search takes, those that save most by the prices of their operators."""


def check_mutants(choice: MutantChoice, *, strict: bool) -> None:
    """Refuse mutants where none may be taken.

    Raises:
        UserError: mutants together with `strict`.
    """
    if strict and choice != "off":
        raise UserError(
            f"--mutants {choice} and --strict exclude each other: a mutant sums in another order, and does not keep"
            " NaN, infinities and the sign of zero; leave one of them out"
        )


class DifferenceTimer(Protocol):
    """The interface of a `WindowMeter` that is needed here."""

    def difference(self, before: Graph, after: Graph) -> Difference:
        """Return the seconds that one graph saves over another."""
        ...


@dataclass(frozen=True, slots=True)
class MutantMeters:
    """The meters by which mutants are chosen.

    Args:
        price: milliseconds of an operator alone.
        timer: times the windows of rewrites.
    """

    price: Callable[[OperatorSpec], float]
    timer: DifferenceTimer


@contextmanager
def measured_meters(problem: Problem, window_s: float = WINDOW_S) -> Iterator[MutantMeters]:
    """Yield meters of a problem's deployment. Operators and windows of one thread are timed by what it computes, so
    that the choice does not depend on what else the machine runs.

    Args:
        problem: the problem.
        window_s: seconds for timing a window.
    """
    deployment = problem.deployment
    with WindowMeter(
        deployment, workspace=problem.workspace, budget_s=window_s, traffic=traffic_of(problem.model.graph),
        cache=MeasurementCache(),
    ) as timer:  # fmt: skip
        yield MutantMeters(operator_prices(problem, clock_of(deployment)).price, timer)


Meters = Callable[[Problem], AbstractContextManager[MutantMeters]]


def add_mutants(
    problem: Problem,
    choice: MutantChoice,
    seconds: float,
    progress: Callable[[Search], None] | None = None,
    meters: Meters | None = None,
    store: MutantStore | None = None,
    on_searched: Callable[[FoundRules], None] = lambda found: None,
) -> list[MutantRule]:
    """Offer mutants to the search of a problem, and return them.

    Ctrl-C and the end of the time keep what was found.

    Args:
        problem: the problem; its rewriter takes the mutants.
        choice: none, those that come with RewriteGym, or those and what a search of the model finds.
        seconds: of the search that follows and this one together.
        progress: called with this search as it begins, so that it can be ended.
        meters: opens what mutants are chosen by; `measured_meters` by default.
        store: where mutants are kept from search to search; nowhere by default.
        on_searched: called with what the search of the model gave, which tells whether it was cut short.
    """
    if choice == "off":
        return []
    rules = list(shipped_mutants())
    if choice == "search":
        rules += _searched(problem, SHARE * seconds, progress, meters or measured_meters, store, on_searched)
    problem.add_rules(rules)
    return rules


def search_mutants(
    problem: Problem,
    seconds: float,
    meters: Meters | None = None,
    repairs: Mapping[Kind, RepairMethod] = REPAIRS,
    on_searched: Callable[[FoundRules], None] = lambda found: None,
) -> list[MutantRule]:
    """Search the model of a problem for mutants, and nowhere else; offer them to the search that follows.

    Args:
        problem: the problem; its rewriter takes the mutants.
        seconds: of the search that follows and this one together.
        meters: opens what mutants are chosen by; `measured_meters` by default.
        repairs: the kinds of repairs that mutants may have.
        on_searched: as for `add_mutants`.
    """
    rules = _searched(problem, SHARE * seconds, None, meters or measured_meters, None, on_searched, repairs)
    problem.add_rules(rules)
    return rules


def mutant_store(problem: Problem) -> MutantStore:
    """Return the user's store of mutants for a problem's deployment on this machine."""
    deployment = problem.deployment.plain()
    here = [device_name(deployment.provider), onnxruntime.__version__, deployment.key]
    return MutantStore(json.dumps([*here, LIMITS.depth, LIMITS.keep]))


def _searched(
    problem: Problem,
    seconds: float,
    progress: Callable[[Search], None] | None,
    meters: Meters,
    store: MutantStore | None,
    on_searched: Callable[[FoundRules], None],
    repairs: Mapping[Kind, RepairMethod] = REPAIRS,
) -> list[MutantRule]:
    search, found = Search(problem, Budget(seconds=seconds), progress), FoundRules()
    search.tell()
    finding = (1.0 - TIMING_SHARE) * seconds
    with meters(problem) as measured:
        with search.running(), _explained():
            optimizer = Optimizer(
                Prices(measured.price), replace(LIMITS, seconds=finding), rounds=ROUNDS,
                stop=lambda: search.seconds >= finding,
                rules=problem.rewriter.rules, store=store, repairs=repairs,
            )  # fmt: skip
            optimizer.rules_of(problem.model.graph, found)
        on_searched(found)
        rules = found.best_first()[:MOST]
        return _timed(problem, rules, measured.timer, lambda: search.seconds >= seconds)


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except BaselineError as error:
        raise UserError(f"--mutants search: operators cannot be timed alone: {error}") from error


def _timed(
    problem: Problem, rules: Sequence[MutantRule], timer: DifferenceTimer, is_over: Callable[[], bool]
) -> list[MutantRule]:
    """Return rules without those that surely lose in the window around one of their sites: a sum of operators sees
    neither fusion nor layouts. The rules that save most there come first; those that there is no time for come last."""
    graph = problem.model.graph
    kept: list[tuple[float, MutantRule]] = []
    for rule in rules:
        saved = 0.0
        if not is_over():
            sites = Enumerator([rule], "site", False, problem.rewriter.domains).candidates(graph)
            if not len(sites):
                continue
            try:
                timed = timer.difference(graph, sites[0].apply())
            except (MeasurementError, InvalidRewriteError):
                continue
            if not timed.ok or timed.ci95[1] < 0.0:
                continue
            saved = timed.seconds * len(sites)
        kept.append((saved, rule))
    return [rule for _, rule in sorted(kept, key=lambda entry: -entry[0])]
