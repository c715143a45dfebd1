"""Exceptions in the code of a rule end no search: they are counted by rule and reported."""

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.core.base import Budget, OptimizationResult
from agents.core.registry import make_agent
from agents.reporting.progress import print_warnings
from agents.reporting.runs import result_entry, write_optimized
from agents.searching.cost_model import OperatorPrices
from graph_rewrite import Refusal, Rewriter, Rule
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.task.problem import Problem
from tests.agents.toys import RULES, WEIGHTS, chain_problem, problem_on

PLANTED = 40


class Faulty(Rule):
    """Tanh(x) = Tanh(x), with a bug that shows at the first 40 matches"""

    def __init__(self) -> None:
        self.left = PLANTED

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(x)

    def check(self, m: Any, x: Any) -> Refusal | None:
        if self.left > 0:
            self.left -= 1
            raise KeyError("no such attribute")
        return Refusal("no bug any more")

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(x)


def faulty_problem(folder: Path, sites: int) -> Problem:
    path = chain_problem(folder, sites).model.path
    rewriter = Rewriter((*RULES, Faulty()), granularity="site", deployment=False, faults=RuleFaults())
    return problem_on(path, folder, rewriter)


def optimise(name: str, problem: Problem, **options: Any) -> OptimizationResult:
    return make_agent(name, **options).optimize(problem, Budget(measurements=30, seconds=60.0))


def test_forty_exceptions_of_a_rule_are_reported_with_its_name_and_count(tmp_path: Path) -> None:
    problem = faulty_problem(tmp_path, PLANTED)
    result = optimise("random", problem)
    assert result.rule_faults == {"Faulty": PLANTED}
    assert result.verified
    assert write_optimized(result, tmp_path / "optimized.onnx") is not None
    entry = result_entry(result, problem, None)
    assert entry["rule_faults"] == {"Faulty": PLANTED}
    console = Console(record=True, width=80)
    print_warnings(console, entry)
    assert console.export_text() == (
        "warning: rule Faulty raised 40 exceptions and was left out there: KeyError: 'no such attribute'\n"
    )


def test_each_search_reports_its_own(tmp_path: Path) -> None:
    problem = faulty_problem(tmp_path, 2)
    assert optimise("greedy", problem).rule_faults["Faulty"] > 0
    for rule in problem.rewriter.rules:
        if isinstance(rule, Faulty):
            rule.left = 0
    result = optimise("greedy", problem)
    assert result.rule_faults == {}
    assert result.is_original or result.verified


@pytest.mark.parametrize(("name", "options"), [("tensat", {}), ("egraph-mcts", {"workers": 1}), ("egraph-mcts", {})])
def test_searches_on_e_graphs_go_on_too(tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    """In processes of their own as well."""
    prices = OperatorPrices(lambda spec: WEIGHTS.get(spec.op, 1.0))
    result = optimise(name, faulty_problem(tmp_path, 2), prices=prices, **options)
    assert result.rule_faults["Faulty"] > 0
    assert "KeyError: 'no such attribute'" in result.faults.tracebacks["Faulty"]
    assert result.actions
    assert result.verified


def test_without_a_collector_the_exception_goes_through(tmp_path: Path) -> None:
    path = chain_problem(tmp_path, 2).model.path
    problem = problem_on(path, tmp_path, Rewriter((*RULES, Faulty()), granularity="site", deployment=False))
    with pytest.raises(KeyError, match="no such attribute"):
        optimise("greedy", problem)
