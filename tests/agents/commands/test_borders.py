"""Arguments of command lines that cannot be are refused with one line that says what to do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.commands import evaluate, train
from tests.envs.fakes import write_tower

MAINS: dict[str, Callable[[list[str]], int]] = {"evaluate": evaluate.main, "train": train.main}


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        ("evaluate", ("--repeats", "0"), "--repeats 0: each agent must run at least once"),
        ("evaluate", ("--repeats", "-1"), "--repeats -1: each agent must run at least once"),
        ("evaluate", ("--agents",), "--agents names none: give one or more"),
        ("evaluate", ("--agents", "greedy", "--threads", "99999"), "--threads 99999: this process may use"),
        ("evaluate", ("--agents", "greedy", "--threads", "0"), "threads must be at least 1"),
        ("evaluate", ("--agents", "greedy", "--runs", "tower.onnx"), "--runs tower.onnx is a file: name a folder"),
        ("evaluate", ("--agents", "greedy", "--runs", "tower.onnx/in"), "--runs tower.onnx/in: no folder can be made"),
        ("evaluate", ("--seed", "-1"), "--seed -1: seeds are from 0 to 4294967295"),
        ("train", ("--seed", "4294967296"), "--seed 4294967296: seeds are from 0 to 4294967295"),
        ("evaluate", ("--config", "binary.yaml"), "binary.yaml: not readable as YAML, name a text file"),
        ("train", ("--threads", "99999"), "--threads 99999: this process may use"),
        ("train", ("--runs", "tower.onnx"), "--runs tower.onnx is a file: name a folder"),
        ("train", ("--config", "binary.yaml"), "binary.yaml: not readable as YAML, name a text file"),
    ],
)
def test_mistakes_are_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tower(tmp_path / "tower.onnx", 1)
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert MAINS[command](["--model", "tower.onnx", *arguments]) == 2
    told = capsys.readouterr()
    assert message in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""
    assert {path.name for path in tmp_path.iterdir()} == {"tower.onnx", "binary.yaml"}
