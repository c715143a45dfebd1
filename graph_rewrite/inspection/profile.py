"""The profile of a model: the time of every kernel that its runtime runs for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from graph_rewrite.errors import MachineError
from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.peaks import ask
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.operators.usual_values import settled_values
from graph_rewrite.runtime import Deployment, FeedSpec, Plan, WorkerClient

BUDGET_S = 1.0
"""Seconds for the profile, and as many for the latency without one."""
_PLAN = Plan(min_pairs=3, max_pairs=30, warmup=1, target_ci_width=0.02, budget_s=BUDGET_S)
_ELEMENTS = {
    "float": 1, "uint8": 2, "int8": 3, "uint16": 4, "int16": 5, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
    "double": 11, "uint32": 12, "uint64": 13, "bfloat16": 16,
}  # fmt: skip
"""Element types by the names that ONNX Runtime has for them (`onnx.TensorProto.DataType`)."""


class CannotRunError(MachineError):
    """The runtime cannot run the model; the message has its reason."""


@dataclass(frozen=True)
class TimedKernel:
    """One kernel as the runtime runs it, after its own optimisers; `us` is its median time per run in microseconds.

    `inputs` lacks the weights that ONNX Runtime keeps in a layout of its own; a type is None where it is no tensor of
    a known kind.
    """

    name: str
    op: str
    us: float
    inputs: tuple[TensorType | None, ...] = ()
    outputs: tuple[TensorType | None, ...] = ()
    domain: str = ""
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """The kernels of a model in the order in which they run, and the model's latency in milliseconds without
    profiling, all under one deployment."""

    deployment: Deployment
    ms: float
    kernels: tuple[TimedKernel, ...]

    @property
    def us(self) -> float:
        """Sum of the times of all kernels in microseconds."""
        return sum(kernel.us for kernel in self.kernels)


def profile_model(graph: Graph, deployment: Deployment, worker: WorkerClient, folder: Path) -> Profile:
    """Run a graph with fixed shapes in a worker process, timed and profiled, on random inputs.

    Raises:
        CannotRunError: the runtime cannot run the model.
    """
    side = {"path": str(materialize(graph, folder)), "deployment": deployment.to_request()}
    shared = {
        "candidate": side,
        "feeds": FeedSpec(
            input_ranges=index_ranges(graph), element_shapes=element_shapes(graph), values=settled_values(graph)
        ).to_json(),
    }
    requests: list[dict[str, Any]] = [
        {"kind": "time", **shared, "plan": _PLAN.to_json()},
        {"kind": "profile", **shared, "folder": str(folder), "budget_s": BUDGET_S, "nodes": len(graph.nodes)},
    ]
    what = f"{deployment.facts.title} cannot run the model"
    timed, told = [ask(worker, request, CannotRunError, what) for request in requests]
    return Profile(deployment, 1e3 * median(timed["samples"]), tuple(map(_kernel, told["kernels"])))


def _kernel(told: Mapping[str, Any]) -> TimedKernel:
    return TimedKernel(told["name"], told["op"], told["us"], _types(told["inputs"]), _types(told["outputs"]))


def _types(listed: Sequence[tuple[str, Sequence[int]]]) -> tuple[TensorType | None, ...]:
    return tuple(TensorType(_ELEMENTS[name], tuple(shape)) if name in _ELEMENTS else None for name, shape in listed)
