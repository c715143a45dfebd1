"""Peers that are prepared once, and again where what they were made of changes."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.preparing import KEPT, on_device, prepared


class Tool:
    """Writes a file of its own and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, model: Path, folder: Path, threads: int) -> Contestant:
        assert list(folder.iterdir()) == []
        self.calls += 1
        (folder / "peer.onnx").write_text(f"{model.read_text()} {self.calls}")
        return Contestant("its own name", "m", folder / "peer.onnx", {"threads": threads})


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_text("model")
    return path


def test_a_peer_is_prepared_once(tmp_path: Path, model: Path) -> None:
    tool = Tool()
    first = prepared("tool", tool, model, tmp_path / "peer", 1, {"tool": "1"})
    assert prepared("tool", tool, model, tmp_path / "peer", 1, {"tool": "1"}) == first
    assert (tool.calls, first[0].name) == (1, "tool")


@pytest.mark.parametrize("change", ["model", "threads", "version", "file", "record"])
def test_a_peer_is_prepared_again_where_something_changed(tmp_path: Path, model: Path, change: str) -> None:
    tool, folder = Tool(), tmp_path / "peer"
    prepared("tool", tool, model, folder, 1, {"tool": "1"})
    if change == "model":
        model.write_text("another model")
    elif change == "file":
        (folder / "peer.onnx").unlink()
    elif change == "record":
        (folder / KEPT).write_text("{")
    threads, version = (2 if change == "threads" else 1), ("2" if change == "version" else "1")
    prepared("tool", tool, model, folder, threads, {"tool": version})
    assert tool.calls == 2


def test_a_tool_that_fails_leaves_nothing(tmp_path: Path, model: Path) -> None:
    def fail(model: Path, folder: Path, threads: int) -> Contestant:
        raise RuntimeError("not installed")

    with pytest.raises(RuntimeError, match="not installed"):
        prepared("tool", fail, model, tmp_path / "peer", 1, {})
    assert prepared("tool", Tool(), model, tmp_path / "peer", 1, {})[0].name == "tool"


@pytest.mark.parametrize(
    ("module", "options", "found"),
    [
        (ort_runner.MODULE, {"plain": True}, {"plain": True, "provider": "cuda"}),
        (ort_runner.MODULE, {"provider": "cpu"}, {"provider": "cpu"}),
        (ort_runner.MODULE, {"deployment": {"provider": "cuda"}}, {"deployment": {"provider": "cuda"}}),
        ("benchmarks.peers.pytorch_runner", {"model": "vit"}, {"model": "vit", "device": "cuda"}),
        ("benchmarks.peers.openvino_runner", {"outputs": ["y"]}, {"outputs": ["y"]}),
    ],
)
def test_contestants_run_on_the_device_of_the_table(
    module: str, options: dict[str, Any], found: dict[str, Any]
) -> None:
    contestant = Contestant("any", module, Path("model.onnx"), options)
    assert on_device(contestant, "cpu") is contestant
    assert on_device(contestant, "cuda").options == found
