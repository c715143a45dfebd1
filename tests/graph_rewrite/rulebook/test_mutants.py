"""Mutants in the catalogue: their boxes as a table, repairs, costs and proofs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite.mutate.mutant_rules import MutantRule
from graph_rewrite.rulebook import catalogue, cli
from graph_rewrite.rulebook.mutants import MOST_PARTS, drawing_of_boxes
from tests.graph_rewrite.mutate.mutant_rules.test_rule import the_rule

SEAM = [[[0, 1], [0, 4], [0, 8], [7, 8]], [[1, 2], [0, 4], [0, 8], [0, 1]]]
"""Two images side by side: the last column of one, and the first one of the other."""
EVIDENCE = {
    "model": "zoo://resnet18?batch=2", "threads": 1, "machine": "some-cpu", "onnxruntime": "1.31",
    "operators_ms": [10.0, 8.0], "window_ms": 20.0, "saved_ms": [2.0, 1.5, 2.5], "multiplications": [10, 11],
    "bytes": [100, 250],
}  # fmt: skip


def with_rounds(**more: Any) -> MutantRule:
    rule = the_rule()
    rounds = [{"repair": "gap", "share_wrong": [0.125], "boxes": [SEAM], "shapes": [[2, 4, 8, 8]]}]
    certificate = {**rule.certificate, "rounds": rounds, **more}
    return MutantRule(
        rule.operators, rule.original, rule.mutant, rule.shapes, rule.dtype, rule.constants, certificate
    )  # fmt: skip


def test_boxes_are_drawn_over_the_last_two_axes() -> None:
    assert drawing_of_boxes(SEAM, (2, 4, 8, 8)) == "\n".join([
        "wrong before the repair, by axes 2 and 3 of [2, 4, 8, 8]",
        "    0:1 1:7 7:8",
        "0:8  +   .   +",
    ])  # fmt: skip


def test_a_box_in_all_of_the_other_axes_is_marked_as_such() -> None:
    drawn = drawing_of_boxes([[[0, 2], [3, 5], [0, 4]], [[0, 1], [0, 3], [0, 4]]], (2, 5, 4))
    assert drawn is not None
    assert drawn.splitlines()[1:] == ["    0:4", "0:3  +", "3:5  #"]


def test_two_boxes_that_cover_the_other_axes_together_are_everything() -> None:
    drawn = drawing_of_boxes([[[0, 1], [0, 2]], [[1, 3], [0, 2]]], (3, 2))
    assert drawn is not None
    assert drawn.splitlines()[1:] == ["    0:2", "0:1  #", "1:3  #"]
    whole = drawing_of_boxes([[[0, 1], [0, 3], [0, 2]], [[1, 4], [0, 3], [0, 2]]], (4, 3, 2))
    assert whole is not None
    assert whole.splitlines()[1:] == ["    0:2", "0:3  #"]


def test_what_would_be_large_is_not_drawn() -> None:
    many = [[[0, 1], [0, 1], [i, i + 1]] for i in range(0, 2 * MOST_PARTS, 2)]
    assert drawing_of_boxes(many, (1, 1, 2 * MOST_PARTS)) is None
    assert drawing_of_boxes([[[0, 1]]], (4,)) is None


def test_a_section_has_boxes_share_repair_cost_and_proof() -> None:
    section = catalogue.section(with_rounds(evidence=EVIDENCE))
    assert "wrong before the repair, by axes 2 and 3" in section
    assert "- repair: gap, of 12.5% of an output, in 2 boxes" in section
    assert "- cost: 1.42 times the multiplications of the original, and 2.50 times the bytes; 8.00 ms as" in section
    assert "it saved 2.00 ms of 20.00 ms in a window of resnet18?batch=2 (some-cpu, 1 thread(s))" in section
    assert "- certificate: proved at 432 positions, 3 times each" in section
    assert "Args:" not in section, "the docstring of the class is none of the mutant"
    assert "(no instance known)" not in section


def test_a_mutant_without_evidence_has_its_multiplications() -> None:
    facts = "\n".join(catalogue.facts(with_rounds(), None))
    assert "cost: 1.42 times the multiplications of the original\n" in facts


def test_a_mutant_that_was_never_wrong_says_so() -> None:
    rounds = [{"repair": "none", "share_wrong": [0.0], "boxes": [[]], "shapes": [[2, 4, 8, 8]]}]
    section = catalogue.section(with_rounds(rounds=rounds))
    assert "repair: none, as nothing was wrong" in section
    assert "wrong before the repair" not in section


def test_the_page_of_mutants_is_written_beside_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rule = with_rounds(evidence=EVIDENCE)
    monkeypatch.setattr(catalogue, "all_sets", lambda: (rule,))
    (file,) = catalogue.write(tmp_path)
    assert file.name == "rules-mutants.md"
    page = file.read_text()
    assert page.startswith("# Mutants\n")
    assert f"### {rule.name}" in page
    assert "| mutant | 1 | 1 |" in page


def test_shipped_mutants_are_listed_and_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rule = with_rounds(evidence=EVIDENCE)
    monkeypatch.setattr("graph_rewrite.rulebook.cli_catalogue.all_sets", lambda: (rule,))
    assert cli.main(["list", "--origin", "mutant", "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert (entry["name"], entry["family"], entry["origin"]) == (rule.name, "mutants", "mutant")
    assert entry["certificate"] == {"verdict": "proved", "method": "prime-field", "instances": 1}
    assert cli.main(["show", rule.name]) == 0
    out = capsys.readouterr().out
    assert "0:8  +   .   +" in out
    assert "repair: gap, of 12.5% of an output, in 2 boxes" in out
    assert "class MutantRule" not in out
