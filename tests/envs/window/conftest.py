"""A table of windows whose times are drawn."""

from __future__ import annotations

import pytest

from envs.window import WindowTable
from envs.window.tabulation import Tabulation, tabulate
from graph_rewrite.experience.records import Label
from graph_rewrite.task.problem import Problem
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """A few convolutions."""
    return convolutions(tmp_path_factory.mktemp("convolutions"))


@pytest.fixture(scope="session")
def labels(problem: Problem, tmp_path_factory: pytest.TempPathFactory) -> list[Label]:
    """All chains of one and two steps in its windows; some cannot be run."""
    return drawn_labels(problem, tmp_path_factory.mktemp("store"), DrawnTimer(failing=0.15))


@pytest.fixture(scope="session")
def tabulation(labels: list[Label], problem: Problem) -> Tabulation:
    """The table of these labels."""
    return tabulate(labels, problem.rewriter)


@pytest.fixture(scope="session")
def table(tabulation: Tabulation) -> WindowTable:
    """The same without its counts."""
    return tabulation.table
