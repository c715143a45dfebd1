"""The command `rewritegym inspect`, and the inspection of whole models in ONNX Runtime."""

import json
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from graph_rewrite import Rewriter, all_rules, load
from graph_rewrite.inspection import inspect, inspect_model
from graph_rewrite.inspection.cli import main
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.system.deadline import OutOfTime
from tests.graph_rewrite.inspection.models import layers, model_of, tensor


@pytest.fixture
def stack(tmp_path: Path) -> Path:
    path = tmp_path / "stack.onnx"
    onnx.save(layers(4, width=64, rows=64), path)
    return path


def dynamic(folder: Path) -> Path:
    path = folder / "dynamic.onnx"
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Relu", ["r"], ["y"])]
    onnx.save(model_of(nodes, [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]), path)
    return path


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_profile_accounts_for_all_time(stack: Path) -> None:
    found = inspect_model(stack)
    assert found.profile is not None
    assert found.peaks is not None
    times = found.operator_times()
    assert sum(entry.share for entry in times) == pytest.approx(1.0)
    assert sum(entry.kernels for entry in times) == len(found.profile.kernels) > 0
    assert found.profile.ms > 0.0
    assert found.least_ms is not None
    assert 0.0 < found.least_ms <= found.profile.ms
    assert [(block.repeats, block.length) for block in found.blocks] == [(4, 3)]
    [share] = found.block_shares
    assert 0.0 < share <= 1.0


def test_rules_and_sites_are_those_of_the_rewriter(stack: Path) -> None:
    found = inspect_model(stack, profile=False)
    graph = normalise(load(stack))[0]
    sites = Rewriter(all_rules(), granularity="site", deployment=False).candidates(graph)
    assert found.rules is not None
    assert {entry.rule: entry.sites for entry in found.rules} == {
        rule: sum(candidate.rule == rule for candidate in sites) for rule in {candidate.rule for candidate in sites}
    }
    assert found.profile is None


def test_json_without_a_profile(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = printed(capsys, str(stack), "--no-profile")
    assert found["model"] == str(stack)
    assert found["file_bytes"] == stack.stat().st_size
    assert found["operators"] == {"MatMul": 4, "Add": 4, "Relu": 4, "Neg": 1, "Exp": 1}
    assert found["inputs"][0]["shape"] == [64, 64]
    assert found["blocks"][0]["repeats"] == 4
    assert found["blocks"][0]["share"] is None
    assert found["profile"] is None
    assert {entry["rule"] for entry in found["rules"]} >= {"MatMulAddToGemm"}


def test_json_with_a_profile(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profile = printed(capsys, str(stack), "--threads", "1")["profile"]
    assert (profile["provider"], profile["threads"]) == ("cpu", 1)
    assert {entry["operator"] for entry in profile["operators"]} >= {"Neg", "Exp"}
    assert profile["peaks"]["gflops"] > 0.0


def test_table_names_the_block_and_the_verdict(stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(stack), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    for part in ("ai.onnx 20", "Repeated blocks", "/layer0/matmul", "MatMulAddToGemm", "By the roofline"):
        assert part in text


def test_open_shapes_are_told_and_can_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dynamic(tmp_path)
    assert main([str(path), "--no-profile"]) == 0
    assert "Rules and times depend on shapes, which the file leaves open: add --shape x:..." in capsys.readouterr().out
    found = printed(capsys, str(path), "--shape", "x:2,4", "--no-profile")
    assert found["inputs"][0]["shape"] == ["batch", 4]
    assert found["shapes"] == {"x": [2, 4]}
    assert found["gflop"] == pytest.approx(2 * 8 / 1e9)
    assert found["rules"] is not None


def test_usual_shapes_are_taken_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = dynamic(tmp_path)
    assert main([str(path), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "x: float [batch, 4]" in text
    assert "Work, rules and times are for x:1,4; --shape sets others." in text
    assert "Time by operator" in text


def test_wrong_shape_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(dynamic(tmp_path)), "--shape", "x:2,5"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1


def test_model_that_does_not_run_is_described_all_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "custom.onnx"
    node = helper.make_node("Magic", ["x"], ["y"], "trick", domain="com.acme")
    onnx.save(model_of([node], [tensor("x", 4)], [tensor("y", 4)], opsets={"com.acme": 1}), path)
    found = printed(capsys, str(path))
    assert found["operators"] == {"com.acme::Magic": 1}
    assert found["profile"] is None
    assert found["profile_error"].startswith("ONNX Runtime cannot run the model: ")
    assert main([str(path)]) == 0
    assert "No times: ONNX Runtime cannot run the model" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "no such file"), (b"", "the file is empty"), (b"no model at all", "not an ONNX model")],
)
def test_bad_files_are_one_line(
    content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    assert main([str(path)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"error: {path}: {message}")
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("threads", ["0", "99999"])
def test_threads_beyond_the_machine_are_refused(threads: str, stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(stack), "--threads", threads]) == 2
    reason = "threads must be at least 1" if threads == "0" else "this process may use"
    assert f"--threads {threads}: {reason}" in capsys.readouterr().err


class TestTimeLimit:
    """A part of the inspection for which no time is left is named, and the rest is told."""

    def test_rules_and_times(
        self, stack: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def too_long(*_: object) -> None:
            raise OutOfTime("the time limit is reached")

        monkeypatch.setattr(inspect, "rule_sites", too_long)
        monkeypatch.setattr(inspect, "profile_model", too_long)
        found = printed(capsys, str(stack))
        assert found["missing"] == ["rules", "profile"]
        assert (found["rules"], found["profile"]) == (None, None)
        assert found["nodes"] == 14
        assert [block["repeats"] for block in found["blocks"]] == [4]
        assert main([str(stack)]) == 0
        words = " ".join(capsys.readouterr().out.split())
        assert "Missing, as the time limit was reached: the rules that match, the time by operator." in words
        assert "--shape" not in words

    def test_the_speed_of_the_machine(self, stack: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def too_long(*_: object) -> None:
            raise OutOfTime("the time limit is reached")

        monkeypatch.setattr(inspect, "measure_peaks", too_long)
        found = inspect_model(stack)
        assert found.missing == ("peaks",)
        assert found.profile is not None
        assert found.least_ms is None

    def test_a_limit_that_ends_before_the_model_is_read(self, stack: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main([str(stack), "--time-limit", "0.000001"]) == 2
        assert "--time-limit 0.000001 is over before the model is read: give more time" in capsys.readouterr().err
