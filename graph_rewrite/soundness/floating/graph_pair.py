"""A graph and its rewrite in floating point: sessions, tolerances, and values by the float64 reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnxruntime as ort

from graph_rewrite.delivery.tolerance import default_tolerance, depth
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.evaluation import outputs_of, run_values
from graph_rewrite.soundness.floating.arrays import is_float, magnitude
from graph_rewrite.soundness.floating.inputs import KINDS, feeds
from graph_rewrite.soundness.floating.runtime import UNOPTIMIZED, RuntimeRefusalError, open_session, run_session

Array = np.ndarray[Any, Any]

_TRIALS = 3
_DOUBLE = (2.0**-53, 4096.0)
_LITERAL = (2.0**-24, 32.0)
"""The precision that a constant or an attribute loses where a rule rounds it to float32, in the terms of
`default_tolerance`."""
_NOISE = 4.0
_UNIT, _SUBNORMAL = 2.0**-24, 2.0**-149


class GraphPair:
    """A graph and its rewrite, with the sessions and tolerances that comparisons on all inputs share.

    Raises:
        ValueError: the graphs have different inputs or numbers of outputs.
    """

    def __init__(self, before: Graph, after: Graph) -> None:
        inputs = [sorted(graph.names[value] for value in graph.inputs) for graph in (before, after)]
        if inputs[0] != inputs[1] or len(before.outputs) != len(after.outputs):
            raise ValueError(f"the graphs are no rewrites of each other: inputs {inputs[0]} and {inputs[1]}")
        self.before, self.after = before, after
        self.runtime_tolerance = max(default_tolerance(graph, UNOPTIMIZED) for graph in (before, after))
        steps = math.sqrt(8 + max(depth(before), depth(after)))
        self.reference_tolerance = _DOUBLE[0] * _DOUBLE[1] * steps
        if _literals(after) != _literals(before):
            # In float16 or bfloat16 a literal loses more than in float32. In double too literals are float32 where
            # ONNX Runtime takes an operator for the function that ONNX defines it by.
            self.reference_tolerance += max(_LITERAL[0] * _LITERAL[1] * steps, self.runtime_tolerance / 8)
            self.runtime_tolerance = max(self.runtime_tolerance, self.reference_tolerance)
        constants = (constant.numpy() for constant in before.constants.values())
        self.infinite_constants = any(is_float(array) and not np.isfinite(array).all() for array in constants)

    @cached_property
    def source(self) -> ort.InferenceSession | None:
        """A session on the source; None where ONNX Runtime refuses it, for lack of a kernel as a rule."""
        try:
            session = open_session(self.before)
            run_session(session, feeds(self.before, KINDS[0], 0))
        except RuntimeRefusalError:
            return None
        return session

    @cached_property
    def target(self) -> ort.InferenceSession:
        """A session on the target.

        Raises:
            RuntimeRefusalError: ONNX Runtime refuses the target.
        """
        return open_session(self.after)


@dataclass(slots=True)
class ReferenceValues:
    """The values that the float64 reference computes in both graphs on one set of inputs.

    Raises:
        EvaluationError: onnx's reference evaluator fails on an operator.
    """

    pair: GraphPair
    fed: Mapping[str, Array]
    before: Mapping[int, Array] = field(init=False)
    after: Mapping[int, Array] = field(init=False)

    def __post_init__(self) -> None:
        with np.errstate(all="ignore"):
            self.before, self.after = run_values(self.pair.before, self.fed), run_values(self.pair.after, self.fed)

    def noise(self, number: int, computed: Array) -> float:
        """A few times the error that ONNX Runtime itself makes in output `number` of the source: some operators cancel
        inside, and kernels treat the elements at the end of an array in another way than the rest."""
        exact = outputs_of(self.pair.before, self.before)[number]
        if not is_float(computed) or exact.shape != computed.shape:
            return 0.0
        with np.errstate(all="ignore"):
            return _NOISE * magnitude(exact.astype(np.float64) - computed.astype(np.float64))

    def sensitivity(self, number: int, scale: float) -> float:
        """The magnitude against which roundings count in output `number`: at least `scale`, that of the output, and at
        most the largest finite magnitude of anything computed in either graph."""
        response = 0.0
        for graph, exact in ((self.pair.before, self.before), (self.pair.after, self.after)):
            undisturbed = outputs_of(graph, exact)[number]
            for trial in range(_TRIALS):
                disturb = partial(_shake, np.random.default_rng([trial, number]))
                with np.errstate(all="ignore"):
                    values = run_values(graph, self.fed, disturb=disturb)
                    response = max(response, magnitude(outputs_of(graph, values)[number] - undisturbed))
        largest = max(magnitude(array) for values in (self.before, self.after) for array in values.values())
        return max(scale, min(response / _UNIT, largest))


def _shake(rng: np.random.Generator, array: Array) -> Array:
    """Each floating-point number but zero moved up or down by one rounding."""
    if not is_float(array):
        return array
    signs = rng.choice([-1.0, 1.0], size=array.shape)
    return np.where(array == 0, array, array * (1.0 + _UNIT * signs) + _SUBNORMAL * signs)


def _literals(graph: Graph) -> set[object]:
    """Floating-point constants and attributes that operators read, and constants that are outputs."""
    used = {value for node in graph.nodes.values() for value in node.inputs if value is not None} | {*graph.outputs}
    found: set[object] = {c.digest for v, c in graph.constants.items() if v in used and is_float(c.numpy())}
    attributes = (value for node in graph.nodes.values() for value in node.attrs.values())
    return found | {value for value in attributes if isinstance(value, float)}
