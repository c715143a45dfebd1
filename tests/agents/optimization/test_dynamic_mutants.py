"""Mutants and models with symbolic dimensions: a mutant is proved at one shape, and never goes into a model for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

from graph_rewrite.ir.graph import Graph
from tests.agents.optimization import test_mutants
from tests.agents.optimization.test_mutants import Optimize, outputs, write

agent, optimize, planted = test_mutants.agent, test_mutants.optimize, test_mutants.planted


def symbolic(path: Path) -> Path:
    made = onnx.load(write(path))
    for value in (*made.graph.input, *made.graph.output):
        value.type.tensor_type.shape.dim[0].ClearField("dim_value")
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    onnx.save(made, path)
    return path


def test_a_model_for_all_shapes_has_no_mutant(optimize: Optimize, planted: list[Graph], tmp_path: Path) -> None:
    path = symbolic(tmp_path / "m.onnx")
    made = optimize(path, mutants="search", shape=("x:2,4,8,8",))
    assert len(planted) == 1
    assert made.verified
    assert made.result.is_original
    written = made.save(tmp_path / "fast.onnx")
    assert written is not None
    assert onnx.load(written).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"


def test_a_model_of_one_shape_has_it(optimize: Optimize, planted: list[Graph], tmp_path: Path) -> None:
    path = symbolic(tmp_path / "m.onnx")
    made = optimize(path, mutants="search", shape=("x:2,4,8,8",), static=True)
    assert made.speedup > 1.5
    written = made.save(tmp_path / "fast.onnx")
    assert written is not None
    assert np.allclose(outputs(written), outputs(path), atol=1e-5)
