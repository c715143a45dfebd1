"""Searches that leave confirming and checking to their caller: they choose, and make no file."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search, action_of
from graph_rewrite.delivery.ship import UnmadeModel, UnverifiedModelError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.task.problem import Problem
from tests.graph_rewrite.symbolic.dynamic_models import transformer
from tests.graph_rewrite.symbolic.walks import open_dynamic

SHAPE = "ids:1,24"


def provisional(problem: Problem) -> OptimizationResult:
    """The end of a search that found one rewrite, which leaves confirming it to the caller."""
    search = Search(problem, Budget(provisional=True))
    search.measure(problem.model.graph, ())
    for candidate in problem.rewriter.candidates(problem.model.graph):
        if candidate.rule == "FuseDividedMatMul":
            search.measure(candidate.apply(), (action_of(candidate),))
    return conclude(search, "test")


def test_a_search_that_leaves_confirming_to_the_caller_chooses_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, _ = open_dynamic(transformer(tmp_path / "t.onnx", layers=1), SHAPE)
    confirmed = list[Graph]()
    monkeypatch.setattr(Problem, "confirm", lambda self, graph, *_: confirmed.append(graph))
    result = provisional(problem)
    assert not result.is_original
    assert result.latency.speedup > 1.0
    assert confirmed == []
    assert isinstance(result.checked, UnmadeModel)
    assert not result.verified
    with pytest.raises(UnverifiedModelError, match="not made yet"):
        result.checked.write_to(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    assert not list(problem.workspace.glob("checked-*"))


def test_where_no_rewrite_gains_the_original_is_kept_as_ever(tmp_path: Path) -> None:
    problem, _ = open_dynamic(transformer(tmp_path / "t.onnx", layers=1), SHAPE)
    search = Search(problem, Budget(provisional=True))
    search.measure(problem.model.graph, ())
    result = conclude(search, "test")
    assert result.is_original
    assert result.verified
