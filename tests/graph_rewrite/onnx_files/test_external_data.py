"""Weights in files beside the model: what reading them takes of the machine."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from graph_rewrite import load
from tests.graph_rewrite.sample_models import parsed, weights

MANY = 200
LIMITED = """
import resource, sys
from graph_rewrite import load
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
graph = load(sys.argv[1])
print(sum(float(constant.numpy().sum()) for constant in graph.constants.values()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of descriptors are POSIX's")
def test_many_tensors_of_one_file_need_few_descriptors(tmp_path: Path) -> None:
    names = ", ".join(f"w{number}" for number in range(MANY))
    tensors = [weights(f"w{number}", 2, 3, seed=number) for number in range(MANY)]
    model = parsed(f"(float[2,3] x) => (float[2,3] y) {{ y = Sum(x, {names}) }}", *tensors)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path / "m.onnx")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = sum(float(numpy_helper.to_array(tensor).sum()) for tensor in tensors)
    assert float(done.stdout) == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(
    "kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT4]
)
def test_elements_of_every_width_are_read_where_they_lie(tmp_path: Path, kind: int) -> None:
    values = np.arange(6).reshape(2, 3) % 2
    model = parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")
    model.graph.initializer.append(onnx.helper.make_tensor("w", kind, (2, 3), values.reshape(-1).tolist()))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(model.graph.initializer[0]), "w"))
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty"))
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    graph = load(tmp_path / "m.onnx")
    found = {graph.names[value]: constant.numpy() for value, constant in graph.constants.items()}
    assert found["w"].astype(np.int64).tolist() == values.tolist()
    assert found["empty"].shape == (0, 3)
