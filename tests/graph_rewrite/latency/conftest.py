"""Small measurable models, and meters whose lock is not the machine's: these tests check behaviour, not speed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite.latency import OrtMeter, Plan
from graph_rewrite.latency.models import noise_model

QUICK = Plan(min_pairs=2, max_pairs=4, budget_s=0.1)
QUICK_FULL = Plan(instances=3, min_instances=2, min_pairs=2, max_pairs=3, budget_s=0.2)


@dataclass(frozen=True)
class Model:
    """A model under a name that serves as its hash; `layers` convolutions unless `content` says otherwise."""

    hash: str
    layers: int = 1
    disabled_optimizers: frozenset[str] = frozenset()
    content: bytes | None = None


def convolutions(layers: int) -> bytes:
    return noise_model(channels=16, image=16, layers=layers).SerializeToString()


def materialize(model: Any, folder: Path) -> Path:
    path = folder / f"{model.hash}.onnx"
    path.write_bytes(convolutions(model.layers) if model.content is None else model.content)
    return path


def huge_intermediate() -> bytes:
    """A model with the inputs of `convolutions` that wants 40 GB for a tensor in between, at run time only."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [100_000, 100_000])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Expand", ["s", "shape"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("ReduceMax", ["r"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "huge", [x], [y], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def foreign_input() -> bytes:
    """A valid model whose input the baseline does not have."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("z", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["z"], ["y"])], "foreign", types[:1], types[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def unknown_operator() -> bytes:
    """A model that ONNX Runtime refuses to open."""
    model = onnx.ModelProto.FromString(convolutions(1))
    model.graph.node[1].op_type = "NoSuchOperator"
    return model.SerializeToString()


@pytest.fixture
def model() -> type[Model]:
    return Model


@pytest.fixture
def contents() -> dict[str, bytes]:
    """Models that must fail, and how."""
    return {
        "huge": huge_intermediate(),
        "foreign": foreign_input(),
        "unknown": unknown_operator(),
        "truncated": convolutions(2)[:-200],
        "empty": b"",
        "good": convolutions(1),
    }


@pytest.fixture
def lock_path(tmp_path: Path) -> Path:
    return tmp_path / "measure.lock"


@pytest.fixture
def make_meter(tmp_path: Path, lock_path: Path) -> Iterator[Callable[..., OrtMeter]]:
    """Makes meters with quick plans against a model of two convolutions, and closes them."""
    made: list[OrtMeter] = []

    def make(baseline: Model = Model("baseline", 2), writer: Any = materialize, **options: Any) -> OrtMeter:
        options = {"workspace": tmp_path, "screen": QUICK, "full": QUICK_FULL, "lock_path": lock_path, **options}
        made.append(OrtMeter(baseline, writer, **options))
        return made[-1]

    yield make
    for meter in made:
        meter.close()
