"""Figures in README and docs: each names the command that makes it, and is what its results hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.figures import __main__ as command
from benchmarks.figures.quotes import figures, pages, parts, problems, updated
from tests.repository import ROOT


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.relative_to(ROOT).as_posix())
def test_figures_of_the_pages_have_a_command_and_are_those_of_their_results(page: Path) -> None:
    """Else: name the command in a comment above the figure (benchmarks.figures.quotes tells how), or, where a copy is
    old, run python -m benchmarks.figures"""
    assert problems(page.read_text("utf-8")) == []


@pytest.mark.parametrize(
    "figure",
    ["1.27x", "x1.27", "12 ms", "0.4 s", "1,432 s", "3.5 minutes", "17.5 MB", "1.20 to 1.30", "**1.93**",
     "205 GFLOP/s", "33 GB/s", "1.6 times", "90 seconds"],
)  # fmt: skip
def test_a_figure_without_a_command_is_told(figure: str) -> None:
    assert problems(f"# Page\n\nIt takes {figure} here.\n") == [f"line 3: {figure} names no command that makes it"]
    assert problems(f"# Page\n\n| vgg19 | {figure} |\n") == [f"line 3: {figure} names no command that makes it"]
    assert problems(f"# Page\n\n<!-- made by: make bench -->\n\nIt takes {figure} here.\n") == []


@pytest.mark.parametrize(
    "text",
    ["`--time-limit 40 s`", "[x](a/1.2x.md)", "opset 23, 3x3, 1x1, 224x224", "```\n12 ms\n```", "ONNX Runtime 1.31",
     "Table 1 of 2022", "<!-- 12 ms -->", "a 95% interval"],
)  # fmt: skip
def test_code_and_names_are_no_figures(text: str) -> None:
    (part,) = parts(text)
    assert list(figures(part)) == []


def test_a_mark_covers_its_section_and_no_more() -> None:
    text = "# A\n\n<!-- made by: make bench -->\n\n1 ms\n\n## B\n\n2 ms\n\n# C\n\n3 ms\n"
    assert problems(text) == ["line 13: 3 ms names no command that makes it"]
    assert problems(text.replace("## B", "<!-- end -->")) == [
        "line 9: 2 ms names no command that makes it", "line 13: 3 ms names no command that makes it",
    ]  # fmt: skip
    assert problems(text.replace("# A", "### A")) == [
        "line 9: 2 ms names no command that makes it", "line 13: 3 ms names no command that makes it",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("mark", "wrong"),
    [
        ("made by: python -m benchmarks.gone", "there is no command python -m benchmarks.gone"),
        ("made by: python gone.py", "there is no command python gone.py"),
        ("made by: make nothing", "there is no command make nothing"),
        ("made by: somebody", "there is no command somebody"),
        ("made by: make bench; benchmarks/gone.json", "there is no file benchmarks/gone.json"),
        ("set in: graph_rewrite/gone.py", "there is no file graph_rewrite/gone.py"),
    ],
)
def test_commands_and_files_must_exist(mark: str, wrong: str) -> None:
    assert problems(f"<!-- {mark} -->\n\n12 ms\n") == [f"line 1: {wrong}"]


@pytest.mark.parametrize("known", ["python -m benchmarks.soak", "python evaluate.py", "make replay", "rewritegym zoo"])
def test_commands_of_the_project_are_known(known: str) -> None:
    assert problems(f"<!-- made by: {known} -->\n\n12 ms\n") == []


def test_numbers_of_a_table_stand_in_the_results(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"rows": [{"speedup": 1.2649, "ms": 1234.56, "ok": True}]}))
    (tmp_path / "Makefile").write_text("bench: setup\n")
    page = "<!-- made by: make bench; a.json -->\n\n| vgg19 | **1.26** (1.265) | 1,234.6 ms | 1e-06 |\n"
    assert problems(page, tmp_path) == []
    assert problems(page.replace("1.26*", "1.27*"), tmp_path) == ["line 3: 1.27 is not in a.json"]
    assert problems(page.replace("1,234.6", "1,234.5"), tmp_path) == ["line 3: 1,234.5 is not in a.json"]


def test_copies_are_word_by_word_and_made_anew(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("| x | 1.26 |\n|---|---|\n| y | 2 |\n")
    (tmp_path / "Makefile").write_text("bench: setup\n")
    page = "# A\n\n<!-- made by: make bench; a.md -->\n\n| x | 1.27 |\n\n<!-- end -->\n\nAfter.\n\n## B\n\nText.\n"
    assert problems(page, tmp_path) == [
        "line 4: it is not the content of a.md: python -m benchmarks.figures"
    ]  # fmt: skip
    mended = updated(page, tmp_path)
    assert mended == page.replace("| x | 1.27 |\n", "| x | 1.26 |\n|---|---|\n| y | 2 |\n")
    assert problems(mended, tmp_path) == []
    assert updated(mended, tmp_path) == mended


def test_the_command_says_which_pages_are_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = ROOT / "README.md"
    monkeypatch.setattr(command, "quoting_pages", lambda: [page])
    monkeypatch.setattr("sys.argv", ["figures", "--check"])
    assert command.main() == 0
    planted = ["README.md, line 3: 1.27x names no command that makes it"]
    monkeypatch.setattr(command, "page_problems", lambda chosen: planted if list(chosen) == [page] else [])
    assert command.main() == 1
    assert planted[0] in capsys.readouterr().err
