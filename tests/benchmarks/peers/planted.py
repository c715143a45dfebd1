"""Small models and planted tasks for the tests of peers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.protocol.contestants import Array, Contestant

TASKS = """
import os, subprocess, sys, time
from pathlib import Path
from benchmarks.peers import MissingPeer

def succeed(model, folder, threads):
    print("noise")
    return {"model": str(model), "cwd": os.getcwd(), "threads": threads, "omp": os.environ["OMP_NUM_THREADS"]}

def crash(model, folder, threads):
    os.abort()

def fail(model, folder, threads):
    raise ValueError("no such thing")

def hang(model, folder, threads):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(folder, "new").write_text(str(child.pid))
    Path(folder, "new").rename(Path(folder, "child"))
    time.sleep(600)

def be_missing(model, folder, threads):
    raise MissingPeer("no device")
"""
"""A module with tasks for `benchmarks.peers.processes.prepare_apart`."""


def write_several(path: Path) -> Path:
    """Write a model with three inputs, of which one is int64 and one is never read, and two outputs, whose order is not
    that of their names: `z` float32 [2, 4] out of ids, and `a` float32 [3, 4]."""
    rng = np.random.default_rng(0)
    table: NDArray[np.float32] = rng.standard_normal((5, 4)).astype(np.float32)
    weight: NDArray[np.float32] = rng.standard_normal((6, 4)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Identity", ["rows"], ["copied"]),
        helper.make_node("Relu", ["copied"], ["z"]),
        helper.make_node("MatMul", ["x", "weight"], ["product"]),
        helper.make_node("Sigmoid", ["product"], ["a"]),
    ]
    graph = helper.make_graph(
        nodes,
        "several",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 6]),
            helper.make_tensor_value_info("unread", TensorProto.FLOAT, [2]),
            helper.make_tensor_value_info("ids", TensorProto.INT64, [2]),
        ],
        [
            helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4]),
            helper.make_tensor_value_info("a", TensorProto.FLOAT, [3, 4]),
        ],
        [numpy_helper.from_array(table, "table"), numpy_helper.from_array(weight, "weight")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, str(path))
    return path


def several_inputs(seed: int) -> dict[str, Array]:
    """Return inputs for `write_several`."""
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((3, 6)).astype(np.float32),
        "unread": rng.standard_normal(2).astype(np.float32),
        "ids": rng.integers(0, 5, 2),
    }


def run_original(path: Path, feeds: dict[str, Array]) -> list[Array]:
    """Run a model in ONNX Runtime without any optimisation."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    found: list[Array] = onnxruntime.InferenceSession(str(path), options).run(None, feeds)
    return found


def check_outputs(contestant: Contestant, path: Path, inputs: list[dict[str, Array]]) -> None:
    """Open a contestant and compare its outputs with the original's on each
    input, in the original's order."""
    runner = contestant.open(1)
    for feeds in inputs:
        found = [np.array(value) for value in runner.run(feeds)]
        expected = run_original(path, feeds)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert np.abs(one - other).max() <= 2e-5 * np.abs(other).max()
