"""Small models and a meter that needs no runtime: what the environment is tested with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from envs import Problem
from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Deployment, Effort, Latency, Status
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.task.models import Model

WEIGHTS = {"MatMul": 5.0, "Gemm": 5.0, "FusedMatMul": 5.0, "Transpose": 2.0, "Concat": 0.5, "Split": 0.5}


@dataclass
class OperatorCountMeter:
    """Latency in milliseconds is a weighted number of operators; graphs with an operator of `failing` fail."""

    baseline: Graph
    failing: Mapping[str, Status] = field(default_factory=dict)
    measured: list[str] = field(default_factory=list)
    """Hash of every graph that was measured, in order."""

    @property
    def measurements(self) -> int:
        return len(self.measured)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        for node in graph.nodes.values():
            if node.op in self.failing:
                return Latency.failed(self.failing[node.op], f"{node.op} fails")
        ms, baseline_ms = cost(graph), cost(self.baseline)
        speedup = baseline_ms / ms
        return Latency(ms, speedup, (speedup, speedup), 1, baseline_ms)

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        pass


def cost(graph: Graph) -> float:
    """Milliseconds that `OperatorCountMeter` finds."""
    return 1.0 + sum(WEIGHTS.get(node.op, 1.0) for node in graph.nodes.values())


def count_operators(model: Model, deployment: Deployment, workspace: Path) -> OperatorCountMeter:
    """A `meter` argument for environments."""
    return OperatorCountMeter(model.original)


def write_tower(path: Path, layers: int = 3, width: int = 4) -> Path:
    """Equal blocks with weights of their own: MatMul, Add, Relu, two Transposes that cancel, Identity."""
    rng = np.random.default_rng(layers)
    nodes, weights, x = [], [], "x"
    for i in range(layers):
        weights.append(numpy_helper.from_array(rng.standard_normal((width, width)).astype(np.float32), f"w{i}"))
        weights.append(numpy_helper.from_array(rng.standard_normal(width).astype(np.float32), f"b{i}"))
        nodes += [
            helper.make_node("MatMul", [x, f"w{i}"], [f"m{i}"], f"matmul{i}"),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"add{i}"),
            helper.make_node("Relu", [f"a{i}"], [f"r{i}"], f"relu{i}"),
            helper.make_node("Transpose", [f"r{i}"], [f"s{i}"], f"there{i}", perm=[1, 0]),
            helper.make_node("Transpose", [f"s{i}"], [f"t{i}"], f"back{i}", perm=[1, 0]),
            helper.make_node("Identity", [f"t{i}"], [f"y{i}"], f"identity{i}"),
        ]
        x = f"y{i}"
    return _write(path, nodes, weights, (width, width), x)


def tower_graph(folder: Path, layers: int) -> Graph:
    """The tower, written to a folder, loaded and normalised."""
    return normalise(load(write_tower(folder / "tower.onnx", layers)))[0]


def write_parallel(path: Path) -> Path:
    """Three equal products of one operand, each with a weight of its own, and their sum."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((4, 4)).astype(np.float32), f"w{i}") for i in range(3)]
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"], f"matmul{i}") for i in range(3)]
    nodes.append(helper.make_node("Sum", ["m0", "m1", "m2"], ["y"], "sum"))
    return _write(path, nodes, weights, (4, 4), "y")


def write_relu(path: Path) -> Path:
    """One Identity before one Relu: after at most a few rewrites nothing is left to do."""
    nodes = [helper.make_node("Identity", ["x"], ["i"], "identity"), helper.make_node("Relu", ["i"], ["y"], "relu")]
    return _write(path, nodes, [], (2, 2), "y")


def _write(
    path: Path, nodes: list[onnx.NodeProto], weights: list[onnx.TensorProto], shape: tuple[int, ...], output: str
) -> Path:
    graph = helper.make_graph(
        nodes, "model", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), str(path))
    return path


def problem_of(proto: onnx.ModelProto, **options: object) -> Problem:
    """A problem on a model that is in no file, with all rules and the operator-count meter."""
    original = load(proto)
    graph, report = normalise(original)
    model = Model("test", Path("nowhere.onnx"), original, graph, report)
    return Problem(model, Rewriter(**options), OperatorCountMeter(original), Deployment(), Path("nowhere"))  # type: ignore[arg-type]
