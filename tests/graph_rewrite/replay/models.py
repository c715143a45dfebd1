"""Models of one architecture: other weights, names and sizes, and the same rewrites."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rewriting.enumerator import Granularity
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules import all_rules
from tests.agents.toys import RULES


class ScaleIntoMatMul(Rule):
    """MatMul(x, w) * s = MatMul(x, w * s)"""

    def source(self, op, x, w, s):  # type: ignore[no-untyped-def]
        return op.Mul(op.MatMul(x, w), s)

    def check(self, m, x, w, s):  # type: ignore[no-untyped-def]
        if not (w.is_const and s.is_const):
            return Refusal("weight or factor is no constant")
        return None if s.type.size == 1 and float(s.constant.numpy()) > 0 else Refusal("the factor is not positive")

    def target(self, op, m, x, w, s):  # type: ignore[no-untyped-def]
        return op.MatMul(x, op.Mul(w, s))


def write_network(
    path: Path,
    *,
    seed: int = 0,
    layers: int = 3,
    width: int = 4,
    batch: int = 2,
    classes: int = 3,
    prefix: str = "",
    factor: float = 2.0,
    activation: str = "Relu",
) -> Path:
    """Equal blocks (MatMul, Mul by a factor, two equal branches with Relu, Add, Transposes that cancel), and a head."""
    rng, nodes, weights, x = np.random.default_rng(seed), [], [], f"{prefix}x"

    def add(op: str, inputs: list[str], output: str, **attrs: object) -> str:
        nodes.append(helper.make_node(op, inputs, [prefix + output], f"{prefix}{op}_{output}", **attrs))
        return prefix + output

    def weight(name: str, *shape: int) -> str:
        weights.append(numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), prefix + name))
        return prefix + name

    weights.append(numpy_helper.from_array(np.float32(factor), f"{prefix}factor"))
    for i in range(layers):
        y = add("Mul", [add("MatMul", [x, weight(f"w{i}", width, width)], f"m{i}"), f"{prefix}factor"], f"s{i}")
        branches = [
            add(activation, [add("MatMul", [y, weight(f"w{i}{side}", width, width)], f"b{i}{side}")], f"r{i}{side}")
            for side in "pq"
        ]
        y = add("Add", branches, f"a{i}")
        x = add("Transpose", [add("Transpose", [y], f"t{i}", perm=[1, 0])], f"u{i}", perm=[1, 0])
    x = add("MatMul", [x, weight("head", width, classes)], "logits")
    graph = helper.make_graph(
        nodes, "network", [helper.make_tensor_value_info(f"{prefix}x", TensorProto.FLOAT, [batch, width])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, classes])], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def network(folder: Path, **settings: object) -> Graph:
    """The network, loaded and normalised."""
    return normalise(load(write_network(folder / "network.onnx", **settings)))[0]  # type: ignore[arg-type]


def rewriter(granularity: Granularity = "both") -> Rewriter:
    """A few rules: four forms of Relu, cancelling Transposes, and a factor that goes into a weight."""
    cancelling = [rule for rule in all_rules() if rule.name in ("ComposeTransposes", "MergeMatMuls")]
    return Rewriter([ScaleIntoMatMul(), *RULES, *cancelling], granularity, deployment=True)
