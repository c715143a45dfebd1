"""optimize.py --report."""

import json
from pathlib import Path

import pytest

import rewritegym.cli
from agents.commands.optimize import main
from agents.optimization import reports
from agents.optimization.reports import check_report, reserved_seconds
from graph_rewrite.errors import UserError
from tests.agents.reporting.html_pages import read
from tests.envs.fakes import write_tower

QUICK = ("--threads", "1", "--time-limit", "6s", "--agent", "greedy", "--json")
UNHURRIED = (*QUICK, "--time-limit", "60s")
"""Long enough to measure something on a busy machine; the search ends by itself after a few seconds."""


@pytest.fixture
def tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def test_a_report_has_the_figures_of_the_json(tower: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([tower.name, *UNHURRIED, "--report", "report.html"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["report"] == "report.html"
    page = read(Path("report.html").read_text("utf-8"))
    assert page.balanced
    assert {printed["baseline_ms"], printed["latency_ms"], printed["max_rel_error"]} <= set(page.figures)
    assert {entry["saved_ms"] for entry in printed["rewrites"] if entry["saved_ms"]} <= {*page.figures} | {
        -figure for figure in page.figures
    }
    assert "tower.optimized.onnx" in page.text
    Path("result.json").write_text(json.dumps(printed))
    assert rewritegym.cli.main(["report", "result.json", "again.html"]) == 0
    again = read(Path("again.html").read_text("utf-8"))
    assert set(again.figures) <= set(page.figures)
    assert {printed["baseline_ms"], printed["latency_ms"]} <= set(again.figures)


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}", "no field 'speedup'"), ("[]", "but a list"), ("not json", "this is no JSON"), (None, "cannot be read")],
)
def test_a_report_of_something_else_is_refused(
    text: str | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    assert rewritegym.cli.main(["report", str(tmp_path / "result.json"), str(tmp_path / "r.html")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("error", [OSError("disk full"), ZeroDivisionError("a bug")])
def test_a_report_that_fails_does_not_lose_the_model(
    tower: Path, error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*arguments: object) -> Path:
        raise error

    monkeypatch.setattr(reports, "write_report", fail)
    assert main([tower.name, *QUICK, "--report", "report.html"]) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["report"] is None
    assert found["onnx_path"] == "tower.optimized.onnx"
    assert Path("tower.optimized.onnx").is_file()
    assert str(error) in printed.err
    assert ("Traceback" in printed.err) == isinstance(error, ZeroDivisionError)
    assert not Path("report.html").exists()


@pytest.mark.parametrize(
    ("report", "message"),
    [
        ("tower.onnx", "is the model"),
        ("out.onnx", "is the model"),
        ("nowhere/report.html", "there is no folder nowhere"),
        ("folder", "is a folder"),
        ("taken.html", "exists"),
    ],
)
def test_a_report_that_cannot_be_written_is_refused_before_any_time_is_spent(
    tower: Path, report: str, message: str
) -> None:
    Path("folder").mkdir()
    Path("taken.html").write_text("of somebody else")
    with pytest.raises(UserError, match=message):
        check_report(Path(report), Path("tower.onnx"), Path("out.onnx"), overwrite=False)
    assert main(["tower.onnx", "out.onnx", "--report", report, *QUICK]) == 2
    assert Path("taken.html").read_text() == "of somebody else"
    assert not Path("out.onnx").exists()


def test_an_older_report_is_replaced_where_that_is_asked_for(tower: Path) -> None:
    Path("taken.html").write_text("older")
    check_report(Path("taken.html"), Path("tower.onnx"), Path("out.onnx"), overwrite=True)


def test_a_report_has_its_share_of_the_time_limit() -> None:
    assert reserved_seconds(120.0, None) == 0.0
    assert reserved_seconds(120.0, Path("r.html")) == 6.0
    assert reserved_seconds(10.0, Path("r.html")) == 1.0


def test_the_python_call_writes_one_too(tower: Path) -> None:
    found = rewritegym.optimize(tower, time_limit=5, threads=1, agent="greedy", report="page.html")
    page = read(Path("page.html").read_text("utf-8"))
    assert page.balanced
    assert found.result.latency.ms in page.figures or found.result.is_original
    with pytest.raises(UserError, match="exists"):
        rewritegym.optimize(tower, time_limit=5, threads=1, agent="greedy", report="page.html")
