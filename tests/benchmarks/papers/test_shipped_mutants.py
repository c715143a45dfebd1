"""The choice of the mutants that ship, with planted times."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.searching.mutants import MutantMeters
from benchmarks.papers import shipped_mutants
from benchmarks.papers.shipped_mutants import (
    Arguments,
    choose,
    lines,
    merged,
    run,
    searched,
    that_pay_together,
    with_all,
)
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.latency.windows import Difference
from graph_rewrite.mutate.mutant_rules.shipped import read_shipped
from graph_rewrite.mutate.optimizing.optimizer import FoundRules
from graph_rewrite.task.problem import Problem, open_problem
from tests.agents.optimization.test_mutants import ImageMeter, ImageTimer, images, planted_meters, price, write


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    path = write(tmp_path_factory.mktemp("model") / "m.onnx")
    return open_problem(f"file:{path}", provider="cpu", meter=lambda model, *_: ImageMeter(model.original))


@pytest.fixture(scope="module")
def found(problem: Problem) -> FoundRules:
    arguments = Arguments((), seconds=1e6, depth=2, rounds=1)
    return searched(problem, arguments, MutantMeters(price, ImageTimer()))


class TimerOf(ImageTimer):
    """Saves what is planted, more or less."""

    def __init__(self, saved: float) -> None:
        self.saved = saved

    def difference(self, before: Graph, after: Graph) -> Difference:
        return Difference(self.saved, (self.saved - 1.0, self.saved + 1.0), 1, 1, 1, images(before))


def test_the_best_mutant_of_a_subprogram_ships_with_its_evidence(problem: Problem, found: FoundRules) -> None:
    said: list[str] = []
    assert len(found.rules) > 1
    (rule,) = choose(problem, found.rules, ImageTimer(), 1.02, said.append)
    evidence = rule.certificate["evidence"]
    assert evidence["operators_ms"][0] == 20.0
    assert evidence["operators_ms"][1] < 20.0
    assert evidence["saved_ms"][1] < evidence["saved_ms"][0] < evidence["saved_ms"][2]
    assert evidence["multiplications"][0] == 2 * 6 * 8 * 8 * 4 * 9
    image, filters, bias, result = 2 * 4 * 8 * 8, 6 * 4 * 9, 6, 2 * 6 * 8 * 8
    assert evidence["bytes"][0] == 4 * (image + filters + bias + result)
    assert any("saves" in line for line in said)


@pytest.mark.parametrize("saved", [-2.0, 0.5, 1.1])
def test_what_does_not_surely_pay_in_its_window_does_not_ship(
    saved: float, problem: Problem, found: FoundRules
) -> None:
    """A window of 20 s: 2% of it is 0.4 s, and the interval is 1 s wide to either side."""
    said: list[str] = []
    assert not choose(problem, found.rules, TimerOf(saved), 1.02, said.append)
    assert all("its window saves" in line for line in said)
    assert choose(problem, found.rules, TimerOf(1.5), 1.02, said.append)


def test_what_costs_no_less_alone_does_not_ship(problem: Problem, found: FoundRules) -> None:
    said: list[str] = []
    assert not choose(problem, found.rules, ImageTimer(), 3.0, said.append)
    assert all("its operators take" in line for line in said)


def test_what_is_chosen_is_written_and_takes_the_place_of_what_was_there(
    problem: Problem, found: FoundRules, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_mutants, "opened", lambda model, batch, threads: problem)
    monkeypatch.setattr(shipped_mutants, "searched", lambda *arguments: found)
    arguments = Arguments(("model",), out=tmp_path / "shipped.json")
    (first,) = run(arguments, lambda text: None, planted_meters)
    assert [rule.name for rule in read_shipped(arguments.out)] == [first.name]
    assert [rule.name for rule in run(arguments, lambda text: None, planted_meters)] == [first.name]
    assert merged([first], []) == [first]
    assert first.certificate["evidence"]["model_speedup"][1] > 1.0
    table = lines([first])
    assert len(table) == 3
    assert first.name in table[2]


def test_mutants_ship_only_if_the_model_with_all_of_them_is_surely_faster(
    problem: Problem, found: FoundRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = choose(problem, found.rules, ImageTimer(), 1.02, lambda text: None)
    graph = with_all(problem, chosen)
    assert images(graph) < images(problem.model.graph), "at the one site that there is"
    said: list[str] = []
    (rule,) = that_pay_together(problem, chosen, said.append)
    assert rule.digest == chosen[0].digest
    speedup, low, high = rule.certificate["evidence"]["model_speedup"]
    assert low == speedup == high == pytest.approx(images(problem.model.graph) / images(graph), abs=1e-4)
    assert "times as fast" in said[0]
    for latency in (Latency(10.0, 1.1, (0.99, 1.2), 9, 11.0), Latency.failed("error", "it does not run")):
        monkeypatch.setattr(Problem, "measure", lambda self, graph, effort, known=latency: known)
        assert not that_pay_together(problem, chosen, said.append)
    assert said[1:] == ["  none ships: together the model is 1.100 (0.990 to 1.200) times as fast",
                        "  none ships: it does not run"]  # fmt: skip
    assert that_pay_together(problem, [], said.append) == []


def test_only_the_subprograms_that_are_asked_for_are_searched(problem: Problem) -> None:
    arguments = Arguments((), only="matmul", seconds=1e6)
    found = searched(problem, arguments, MutantMeters(price, ImageTimer()))
    assert (found.searched, found.rules, found.complete) == (0, [], True)


def test_a_file_has_one_batch(tmp_path: Path) -> None:
    arguments = Arguments((str(write(tmp_path / "m.onnx")),), batches=(4,), out=tmp_path / "shipped.json")
    with pytest.raises(UserError, match="keeps its own batch"):
        run(arguments, lambda text: None, planted_meters)
