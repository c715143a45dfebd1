"""The machine report as a table and as JSON; the report itself is tested with the meters."""

import json
import re

import pytest
from rich.console import Console

from graph_rewrite.errors import MachineError
from graph_rewrite.latency import noise
from rewritegym import __version__, doctor

REPORT = {
    "provider": "cpu",
    "cpu_flags": ["avx2", "avx512f"],
    "versions": {"onnxruntime": "1.2.3"},
    "peak_gflops": 271.83,
    "gpu": None,
    "noise": {"between_runs_percent": 0.5, "ci95": [0.997, 1.004]},
}


@pytest.fixture(autouse=True)
def report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(noise, "machine_report", lambda: dict(REPORT))


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.main(["--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    versions = printed.pop("versions")
    assert printed == {key: value for key, value in REPORT.items() if key != "versions"}
    assert versions["rewritegym"] == __version__
    assert versions["onnxruntime"] == "1.2.3"
    assert versions.keys() > set(doctor.LIBRARIES)


def test_library_that_is_missing_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LIBRARIES", ("numpy", "no-such-distribution"))
    assert doctor.main(["--json"]) == 0
    versions = json.loads(capsys.readouterr().out)["versions"]
    assert versions["no-such-distribution"] == "not installed"
    assert versions["numpy"] != "not installed"


def test_table_shows_every_entry_with_its_unit() -> None:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(doctor.table(REPORT))
    printed = re.sub(r"[ │]+", " ", capture.get())
    for row in (
        "provider cpu",
        "CPU flags avx2, avx512f",
        "onnxruntime 1.2.3",
        "peak GFLOP/s, one thread 271.8",
        "GPU none",
        "noise between runs, % 0.5",
        "95% interval 0.997, 1.004",
    ):
        assert row in printed


def test_failing_runtime_is_a_message(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> dict[str, object]:
        raise MachineError("ONNX Runtime fails on a small model: no memory")

    monkeypatch.setattr(noise, "machine_report", fail)
    assert doctor.main([]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "rewritegym doctor: ONNX Runtime fails on a small model: no memory\n"


def test_bad_option_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        doctor.main(["--jsn"])
    assert exit_.value.code == 2
    assert "--jsn" in capsys.readouterr().err
