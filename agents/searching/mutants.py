"""Mutants for a search: rules that are found for its model, or come with RewriteGym, before the search begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from agents.core.base import Budget, Search
from agents.searching.cost_model import operator_prices
from graph_rewrite.errors import UserError
from graph_rewrite.latency import BaselineError, OperatorSpec
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.mutate.mutant_rules.shipped import shipped_mutants
from graph_rewrite.mutate.optimizing.optimizer import ROUNDS, FoundRules, Optimizer
from graph_rewrite.mutate.search import Limits
from graph_rewrite.task.problem import Problem

MutantChoice = Literal["off", "shipped", "search"]
SHARE = 0.35
"""Part of a search's seconds in which mutants are looked for."""
LIMITS = Limits()
"""Limits of that search, but for its seconds."""
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


def add_mutants(
    problem: Problem,
    choice: MutantChoice,
    seconds: float,
    progress: Callable[[Search], None] | None = None,
    price: Callable[[OperatorSpec], float] | None = None,
) -> list[MutantRule]:
    """Offer mutants to the search of a problem, and return them.

    Ctrl-C and the end of the time keep what was found.

    Args:
        problem: the problem; its rewriter takes the mutants.
        choice: none, those that come with RewriteGym, or those and what a search of the model finds.
        seconds: of the search that follows and this one together.
        progress: called with this search as it begins, so that it can be ended.
        price: milliseconds of an operator alone; timed by default.
    """
    if choice == "off":
        return []
    rules = list(shipped_mutants())
    if choice == "search":
        rules += _searched(problem, SHARE * seconds, progress, price)[:MOST]
    problem.add_rules(rules)
    return rules


def _searched(
    problem: Problem,
    seconds: float,
    progress: Callable[[Search], None] | None,
    price: Callable[[OperatorSpec], float] | None,
) -> list[MutantRule]:
    search, found = Search(problem, Budget(seconds=seconds), progress), FoundRules()
    search.tell()
    with search.running():
        optimizer = Optimizer(
            price or operator_prices(problem).price,
            replace(LIMITS, seconds=seconds),
            rounds=ROUNDS,
            stop=lambda: search.seconds >= seconds,
        )
        try:
            optimizer.rules_of(problem.model.graph, found)
        except BaselineError as error:
            raise UserError(f"--mutants search: operators cannot be timed alone: {error}") from error
    return found.best_first()
