"""Output files when their writer is killed: the file of before or the whole new one, never a part."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from graph_rewrite import load
from graph_rewrite.delivery.deployed import recorded_deployment, sidecar_of
from graph_rewrite.delivery.ship import CheckedModel, checked_model, kept_original
from graph_rewrite.latency import Deployment
from tests.graph_rewrite.replay.models import write_network

KILLS = 40
WIDTHS = (64, 256)


def checked_models(folder: Path) -> list[CheckedModel]:
    """Two checked models of different size and deployment; saved ones, so that writing is all that is left to do."""
    made = []
    for threads, width in zip((1, 2), WIDTHS, strict=True):
        path = write_network(folder / f"{width}.onnx", width=width, layers=2)
        made.append(checked_model(load(path), path, Deployment("cpu", threads), workspace=folder / "work"))
    return made


def kill_writers(folder: Path) -> None:
    """Let processes write one or the other model in turn to the same place, each without end, and kill each: two at
    random moments, as likely as not before they have written once, and then two at random moments after that."""
    rng, models, output = np.random.default_rng(0), checked_models(folder), folder / "out.onnx"
    started = time.monotonic()
    for model in models:
        model.write_to(output)
    write_s = 0.5 * (time.monotonic() - started)
    for turn in range(KILLS):
        has_written, written = os.pipe()
        writer = os.fork()
        while writer == 0:
            models[turn % 2].write_to(output)
            os.write(written, b".")
        waits = turn % 4 >= 2
        if waits:
            os.read(has_written, 1)
        time.sleep(float(rng.uniform(0.0, 2.0 * write_s)))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        os.close(has_written)
        os.close(written)
        model = onnx.load(output)
        onnx.checker.check_model(model)
        found = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
        assert found in ((WIDTHS[turn % 2],) if waits else WIDTHS)
        assert recorded_deployment(output).threads in (1, 2)
    # The next writer is not disturbed by what the killed ones left.
    models[0].write_to(output)
    assert onnx.load(output).graph.input[0].type.tensor_type.shape.dim[1].dim_value == WIDTHS[0]


def test_an_output_is_whole_at_any_moment(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.graph_rewrite.delivery import test_killed_writers as killed\n"
        "killed.kill_writers(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kept", [False, True])
def test_a_model_is_never_there_without_its_deployment(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_network(tmp_path / "net.onnx", width=8, layers=1)
    deployment = Deployment("cpu", 2)
    checked = (
        kept_original(path, deployment)
        if kept
        else checked_model(load(path), path, deployment, workspace=tmp_path / "work")
    )
    replaced = os.replace

    def replace(source: Path, target: Path) -> None:
        replaced(source, target)
        if (tmp_path / "out.onnx").exists():
            assert recorded_deployment(tmp_path / "out.onnx").threads == 2
            assert sidecar_of(tmp_path / "out.onnx").exists()

    monkeypatch.setattr(os, "replace", replace)
    checked.write_to(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").exists()
