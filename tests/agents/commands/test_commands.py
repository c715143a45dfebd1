"""train.py and evaluate.py as people run them, on a tower of a few operators measured in ONNX Runtime."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest

import rewritegym
from agents.ppo.checkpoint import load_checkpoint
from graph_rewrite import save
from graph_rewrite.latency.device import device_name
from graph_rewrite.onnx_files.assembly import model as assembled
from tests.envs.fakes import write_tower

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("ppo.n_steps=16", "search.measurements=6", "training.seconds=60", "training.checkpoint_freq=16",
         "encoder.hidden=16", "encoder.layers=1", "env.horizon=4")  # fmt: skip
RESULT_KEYS = {
    "agent", "speedup", "speedup_ci95", "latency_ms", "seconds", "measurements", "verified", "max_rel_error",
    "rewrites", "deployment", "onnx_path",
}  # fmt: skip


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def command(script: str, *arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / script), *arguments]


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def run(tmp_path: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(script, *arguments), cwd=tmp_path, capture_output=True, text=True, timeout=300)


def only_run(folder: Path) -> Path:
    runs = list(folder.iterdir())
    assert len(runs) == 1
    return runs[0]


def test_train_writes_a_checked_model_a_checkpoint_and_a_result(tower: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "train.py", "--model", str(tower), "--total-timesteps", "32", *settings())
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path / "runs")
    assert {p.name for p in folder.iterdir()} >= {
        "config.yaml", "checkpoint", "optimized.onnx", "optimized.onnx.deployment.json", "result.json", "tensorboard",
        "learning-curve.png",
    }  # fmt: skip
    entry = json.loads((folder / "result.json").read_text())["results"][0]
    assert entry.keys() >= RESULT_KEYS
    assert entry["verified"]
    assert entry["speedup"] == 1.0 or entry["speedup_ci95"][0] > 1.0
    assert list((folder / "tensorboard").iterdir())
    feeds = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    expected = ort.InferenceSession(str(tower), providers=["CPUExecutionProvider"]).run(None, feeds)
    found = rewritegym.session(folder / "optimized.onnx").run(None, feeds)
    assert np.allclose(expected[0], found[0], rtol=1e-4, atol=1e-5)


def test_training_on_a_model_fine_tunes_the_universal_policy(tmp_path: Path) -> None:
    model, short = write_convolutions(tmp_path / "convolutions.onnx"), [
        "training.seconds=30", "fine_tuning.search_seconds=8", "fine_tuning.epochs=1", "fine_tuning.timesteps=0",
        "fine_tuning.rehearsed=2", "search.seconds=8",
    ]  # fmt: skip
    given = [word for setting in short for word in ("--set", setting)]
    done = run(tmp_path, "train.py", "--model", str(model), *given)
    assert done.returncode == 0, done.stderr
    folder = only_run(tmp_path / "runs")
    assert {p.name for p in folder.iterdir()} >= {"experience.sqlite3", "optimized.onnx", "learning-curve.png"}
    found = load_checkpoint(folder).description
    assert found.trained_in == "windows"
    assert f"in {model}, after " in found.trained_on
    result = json.loads((folder / "result.json").read_text())
    training, (entry,) = result["training"], result["results"]
    assert training["rounds"] >= 1
    assert training["chains"] >= training["curve"][0][0] > 0
    assert training["begun_with"].endswith("universal")
    assert entry["agent"] == "ppo"
    assert entry["verified"]
    again = run(tmp_path, "train.py", "--model", str(model), "--runs", "again", "--resume", str(folder), *given)
    assert again.returncode == 0, again.stderr
    resumed = json.loads((only_run(tmp_path / "again") / "result.json").read_text())["training"]
    assert resumed["chains"] >= training["chains"]
    assert resumed["curve"][: len(training["curve"])] == training["curve"]


def write_convolutions(path: Path) -> Path:
    """Two convolutions of 32 channels with what lies between them."""
    rng = np.random.default_rng(0)
    weights = {name: 0.1 * rng.standard_normal((32, 32, 3, 3)).astype(np.float32) for name in "uv"}
    graph = assembled(
        """(float[1,32,28,28] x) => (y) {
            a = Conv<pads=[1,1,1,1]>(x, u)  b = Relu(a)  c = Conv<pads=[1,1,1,1]>(b, v)  y = Add(c, b)
        }""",
        **weights,
    )
    save(graph, path)
    return path


def wait_for_checkpoint(folder: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not list(folder.glob("*/checkpoint/policy.json")):
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "no checkpoint was written"
        time.sleep(0.1)


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_or_killed_training_goes_on(tower: Path, tmp_path: Path, end: signal.Signals) -> None:
    arguments = ("--model", str(tower), "--runs", "first", *settings())
    process = subprocess.Popen(
        command("train.py", *arguments, "--total-timesteps", "100000"), cwd=tmp_path, stderr=subprocess.PIPE, text=True
    )
    wait_for_checkpoint(tmp_path / "first", process)
    process.send_signal(end)
    _, stderr = process.communicate(timeout=60)
    stopped = only_run(tmp_path / "first")
    if end == signal.SIGINT:
        assert process.returncode == 130, stderr
        (hint,) = (line for line in stderr.splitlines() if "Go on with:" in line)
        assert "python train.py" in hint
        assert "--resume" in hint
        assert "--set env.horizon=4" in hint
    before = load_checkpoint(stopped / "checkpoint").description.timesteps
    assert before >= 16
    more = str(before + 16)
    done = run(
        tmp_path, "train.py", "--model", str(tower), "--runs", "second", "--resume", str(stopped),
        "--total-timesteps", more, *settings(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert load_checkpoint(only_run(tmp_path / "second") / "checkpoint").description.timesteps >= int(more)


def test_evaluate_prints_one_json_object_and_nothing_else(tower: Path, tmp_path: Path) -> None:
    done = run(
        tmp_path, "evaluate.py", "--model", str(tower), "--agents", "greedy", "random", "--measurements", "5", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert {path.name for path in only_run(tmp_path / "runs").glob("*.png")} >= {"speedups.png", "latency.png"}
    summary = json.loads(done.stdout)
    assert summary["budget"] == {"measurements": 5, "seconds": 60.0, "applications": None}
    assert summary.keys() >= {"model", "provider", "environment", "baseline_ms", "results"}
    assert summary["environment"]["device"] == device_name("cpu")
    assert [entry["agent"] for entry in summary["results"]] == ["greedy", "random"]
    for entry in summary["results"]:
        assert entry.keys() >= RESULT_KEYS
        assert entry["measurements"] <= 5
        assert Path(tmp_path, entry["onnx_path"]).is_file()
        assert entry["cost_model_speedup"] > 0.0
        assert entry["applications"] >= entry["measurements"] - 1


def test_searches_by_cost_model_and_variants_of_an_agent_are_compared_at_a_budget_of_rewrites(
    tower: Path, tmp_path: Path
) -> None:
    done = run(
        tmp_path, "evaluate.py", "--model", str(tower),
        "--agents", "taso", "greedy", "greedy:beam=2,lookahead=1", "mcts",
        "--measurements", "4", "--applications", "12", "--seconds", "inf", "--no-plots", "--no-cost-model",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "unknown" in done.stdout  # the cost model's column
    folder = only_run(tmp_path / "runs")
    found = json.loads((folder / "result.json").read_text())
    assert found["budget"] == {"measurements": 4, "seconds": None, "applications": 12}
    assert [entry["agent"] for entry in found["results"]] == ["taso", "greedy", "greedy:beam=2,lookahead=1", "mcts"]
    assert all(entry["applications"] <= 12 and entry["measurements"] <= 4 for entry in found["results"])
    assert len({entry["onnx_path"] for entry in found["results"]}) == 4
    assert not list(folder.glob("*.png"))


def test_two_environments_in_processes_of_their_own(tower: Path, tmp_path: Path) -> None:
    done = run(
        tmp_path, "train.py", "--model", str(tower), "--n-envs", "2", "--total-timesteps", "32", "--fixed-deployment",
        *settings("search.measurements=3"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not load_checkpoint(only_run(tmp_path / "runs") / "checkpoint").description.deployment_choices


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("evaluate.py", "--model", "nosuch.onnx"), "nosuch.onnx"),
        (("evaluate.py", "--model", "tower.onnx", "--agents", "gready"), "there is no agent 'gready'"),
        (("evaluate.py", "--model", "tower.onnx", "--agents", "greedy", "greedy"), "names greedy twice"),
        (("evaluate.py", "--model", "tower.onnx", "--agents", "greedy:beem=2"), "no option beem"),
        (("evaluate.py", "--model", "tower.onnx", "--applications", "-1"), "applications must be 0 or more"),
        (("evaluate.py", "--model", "tower.onnx", "--agents", "ppo", "--checkpoint", "nowhere"), "no checkpoint"),
        (("evaluate.py", "--model", "tower.onnx", "--set", "ppo.n_step=3"), "did you mean ppo.n_steps"),
        (("evaluate.py", "--model", "tower.onnx", "--shape", "x=1"), "--shape"),
        (("train.py", "--model", "tower.onnx", "--resume", "nowhere"), "no checkpoint"),
        (("train.py", "--model", "bertt"), "bertt"),
        (("train.py", "--model", "tower.onnx", "--n-envs", "0"), "--n-envs must be 1 or more"),
        (("train.py", "--modle", "bert"), "modle"),
    ],
)
def test_wrong_arguments_give_one_clear_line(
    tower: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(tmp_path, *arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_truncated_model_file_is_named(tower: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(tower.read_bytes()[:-200])
    done = run(tmp_path, "evaluate.py", "--model", str(broken))
    assert done.returncode == 2
    assert "broken.onnx" in done.stderr
    assert "Traceback" not in done.stderr


def test_reinforce_example_learns_on_the_environment(tower: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/reinforce.py"), "--model", str(tower), "--episodes", "3"],
        cwd=tmp_path, capture_output=True, text=True, timeout=300, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("episode") == 3
