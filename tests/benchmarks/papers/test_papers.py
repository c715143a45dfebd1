"""The papers' tables: their figures are those of the papers, ours those of the results files, and commands exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tyro

from agents.core.config import uri_parameters
from agents.core.registry import make_agent
from benchmarks import results
from benchmarks.egraphs import extraction
from benchmarks.figures.quotes import is_command
from benchmarks.latency import discrepancy
from benchmarks.papers import __main__ as command
from benchmarks.papers import pet_ablation
from benchmarks.papers.catalogue import TABLES
from benchmarks.papers.table import ROOT, PaperTable, read_published
from graph_rewrite import zoo
from graph_rewrite.errors import MachineError, UserError

PAGE = ROOT / "docs/reference/reproductions.md"
ARGUMENTS = {
    "benchmarks.results": results.Arguments,
    "benchmarks.latency.discrepancy": discrepancy.Arguments,
    "benchmarks.egraphs.extraction": extraction.Arguments,
    "benchmarks.papers.pet_ablation": pet_ablation.Arguments,
}
"""The command lines of the programs that tables name."""
BY_NAME = {table.name: table for table in TABLES}
MEASURED = [table for table in TABLES if table.command is not None]

named = pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)


def row(model: str, agent: str, seed: int, speedup: float | None, **further: Any) -> dict[str, Any]:
    """Return a row of a results file."""
    return {
        "model": model, "agent": agent, "kind": "agent", "seed": seed, "budget_s": 200.0, "speedup": speedup,
        "speedup_ci95": None if speedup is None else [speedup - 0.01, speedup + 0.01], "verified": speedup is not None,
        "seconds": 100.0 + 10 * seed, "rewrites": [{"rule": "a", "sites": 2}, {"rule": "b"}], **further,
    }  # fmt: skip


def write_results(root: Path, table: PaperTable, rows: list[dict[str, Any]]) -> None:
    """Write the results file of a table below another root."""
    assert table.results is not None
    path = root / table.results
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"machine": "m", "commit": "c", "rows": rows}), encoding="utf-8")


def cells(text: str, model: str) -> list[str]:
    """Return the cells of a table's row."""
    [line] = [line for line in text.splitlines() if line.startswith(f"| {model} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


class TestPublished:
    def test_difference_of_xrlflow_is_the_one_that_ours_computes(self, tmp_path: Path) -> None:
        """Given their milliseconds, our column comes to the paper's own percentages."""
        table = BY_NAME["xrlflow-table-1"]
        theirs = read_published("xrlflow")["table 1"]["rows"]
        rows = [{"model": r["zoo"], "sum_ms": r["cost_model_ms"], "end_to_end_ms": r["end_to_end_ms"]} for r in theirs]
        write_results(tmp_path, table, rows)
        text = table.text(tmp_path)
        for published in theirs:
            ours = float(cells(text, published["zoo"])[-1].rstrip("%"))
            assert ours == pytest.approx(published["difference_pct"], abs=0.35)

    def test_savings_of_pact_are_those_of_its_milliseconds(self) -> None:
        rows = read_published("pact24")["table 2"]["rows"]
        assert len(rows) == 13 * 6
        for each in rows:
            saved, spread = each["speedup_pct"]
            computed = 100 * (1 - each["optimised_ms"] / each["original_ms"])
            # Means of five ratios against a ratio of means, of figures with two decimals.
            assert abs(computed - saved) <= max(2.5, spread), each

    @pytest.mark.parametrize("paper", ["xrlflow", "pact24", "taso", "pet"])
    def test_models_are_in_the_zoo(self, paper: str) -> None:
        published = read_published(paper)
        models = [name for _, name in published.get("workloads", [])]
        models += [each["zoo"] for entry in ("table 1", "table 2") for each in published.get(entry, {}).get("rows", [])]
        for model in models:
            name, _, _ = model.partition("?")
            assert zoo.defaults(name).keys() >= uri_parameters(f"zoo://{model}").keys()


class TestCommands:
    @pytest.mark.parametrize("table", MEASURED, ids=lambda table: table.name)
    def test_parse_and_write_the_file_that_is_read(self, table: PaperTable) -> None:
        assert table.command is not None
        program, *words = table.command[2:]
        assert is_command(" ".join(table.command[:3]))
        arguments = tyro.cli(ARGUMENTS[program], args=words)
        assert arguments.out is not None
        assert str(arguments.out.with_suffix(".json")) == table.results
        if isinstance(arguments, results.Arguments):
            plan = arguments.plan()
            assert plan.peers == () or "papers" not in table.results
            assert all(make_agent(agent).name for agent in plan.agents)

    def test_without_one_the_table_says_so(self) -> None:
        table = BY_NAME["xrlflow-paper-settings"]
        assert "there is no command for it yet" in table.text()
        with pytest.raises(UserError, match=r"^xrlflow-paper-settings: there is no command for it yet\. `python train"):
            command.measure(table)

    def test_a_failure_ends_the_measurement(self, monkeypatch: pytest.MonkeyPatch) -> None:
        done = subprocess.CompletedProcess([], 3)
        monkeypatch.setattr(command.subprocess, "run", lambda words, **rest: done)
        with pytest.raises(MachineError, match=r"^taso-figure-8: python -m benchmarks\.results .* failed$"):
            command.measure(BY_NAME["taso-figure-8"])

    def test_unknown_names_and_measuring_everything_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(UserError, match=r"^no table is named table-9; there are xrlflow-table-1, "):
            command.chosen(("table-9",))
        monkeypatch.setattr(sys, "argv", ["papers", "--measure"])
        assert command.main() == 2
        assert "name the tables to measure" in capsys.readouterr().err


class TestTables:
    @named
    def test_file_and_page_are_up_to_date(self, table: PaperTable) -> None:
        text = table.text()
        stored = ROOT / command.FOLDER / f"{table.name}.md"
        assert stored.read_text("utf-8") == text, f"python -m benchmarks.papers {table.name}"
        assert text.strip() in PAGE.read_text("utf-8"), "python -m benchmarks.figures"

    @named
    def test_without_results_our_column_is_empty(self, table: PaperTable, tmp_path: Path) -> None:
        text = table.text(tmp_path)
        assert ("not run yet" in text) == (table.command is not None)

    def test_speedups_are_means_over_seeds_and_failures_are_shown(self, tmp_path: Path) -> None:
        table = BY_NAME["xrlflow-figure-4"]
        rows = [
            row("bert", "ppo", 0, 1.0), row("bert", "ppo", 1, 1.21), row("bert", "taso", 0, 1.05),
            row("vit", "ppo", 0, None, failure="no checkpoint"), row("vit", "ppo", 1, 1.3),
        ]  # fmt: skip
        write_results(tmp_path, table, rows)
        text = table.text(tmp_path)
        assert cells(text, "bert") == ["bert", "1.100 (1.000 to 1.210)", "1.050"]
        assert cells(text, "vit") == ["vit", "1 of 2 failed: no checkpoint", "-"]
        assert cells(text, "dalle") == ["dalle", "-", "-"]

    def test_runs_with_a_budget_of_their_own_are_left_out(self, tmp_path: Path) -> None:
        table = BY_NAME["xrlflow-figure-4"]
        rows = [row("bert", agent, seed, 1.2, budget_s=60.0) for agent in ("ppo", "taso") for seed in (0, 1)]
        rows += [row("bert", "ppo", seed, 1.0, budget_s=20.0) for seed in (0, 1, 2)]
        write_results(tmp_path, table, rows)
        assert cells(table.text(tmp_path), "bert")[1] == "1.200 (1.200 to 1.200)"

    def test_rules_and_seconds(self, tmp_path: Path) -> None:
        rules, seconds = BY_NAME["xrlflow-figure-5"], BY_NAME["xrlflow-figure-6"]
        rows = [row("bert", "ppo", 0, 1.1), row("bert", "ppo", 1, 1.2), row("bert", "taso", 0, 1.0, rewrites=[])]
        write_results(tmp_path, rules, rows)
        assert cells(rules.text(tmp_path), "bert") == ["bert", "2 rules, 3 sites", "none"]
        assert cells(seconds.text(tmp_path), "bert") == ["bert", "105 s", "100 s"]

    def test_variants_of_pet_have_their_intervals(self, tmp_path: Path) -> None:
        table = BY_NAME["pet-figure-13"]
        rows = [row("resnet18", "exact", 0, 1.2), row("zoo://resnet18?batch=16", "both", 0, 1.3)]
        write_results(tmp_path, table, rows)
        text = table.text(tmp_path)
        assert cells(text, "resnet18")[1:] == ["1.200 (1.190 to 1.210)", "-", "-", "-"]
        assert cells(text, "resnet18?batch=16")[1:] == ["-", "-", "1.300 (1.290 to 1.310)", "-"]
        assert [model for model in pet_ablation.MODELS if f"| {model}?batch=16 |" not in text] == []

    def test_methods_and_breakdown_of_pact(self, tmp_path: Path) -> None:
        methods, breakdown = BY_NAME["pact24-figure-5"], BY_NAME["pact24-table-2"]
        agent = "egraph-mcts:main=ilp,final=ilp,rerank=1,deployment=false,in_flight=1"
        write_results(tmp_path, methods, [row("bert", agent, 0, 1.25)])
        assert cells(methods.text(tmp_path), "ilp/ilp") == ["ilp/ilp", "22.4%", "687 s", "1.250", "100 s"]
        found = cells(breakdown.text(tmp_path), "bert")
        assert found[1:5] == ["18.27 ± 0.33% (1.22)", "1.1 s", "-", "-"]
        assert found[9:] == ["18.20 ± 3.92% (1.22)", "1178.6 s", "1.250", "100 s"]

    def test_estimates_are_ratios_to_the_exact_cost(self, tmp_path: Path) -> None:
        table = BY_NAME["pact24-table-1"]
        write_results(tmp_path, table, [{"model": "bert", "tree": 5e12, "shared": 400.0, "dag": 410.0, "ilp": 400.0}])
        assert cells(table.text(tmp_path), "bert") == ["bert", "2.96", "1.00", "1.2e10", "1.00", "1.02"]
