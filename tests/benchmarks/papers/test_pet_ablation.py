"""PET's figure 13: which searches it is made of, what each may use, and how it goes on; with planted searches."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.core.base import Budget
from agents.searching import mutants as mutant_search
from benchmarks.figures.writing import write as write_figures
from benchmarks.papers import pet_ablation
from benchmarks.papers.pet_ablation import (
    NEVER_BELOW,
    Arguments,
    below,
    cell,
    gain_of_mutants,
    of_batch,
    run,
    shown_name,
    table,
)
from benchmarks.papers.pet_search import VARIANTS, prepare
from benchmarks.protocol import tools as protocol_tools
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.searches.process import conducted
from benchmarks.protocol.searches.runs import DONE, Run
from graph_rewrite.errors import UserError
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.mutate.repairs import REPAIRS
from graph_rewrite.task.problem import Problem, open_problem
from tests.agents.optimization.test_mutants import ImageMeter, with_a_gap, write
from tests.benchmarks.protocol.planted import Machine, Searches, tools
from tests.envs.fakes import count_operators, write_tower

PROTOCOL = Protocol(sessions=3, rounds=2, inputs=2)
SECONDS = {"exact": 1.0, "mutants": 0.9, "both": 0.8, "recompute-only": 1.1, "original": 1.2}


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    return Arguments(("resnet18",), (1, 16), runs=tmp_path / "runs", out=tmp_path / "pet.json")


def made(arguments: Arguments, searches: Searches, folder: Path) -> list[dict[str, Any]]:
    machine = Machine({name if name == "original" else f"{name}@180/0": s for name, s in SECONDS.items()}, noise=1e-3)
    planted = tools(folder, machine, searches, PROTOCOL)

    def locate(model: str) -> Path:
        path = folder / f"{shown_name(model)}.onnx"
        path.write_text(model)
        return path

    rows = run(arguments, Console(quiet=True), replace(planted, locate=locate))
    assert json.loads(arguments.out.read_text())["rows"] == json.loads(json.dumps(rows))
    return rows


def test_every_variant_of_every_model_and_batch_is_searched_once(arguments: Arguments, tmp_path: Path) -> None:
    searches = Searches()
    rows = made(arguments, searches, tmp_path)
    models = ("resnet18", "zoo://resnet18?batch=16")
    assert searches.made == [f"{model} {variant}@180/0" for model in models for variant in VARIANTS]
    assert [(row["model"], row["agent"]) for row in rows] == [(m, variant) for m in models for variant in VARIANTS]
    assert all(row["verified"] for row in rows)
    # Once more: nothing is done again.
    later = made(arguments, again := Searches(), tmp_path)
    assert [row["speedup"] for row in later] == [row["speedup"] for row in rows]
    assert not again.made


def test_it_goes_on_where_it_was_interrupted(arguments: Arguments, tmp_path: Path) -> None:
    first = Searches(interrupt_at="zoo://resnet18?batch=16 mutants@180/0")
    with pytest.raises(KeyboardInterrupt):
        made(arguments, first, tmp_path)
    assert len(first.made) == 5
    assert len(json.loads(arguments.out.read_text())["rows"]) == 4, "the rows of the first model are kept"
    made(arguments, second := Searches(), tmp_path)
    assert len(second.made) == 3


def test_the_table_has_a_column_per_variant_and_tells_what_mutants_add(arguments: Arguments, tmp_path: Path) -> None:
    rows = made(replace(arguments, batch=(16,)), Searches(), tmp_path)
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(table(rows))
    text = shown.export_text()
    assert "resnet18, batch 16" in text
    assert all(variant in text for variant in VARIANTS)
    own = {row["agent"]: row for row in rows}
    assert gain_of_mutants(own) == pytest.approx(1.0 / 0.8, rel=0.01)
    assert not below(rows)
    assert "lower end below" not in text


def test_what_is_slower_or_failed_is_told(arguments: Arguments, tmp_path: Path) -> None:
    rows = made(replace(arguments, batch=(1,)), Searches(), tmp_path)
    slow = {**rows[1], "speedup": 1.0, "speedup_ci95": [NEVER_BELOW - 0.001, 1.01]}
    lost = {**rows[2], "verified": False, "failure": "its outputs differ"}
    changed = [rows[0], slow, lost, rows[3]]
    assert below(changed) == [slow]
    assert cell(lost) == "its outputs differ"
    assert cell(None) == "-"
    assert gain_of_mutants({row["agent"]: row for row in changed}) is None
    shown = Console(width=200, record=True, file=io.StringIO())
    shown.print(table(changed))
    assert "lower end below 0.995: resnet18 mutants" in shown.export_text()


def test_page_and_plots_are_made_of_the_results(arguments: Arguments, tmp_path: Path) -> None:
    made(replace(arguments, batch=(16,)), Searches(), tmp_path)
    written = {path.name for path in write_figures(arguments.out)}
    assert {"pet.md", "pet-speedups.png"} <= written
    page = (tmp_path / "pet.md").read_text()
    assert "`python -m benchmarks.papers.pet_ablation`" in page
    assert "resnet18?batch=16" in page
    assert all(variant in page for variant in VARIANTS)


@pytest.mark.parametrize("more", [[], ["--no-figures"]])
def test_the_command_makes_them_unless_it_is_told_not_to(
    more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(pet_ablation, "run", lambda arguments, console: [])
    monkeypatch.setattr(pet_ablation, "make_figures", lambda path, console: drawn.append(path))
    monkeypatch.setattr(sys, "argv", ["pet_ablation", "--json", "--out", str(tmp_path / "p.json"), *more])
    assert pet_ablation.main() == 0
    assert json.loads(capsys.readouterr().out) == {"rows": []}
    assert drawn == ([] if more else [tmp_path / "p.json"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"variants": ("all",)}, "--variants all"),
        ({"batch": (0,)}, "--batch 0"),
        ({"agent": "none"}, "there is no agent none"),
        ({"models": ("resnet",)}, "neither a file nor in the zoo"),
    ],
)
def test_mistakes_are_told_before_any_search(change: dict[str, Any], message: str, arguments: Arguments) -> None:
    with pytest.raises(UserError, match=message):
        run(replace(arguments, **change), Console(quiet=True))


def test_a_model_of_a_batch_has_a_name_of_its_own() -> None:
    assert of_batch("bert", 1) == "bert"
    assert of_batch("zoo://bert?layers=2", 16) == "zoo://bert?layers=2&batch=16"
    assert shown_name("zoo://bert?layers=2&batch=16") == "bert, layers 2, batch 16"


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = write(tmp_path / "m.onnx")
    return open_problem(
        f"file:{path}", provider="cpu", rules="MulOne", meter=lambda model, *_: ImageMeter(model.original)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("variant", "names", "kinds"),
    [
        ("exact", ["MulOne"], None),
        ("mutants", ["MutantConv"], list(REPAIRS)),
        ("both", ["MulOne", "MutantConv"], list(REPAIRS)),
        ("recompute-only", ["MulOne", "MutantConv"], ["recompute"]),
    ],
)
def test_what_a_variant_may_use(
    variant: str, names: list[str], kinds: list[str] | None, problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[list[str]] = []

    def search(problem: Problem, seconds: float, *rest: Any) -> list[MutantRule]:
        assert seconds == pytest.approx(mutant_search.SHARE * 100.0)
        searched.append(list(rest[-1]))
        return [with_a_gap(problem.model.graph)]

    monkeypatch.setattr(mutant_search, "_searched", search)
    budget = Budget(seconds=100.0)
    left = prepare(problem, Run("m", variant, "regional", 0, 100.0), budget)
    found = [rule.name for rule in problem.rewriter.rules]
    assert len(found) == len(names)
    assert all(name.startswith(wanted) for name, wanted in zip(found, names, strict=True))
    assert searched == ([] if kinds is None else [kinds])
    assert left.seconds <= 100.0
    assert (left == budget) == (kinds is None)


def test_a_search_is_prepared_where_it_leaves_no_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    seen: list[tuple[str, str]] = []

    def prepared(problem: Problem, run: Run, budget: Budget) -> Budget:
        seen.append((run.name, os.environ["REWRITEGYM_CACHE"]))
        return replace(budget, measurements=0)

    tower = str(write_tower(tmp_path / "tower.onnx"))
    found = conducted(Run(tower, "both", "greedy", 0, 30.0), tmp_path / "run", count_operators, prepared)
    assert found["status"] == DONE
    assert found["kept_original"], "what is left of the budget is none"
    ((name, cache),) = seen
    assert name == "both"
    assert cache.startswith(str(tmp_path / "run"))


def test_its_searches_run_in_the_process_that_looks_for_mutants(
    arguments: Arguments, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def processes(runs: Sequence[Any], cores: Sequence[tuple[int, ...]], module: str) -> list[dict[str, Any]]:
        asked.append(module)
        return []

    monkeypatch.setattr(protocol_tools, "side_by_side", processes)
    made = pet_ablation.tools_for(arguments.plan(), Console(quiet=True), 0.0)
    made.search([(Run("m", "both", "regional", 0, 1.0), tmp_path)])
    assert asked == ["benchmarks.papers.pet_search"]
