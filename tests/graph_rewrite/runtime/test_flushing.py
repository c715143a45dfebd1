"""Sessions without denormal numbers: in all their threads, whatever was opened before, and nowhere else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.runtime import Deployment, can_flush, open_session
from graph_rewrite.runtime.ort_worker import deployment as deployment_module
from graph_rewrite.runtime.ort_worker.runtimes import onnx_runtime
from graph_rewrite.runtime.ort_worker.sessions.flushing import FlushingSession, flushed_denormals

FLUSHING = Deployment().with_settings({"set_denormal_as_zero": True})
TINY = np.full(1 << 16, 1e-39, np.float32)
needs_flushing = pytest.mark.skipif(not can_flush(), reason="this machine cannot set single threads")

DOUBLE = "g (float[65536] x) => (float[65536] y) { y = Add(x, x) }"
RESTORED = """g (float[65536] x) => (float[65536] y) {
    small = Constant<value = float {1e-40}>() large = Constant<value = float {1e38}>()
    a = Mul(x, small) y = Mul(a, large)
}"""
HARMLESS = """g (float[65536] x) => (float[65536] y) {
    small = Constant<value = float {1e-40}>() a = Mul(x, small) y = Add(a, x)
}"""


def write(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 18]> {text}'), path)
    return path


@needs_flushing
def test_a_thread_is_as_before_afterwards() -> None:
    with flushed_denormals():
        assert not (TINY + TINY).any()
    assert (TINY + TINY).all()
    with pytest.raises(ZeroDivisionError), flushed_denormals():
        _ = 1 // 0
    assert (TINY + TINY).all()
    with flushed_denormals():
        with flushed_denormals():
            pass
        assert not (TINY + TINY).any()
    assert (TINY + TINY).all()


# A process of its own, since what counts is which session comes first.
PROGRAM = """
import json, sys
import numpy as np
from graph_rewrite.runtime import Deployment, open_session
path, order, threads = sys.argv[1], sys.argv[2], int(sys.argv[3])
plain = Deployment(threads=threads)
opened = {}
for name in order.split(","):
    changes = {"set_denormal_as_zero": True} if name == "flushing" else {}
    opened[name] = open_session(path, plain.with_settings(changes))
tiny, found = np.full(1 << 16, 1e-39, np.float32), {}
for name in ("flushing", "plain", "flushing", "numpy", "plain"):
    result = tiny + tiny if name == "numpy" else opened[name].run(None, {"x": tiny})[0]
    found.setdefault(name, []).append(float((result == 0).mean()))
print(json.dumps(found))
"""


@needs_flushing
@pytest.mark.parametrize("order", ["flushing,plain", "plain,flushing"])
@pytest.mark.parametrize("threads", [1, 3])
def test_only_its_own_runs_are_without_denormals(tmp_path: Path, order: str, threads: int) -> None:
    path = write(tmp_path, DOUBLE)
    command = [sys.executable, "-c", PROGRAM, str(path), order, str(threads)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(printed) == {"flushing": [1.0, 1.0], "plain": [0.0, 0.0], "numpy": [0.0]}


@needs_flushing
def test_every_kind_of_run(tmp_path: Path) -> None:
    session = open_session(write(tmp_path, DOUBLE), FLUSHING)
    assert isinstance(session, FlushingSession)
    value = ort.OrtValue.ortvalue_from_numpy(TINY)
    assert not session.run(["y"], {"x": TINY})[0].any()
    assert not session.run_with_ort_values(["y"], {"x": value})[0].numpy().any()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    assert not binding.get_outputs()[0].numpy().any()


@needs_flushing
def test_together_with_cuda_graphs(tmp_path: Path) -> None:
    both = Deployment("cuda").with_settings({"set_denormal_as_zero": True, "enable_cuda_graph": True})
    kind = onnx_runtime._session_class(both.settings)
    options = both.session_options()
    session = kind(str(write(tmp_path, DOUBLE)), options, providers=["CPUExecutionProvider"], device="cpu")
    for size in (1.0, 2.0, 3.0):
        mixed = np.where(np.arange(TINY.size) % 2, TINY, np.float32(size))
        np.testing.assert_array_equal(
            session.run(None, {"x": mixed})[0], np.where(np.arange(TINY.size) % 2, np.float32(0.0), 2 * size)
        )
    assert (TINY + TINY).all()


@needs_flushing
def test_a_model_that_needs_denormals_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, RESTORED)
    assert equivalent(path, path, Deployment()).ok
    found = equivalent(path, path, FLUSHING)
    assert not found.ok
    assert "y" in found.message


@needs_flushing
def test_a_model_that_does_not_need_them_is_equal(tmp_path: Path) -> None:
    path = write(tmp_path, HARMLESS)
    assert equivalent(path, path, FLUSHING).ok


def test_elsewhere_nothing_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime alone would set the calling thread for ever if the session were the first of its process."""
    for module in (deployment_module, onnx_runtime):
        monkeypatch.setattr(module, "can_flush", lambda: False)
    session = open_session(write(tmp_path, DOUBLE), FLUSHING)
    assert type(session) is ort.InferenceSession
    with pytest.raises(RuntimeError):
        session.get_session_options().get_session_config_entry("session.set_denormal_as_zero")
    assert session.run(None, {"x": TINY})[0].all()
