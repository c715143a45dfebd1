"""The machine report as a table and as JSON; the report itself is tested with the meters."""

import json

import pytest
from rich.console import Console

from graph_rewrite.latency import noise
from rewritegym import __version__, doctor

REPORT = {
    "provider": "cpu",
    "cpu_flags": ["avx2", "avx512f"],
    "versions": {"onnxruntime": "1.31.1"},
    "peak_gflops": 271.83,
    "gpu": None,
    "extra": [],
}


@pytest.fixture(autouse=True)
def report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "machine_report", lambda: dict(REPORT))


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"rewritegym": __version__, **REPORT}


def test_table_shows_every_entry() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(doctor.table(REPORT))
    printed = capture.get()
    for text in ("cpu", "avx2, avx512f", "versions.onnxruntime", "1.31.1", "271.8", "unknown", "none"):
        assert text in printed


def test_bad_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        doctor.main(["--jsn"])
    assert exit_.value.code == 2
    assert "--jsn" in capsys.readouterr().err
