"""The guide's commands for mutants run; what is found is planted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agents.searching import mutants as mutant_search
from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.task.problem import Problem
from rewritegym.cli import main
from tests.agents.optimization.planted import plant
from tests.agents.optimization.test_mutants import ImageMeter, with_a_gap, write
from tests.repository import ROOT


def test_the_guides_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, tmp_path / "cache", ImageMeter).measurements = 12
    searched: list[Graph] = []

    def search(problem: Problem, *arguments: Any) -> list[MutantRule]:
        searched.append(problem.model.graph)
        return [with_a_gap(problem.model.graph)]

    monkeypatch.setattr(mutant_search, "_searched", search)
    guide = (ROOT / "docs" / "guides" / "optimise.md").read_text("utf-8")
    commands = re.findall(r"^\.venv/bin/rewritegym optimize model\.onnx (.*--mutants.*)$", guide, re.MULTILINE)
    assert [re.sub(r".*--mutants (\w+).*", r"\1", flags) for flags in commands] == ["search", "shipped"]
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "model.onnx")
    for number, flags in enumerate(commands):
        # The planted search ends after some measurements, whatever the time limit.
        more = ["--rules", "MulOne", "--no-memory", "--json"]
        assert main(["optimize", "model.onnx", f"{number}.onnx", *flags.split(), *more]) == 0
        entry = json.loads(capsys.readouterr().out)
        assert entry["verified"]
        assert bool(entry["rewrites"]) == (number == 0), "what ships is for other shapes"
    assert len(searched) == 1
