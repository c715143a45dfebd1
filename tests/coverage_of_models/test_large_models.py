"""A model of more than 2 GB, with its weights in several files, is read, optimised and written in bounded memory."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

import rewritegym
from tests.coverage_of_models.planted_meter import OPTIONS, planted_gains
from tests.coverage_of_models.test_matrix import assert_same

ROWS, WIDTH, TABLES = 196_608, 1024, 3
TABLE_BYTES = 4 * ROWS * WIDTH
NEEDED_DISK = 6 << 30
MOST_MEMORY = 512 << 20
"""Bytes that the process may take beside what it maps from files: a fraction of the model."""


def large_model(folder: Path) -> Path:
    """Write a model that adds rows of three tables, each of 768 MiB in a file of its own."""
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, WIDTH])
    nodes = [helper.make_node("Gather", [f"table{i}", "ids"], [f"row{i}"]) for i in range(TABLES)]
    nodes += [
        helper.make_node("Add", ["row0", "row1"], ["sum"]), helper.make_node("Sub", ["sum", "row2"], ["difference"]),
        helper.make_node("Relu", ["difference"], ["once"]), helper.make_node("Relu", ["once"], ["y"]),
    ]  # fmt: skip
    graph = helper.make_graph(nodes, "tables", [ids], [y])
    for number in range(TABLES):
        tensor = graph.initializer.add(name=f"table{number}", data_type=TensorProto.FLOAT, dims=[ROWS, WIDTH])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": f"part{number}.data", "offset": "0", "length": str(TABLE_BYTES)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        with (folder / f"part{number}.data").open("wb") as file:
            rng = np.random.default_rng(number)
            for _ in range(0, ROWS, 4096):
                file.write(rng.random((4096, WIDTH), np.float32).data)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = folder / "large.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def own_memory() -> int:
    """Return the bytes of memory that this process has for itself; pages of files that it maps do not count."""
    status = Path("/proc/self/status").read_text()
    return 1024 * next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


@contextmanager
def watched() -> Iterator[list[int]]:
    """Yield a list to which the memory of this process is added, twenty times a second."""
    seen, end = [own_memory()], threading.Event()

    def watch() -> None:
        while not end.wait(0.05):
            seen.append(own_memory())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        end.set()
        thread.join()


@pytest.mark.slow
def test_a_model_over_two_gigabytes(tmp_path: Path) -> None:
    if not os.environ.get("REWRITEGYM_LARGE_MODEL"):
        pytest.skip("make large-model runs it")
    if shutil.disk_usage(tmp_path).free < NEEDED_DISK:
        pytest.skip(f"{tmp_path} has less than {NEEDED_DISK >> 30} GiB free")
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell a process's own memory")
    path = large_model(tmp_path)
    assert TABLES * TABLE_BYTES > 2 << 30
    with planted_gains(in_process=True), watched() as memory:
        found = rewritegym.optimize(path, threads=1, time_limit=600, **OPTIONS)
        written = found.save(tmp_path / "result.onnx")
    assert max(memory) - memory[0] < MOST_MEMORY
    assert not found.result.is_original, found.message
    saved = onnx.load(written, load_external_data=False)
    assert written.stat().st_size < 1 << 20
    assert sum(node.op_type == "Relu" for node in saved.graph.node) == 1
    assert {tensor.data_location for tensor in saved.graph.initializer} == {TensorProto.EXTERNAL}
    feeds = {"ids": np.array([0, 1, ROWS // 2, ROWS - 1])}
    original = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    results = [session.run(None, feeds) for session in (original, rewritegym.session(written))]
    assert_same(results[0], results[1], "result", 0.0)
