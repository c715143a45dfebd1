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

from graph_rewrite import load
from graph_rewrite.delivery.deployed import recorded_deployment
from graph_rewrite.delivery.ship import CheckedModel, checked_model
from graph_rewrite.latency import Deployment
from tests.graph_rewrite.replay.models import write_network

KILLS = 40


def checked_models(folder: Path) -> list[CheckedModel]:
    """Two checked models of different size and deployment; saved ones, so that writing is all that is left to do."""
    made = []
    for threads, width in ((1, 64), (2, 256)):
        path = write_network(folder / f"{width}.onnx", width=width, layers=2)
        made.append(checked_model(load(path), path, Deployment("cpu", threads), workspace=folder / "work"))
    return made


def kill_writers(folder: Path) -> None:
    """Let processes write one or the other model to the same place without end, and kill each at a random moment."""
    rng, models, output = np.random.default_rng(0), checked_models(folder), folder / "out.onnx"
    models[0].write_to(output)
    inputs = set()
    for _ in range(KILLS):
        writer, turn = os.fork(), 0
        while writer == 0:
            models[turn % 2].write_to(output)
            turn += 1
        time.sleep(float(rng.uniform(0.001, 0.03)))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        model = onnx.load(output)
        onnx.checker.check_model(model)
        inputs.add(model.graph.input[0].type.tensor_type.shape.dim[1].dim_value)
        assert recorded_deployment(output).threads in (1, 2)
    assert inputs == {64, 256}
    # The next writer is not disturbed by what the killed ones left.
    models[1].write_to(output)
    assert onnx.load(output).graph.input[0].type.tensor_type.shape.dim[1].dim_value == 256


def test_an_output_is_whole_at_any_moment(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.graph_rewrite.delivery import test_killed_writers as killed\n"
        "killed.kill_writers(Path(sys.argv[1]))"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=100, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
