"""The worker process and its client, with real faults."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from graph_rewrite.latency import Deployment, FeedSpec, Plan, WorkerStartError
from graph_rewrite.runtime import WorkerClient, WorkerFailure
from graph_rewrite.runtime.leaf_process import leaf_environment
from graph_rewrite.runtime.ort_worker.options.optimizers import TRANSFORMERS
from tests.graph_rewrite.sample_models import parsed

ROOT = Path(__file__).resolve().parents[3]
HELLO = {"kind": "hello"}


def compare(baseline: Path, candidate: Path) -> dict[str, Any]:
    deployment = Deployment().to_json()
    return {
        "kind": "compare",
        "baseline": {"path": str(baseline), "deployment": deployment},
        "candidate": {"path": str(candidate), "deployment": deployment},
        "feeds": FeedSpec().to_json(),
        "plan": Plan(min_pairs=2, max_pairs=3, budget_s=0.1).to_json(),
    }


@pytest.fixture
def client() -> Iterator[WorkerClient]:
    with WorkerClient(timeout_s=20) as client:
        yield client


@pytest.fixture
def good(tmp_path: Path, contents: dict[str, bytes]) -> Path:
    path = tmp_path / "good.onnx"
    path.write_bytes(contents["good"])
    return path


def is_running(pid: int) -> bool:
    """Tell whether a process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_worker_is_a_leaf() -> None:
    """It starts with numpy and onnxruntime alone, whatever the rest of the project imports."""
    foreign = "{'onnx', 'torch', 'gymnasium', 'graph_rewrite'}"
    code = f"import sys, ort_worker.worker, ort_worker.comparison; print(sorted({foreign} & set(sys.modules)))"
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, env=leaf_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_starts_once_and_answers(client: WorkerClient, good: Path) -> None:
    assert client.pid is None
    hello = client.request(HELLO)
    assert hello["status"] == "ok"
    assert hello["pid"] == client.pid != os.getpid()
    for _ in range(2):
        reply = client.request(compare(good, good))
        assert reply["status"] == "ok"
        ((baseline, candidate, repeats),) = reply["blocks"]
        assert len(baseline) == len(candidate) >= 2
        assert repeats >= 1
        assert min(baseline + candidate) > 0
    assert client.starts == 1


def test_a_faulty_request_is_answered(client: WorkerClient) -> None:
    assert client.request({"kind": "nonsense"})["status"] == "error"
    assert client.request({})["status"] == "error"
    assert client.request(HELLO)["status"] == "ok"
    assert client.starts == 1


def test_death_while_idle_is_nobodys_fault(client: WorkerClient, good: Path) -> None:
    client.request(HELLO)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    assert client.request(compare(good, good))["status"] == "ok"
    assert client.starts == 2


def test_segfault(client: WorkerClient, good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", "segfault:fatal")
    bad = tmp_path / "fatal.onnx"
    bad.write_bytes(good.read_bytes())
    with pytest.raises(WorkerFailure, match="crashed with SIGSEGV") as caught:
        client.request(compare(good, bad))
    assert caught.value.status == "crash"
    assert caught.value.phase.startswith("candidate")
    assert client.request(compare(good, good))["status"] == "ok"


def test_long_runs_of_one_model_are_no_hang(tmp_path: Path) -> None:
    """A model that takes longer for the fewest samples than the worker may go without progress."""
    text = "(float[2048,2048] x) => (float[2048,2048] y) { a = MatMul(x, x) b = MatMul(a, x) y = MatMul(b, x) }"
    onnx.save(parsed(text), tmp_path / "slow.onnx")
    plan = Plan(min_pairs=16, max_pairs=16, warmup=1, budget_s=0.1)
    request = {
        "kind": "time",
        "candidate": {"path": str(tmp_path / "slow.onnx"), "deployment": Deployment().to_request()},
        "feeds": FeedSpec().to_json(),
        "plan": plan.to_json(),
    }
    with WorkerClient(timeout_s=2.0) as client:
        reply = client.request(request)
    assert reply["status"] == "ok"
    assert len(reply["samples"]) == 16


def test_hang_is_killed(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", "hang:endless")
    bad = tmp_path / "endless.onnx"
    bad.write_bytes(good.read_bytes())
    with WorkerClient(timeout_s=1.5) as client:
        client.request(HELLO)
        pid = client.pid
        assert pid is not None
        with pytest.raises(WorkerFailure, match=r"no progress for 1\.5 s \(candidate: open\)") as caught:
            client.request(compare(good, bad))
        assert caught.value.status == "hang"
        assert not is_running(pid)
        assert client.request(compare(good, good))["status"] == "ok"


def test_close_ends_the_process_and_a_request_starts_another(client: WorkerClient) -> None:
    client.request(HELLO)
    pid = client.pid
    assert pid is not None
    client.close()
    client.close()
    assert not is_running(pid)
    assert client.request(HELLO)["pid"] != pid


def test_dropping_the_client_ends_the_process() -> None:
    client = WorkerClient()
    pid = client.request(HELLO)["pid"]
    del client
    assert not is_running(pid)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc to see whether a process lives")
def test_a_hung_worker_ends_with_its_parent(good: Path, tmp_path: Path) -> None:
    """The parent is killed while the worker hangs inside a request, so it reads nothing and gets no signal."""
    bad = tmp_path / "endless.onnx"
    bad.write_bytes(good.read_bytes())
    code = (
        "import sys, json; from graph_rewrite.runtime import WorkerClient; client = WorkerClient();"
        "print(client.request({'kind': 'hello'})['pid'], flush=True); client.request(json.loads(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "REWRITEGYM_WORKER_FAULT": "hang:endless"}
    command = [sys.executable, "-c", code, json.dumps(compare(good, bad))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.5)
        parent.kill()
    deadline = time.monotonic() + 10
    while is_running(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(worker)


def test_a_worker_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.exit('no luck today')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(WorkerStartError, match="does not start"):
        WorkerClient().request(HELLO)


def test_native_output_does_not_disturb(client: WorkerClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "usercustomize.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text("import os; os.write(2, b'chatter ' * 50_000)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert client.request(HELLO)["status"] == "ok"


def test_our_optimizer_names_are_those_of_this_runtime(client: WorkerClient, good: Path) -> None:
    side = {"path": str(good), "deployment": Deployment().to_json()}
    reply = client.request({"kind": "optimizers", "candidate": side})
    assert set(TRANSFORMERS) <= set(reply["registered"])
    assert "NchwcTransformer" in reply["active"]
    side["deployment"] = Deployment().with_disabled(["NchwcTransformer"]).to_json()
    reply = client.request({"kind": "optimizers", "candidate": side})
    assert "NchwcTransformer" not in reply["registered"]
