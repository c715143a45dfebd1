"""optimize.py as people run it: on a tower of a few operators, measured in ONNX Runtime."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rewritegym
from tests.envs.fakes import write_tower

ROOT = Path(__file__).resolve().parents[3]
KEYS = {
    "speedup", "speedup_ci95", "baseline_ms", "latency_ms", "verified", "max_rel_error", "rewrites", "deployment",
    "seconds", "measurements", "onnx_path", "dynamic",
}  # fmt: skip
QUICK = ("--threads", "1", "--time-limit", "8s", "--agent", "greedy")


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, str(ROOT / "optimize.py"), *map(str, arguments)]


def run(folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=folder, capture_output=True, text=True, timeout=300)


def outputs(path: Path) -> np.ndarray:
    feeds = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    return np.asarray(rewritegym.session(path).run(None, feeds)[0])


def test_writes_a_checked_model_beside_the_input(tower: Path, tmp_path: Path) -> None:
    done = run(tmp_path, tower.name, *QUICK, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.keys() >= KEYS
    assert found["verified"]
    assert found["speedup"] >= 1.0
    assert all(rewrite.keys() == {"rule", "where", "sites", "saved_ms"} for rewrite in found["rewrites"])
    assert found["onnx_path"] == "tower.optimized.onnx"
    expected = onnx.reference.ReferenceEvaluator(str(tower)).run(
        None, {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    )
    assert np.allclose(outputs(tmp_path / "tower.optimized.onnx"), expected[0], rtol=1e-4, atol=1e-5)
    assert found["deployment"]["threads"] == 1


def test_the_code_that_it_prints_opens_the_model_in_onnx_runtime(tower: Path, tmp_path: Path) -> None:
    done = run(tmp_path, tower.name, *QUICK)
    assert done.returncode == 0, done.stderr
    code = done.stdout[done.stdout.index("import onnxruntime as ort") :] + "print(session.get_providers())"
    plain = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert plain.stdout.strip() == "['CPUExecutionProvider']", plain.stderr


def test_a_dry_run_writes_nothing_and_tables_name_the_rewrites(tower: Path, tmp_path: Path) -> None:
    done = run(tmp_path, tower.name, *QUICK, "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "no file was written" in done.stdout
    assert [path.name for path in tmp_path.glob("*.onnx")] == [tower.name]


def test_where_nothing_is_faster_the_original_is_copied_bit_by_bit(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "one", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, tmp_path / "one.onnx")
    done = run(tmp_path, "one.onnx", "out.onnx", *QUICK, "--shape", "x:2,4", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["speedup"] == 1.0
    assert (tmp_path / "out.onnx").read_bytes() == (tmp_path / "one.onnx").read_bytes()
    assert rewritegym.session(tmp_path / "out.onnx").run(None, {"x": np.ones((7, 4), np.float32)})[0].shape == (7, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.onnx",), "missing.onnx: cannot be opened"),
        (("tower.onnx", "tower.onnx"), "is the input"),
        (("tower.onnx", "nowhere/out.onnx"), "there is no folder nowhere"),
        (("tower.onnx", "taken.onnx"), "taken.onnx exists"),
        (("tower.onnx", "--time-limit", "soon"), "--time-limit 'soon' is no time"),
        (("tower.onnx", "--threads", "99999"), "this process may use"),
        (("tower.onnx", "--threads", "0"), "threads must be at least 1"),
        (("tower.onnx", "--seed", "-1"), "--seed -1: seeds are from 0"),
        (("tower.onnx", "--agent", "magic"), "there is no agent 'magic'"),
        (("taken.onnx",), "taken.onnx"),
    ],
)
def test_mistakes_are_one_line_and_leave_files_alone(
    tower: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    (tmp_path / "taken.onnx").write_bytes(b"of somebody else")
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert (tmp_path / "taken.onnx").read_bytes() == b"of somebody else"
    assert {path.name for path in tmp_path.iterdir()} == {tower.name, "taken.onnx"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_search_and_its_best_result_is_written(
    tower: Path, tmp_path: Path, number: signal.Signals
) -> None:
    arguments = command(tower.name, "--threads", "1", "--time-limit", "10m", "--agent", "random", "--json")
    process = subprocess.Popen(
        arguments, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()  # the headline: the search begins
    assert "tower.onnx on" in line, line
    os.kill(process.pid, number)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "ending the search" in errors
    assert json.loads(output)["verified"]
    assert outputs(tmp_path / "tower.optimized.onnx").shape == (16, 16)
