"""A judgement of outputs that knows what rounding may change in them, by Monte Carlo arithmetic.

The original runs several times with small random errors behind each of its operators, inputs and constants (D. S.
Parker, "Monte Carlo Arithmetic: exploiting randomness in floating-point arithmetic", 1997). How far that moves an
output says how far rounding may move it, whatever the order of operations: a cancellation that leaves only roundings,
a comparison of values that are nearly equal, a code of eight bits that could as well be the next one. Errors are
relative to the largest magnitude of each tensor, since a sum of products errs relative to its largest terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzzing.optimisations.builder import FLOAT
from tests.fuzzing.optimisations.running import Array, opened, run

RUNS = 6
NOISE = 8.0
"""Half-width of the errors, in unit roundoffs."""
MARGIN = 6.0
"""Times the largest movement that an element may differ, and times that of most elements of its tensor."""
ROUNDINGS = 64.0
"""Unit roundoffs of the output's scale by which any element may differ."""
_MOST = 0.9
_ERROR = "__error"
_MOVEMENTS = frozenset({
    "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity",
    "Pad", "Relu", "Reshape", "ScatterElements", "ScatterND", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
    "Transpose", "Trilu", "Unsqueeze", "Where", "Cast", "CastLike", "Max", "Min", "Neg", "Abs", "MaxPool", "If", "Loop",
    "Sign", "Floor", "Ceil", "Round", "Clip", "OneHot", "ConstantOfShape", "Hardmax", "TopK",
})  # fmt: skip
"""Operators that round nothing."""
_UNITS = {np.dtype(np.float64): 2.0**-53, np.dtype(np.float32): 2.0**-24, np.dtype(np.float16): 2.0**-11}


@dataclass(frozen=True)
class Reference:
    """The outputs of a model on one input, and how far rounding moves each element of them: infinitely where a
    whole number or a truth value hangs on it."""

    outputs: Mapping[str, Array]
    movements: Mapping[str, Array]
    unit: float
    """Unit roundoff of the least precise type in the model."""


class Judge:
    """Compares outputs with those of a model in ONNX Runtime without optimisations.

    Args:
        model: the original, with names for all values.
        types: the types of its float values, by name, constants included.
    """

    def __init__(self, model: onnx.ModelProto, types: Mapping[str, int]) -> None:
        self._outputs = [info.name for info in model.graph.output]
        self._constants = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer if t.name in types}
        given = {info.name for info in model.graph.input} | {tensor.name for tensor in model.graph.initializer}
        self._plain = opened(model, [name for name in types if name not in given])
        self._noisy = opened(_with_errors(model, types))
        self._errors = [name for item in self._noisy.get_inputs() if (name := item.name).endswith(_ERROR)]
        self._unit = max((_unit(dtype) for dtype in types.values()), default=_unit(FLOAT))

    def reference(self, feeds: Mapping[str, Array]) -> Reference | None:
        """Return what the model gives; None where one of its values is no finite number, of which rewrites promise
        nothing."""
        found = {**self._constants, **feeds, **run(self._plain, feeds)}
        if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in found.values()):
            return None
        outputs = {name: found[name] for name in self._outputs}
        moved = {name: np.zeros(array.shape) for name, array in outputs.items()}
        rng = np.random.default_rng(0)
        for _ in range(RUNS):
            errors = {name: _errors(found[name.removesuffix(_ERROR)], rng) for name in self._errors}
            try:
                disturbed = run(self._noisy, {**feeds, **errors})
            except RuntimeError:  # shapes that depend on values are others then
                disturbed = {}
            for name, expected in outputs.items():
                moved[name] = np.maximum(moved[name], _movement(expected, disturbed.get(name)))
        return Reference(outputs, moved, self._unit)


def difference(reference: Reference, found: Mapping[str, Array]) -> str:
    """Return the first output that differs by more than rounding explains, in words; empty where there is none."""
    for name, expected in reference.outputs.items():
        if name not in found:
            return f"output {name} is missing"
        given = found[name]
        if (given.dtype, given.shape) != (expected.dtype, expected.shape):
            return f"output {name} is {given.dtype}{given.shape} and not {expected.dtype}{expected.shape}"
        if not expected.size:
            continue
        limits = _limits(expected, reference.movements[name], reference.unit)
        with np.errstate(over="ignore"):
            beyond = _movement(expected, given) / np.maximum(limits, np.finfo(float).tiny)
        worst = int(np.argmax(beyond))
        if not beyond.flat[worst] <= 1.0:
            count = int((~(beyond <= 1.0)).sum())
            return (
                f"output {name}: {count} of {expected.size} elements differ by more than rounding explains, such as"
                f" {given.flat[worst]} for {expected.flat[worst]} (allowed: {limits.flat[worst]:.3g})"
            )
    return ""


def told(reference: Reference) -> float:
    """Return the share of elements that the comparison tells something about: rounding leaves most of their digits."""
    known = total = 0
    for name, expected in reference.outputs.items():
        limits = _limits(expected, reference.movements[name], reference.unit)
        scale = float(np.abs(expected.astype(np.float64)).max(initial=0.0)) if expected.dtype.kind == "f" else 1.0
        known += int((limits <= 0.1 * scale).sum()) if scale else expected.size
        total += expected.size
    return known / max(1, total)


def _limits(expected: Array, moved: Array, unit: float) -> Array:
    """Return how far each element may differ; whole numbers not at all, unless they move."""
    if expected.dtype.kind != "f":
        return np.where(moved > 0.0, np.inf, 0.0)
    finite = moved[np.isfinite(moved)]
    typical = float(np.quantile(finite, _MOST)) if finite.size else 0.0
    scale = float(np.abs(expected.astype(np.float64)).max(initial=0.0))
    return np.asarray(MARGIN * (moved + typical) + ROUNDINGS * unit * scale)


def _movement(expected: Array, given: Array | None) -> Array:
    """Return how far each element moved; infinitely far where it is no number, or the shape is another."""
    if given is None or given.shape != expected.shape:
        return np.full(expected.shape, np.inf)
    with np.errstate(invalid="ignore", over="ignore"):
        far = np.abs(given.astype(np.float64) - expected.astype(np.float64))
    return np.asarray(np.nan_to_num(far, nan=np.inf, posinf=np.inf))


def _errors(values: Array, rng: np.random.Generator) -> Array:
    """Return uniform errors for a value, relative to its largest magnitude."""
    step = NOISE * _UNITS[values.dtype] * float(np.abs(values.astype(np.float64)).max(initial=0.0))
    return np.asarray(rng.uniform(-step, step, values.shape)).astype(values.dtype)


def _unit(dtype: int) -> float:
    return _UNITS[np.dtype(helper.tensor_dtype_to_np_dtype(dtype))]


def _with_errors(model: onnx.ModelProto, types: Mapping[str, int]) -> onnx.ModelProto:
    """Return the model with errors, which are further inputs, added to all float inputs, constants and results of
    arithmetic."""
    noisy = onnx.ModelProto()
    noisy.CopyFrom(model)
    graph = noisy.graph
    del graph.node[:]
    given = {info.name: None for info in [*graph.input, *graph.initializer]}  # one may be both
    outputs = {info.name for info in graph.output}
    new = {name: f"{name}__disturbed" for name in given if name in types}
    for name in new:
        graph.node.append(helper.make_node("Add", [name, name + _ERROR], [new[name]]))
    for node in model.graph.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        _rename_captured(copy, new)
        copy.input[:] = [new.get(name, name) for name in node.input]
        if node.op_type == "Pow":  # a negative number has whole powers only
            copy.input[1] = node.input[1]
        for place, name in enumerate(node.output):
            if node.op_type in _MOVEMENTS or name not in types:
                continue
            # An output keeps its name, which its disturbed value bears.
            plain, new[name] = (f"{name}__plain", name) if name in outputs else (name, f"{name}__disturbed")
            copy.output[place] = plain
            graph.node.append(helper.make_node("Add", [plain, name + _ERROR], [new[name]]))
    for name in new:
        graph.input.append(helper.make_tensor_value_info(name + _ERROR, types[name], None))
    return noisy


def _rename_captured(node: onnx.NodeProto, new: Mapping[str, str]) -> None:
    """Rename what the graphs inside a node read from outside."""
    for attribute in node.attribute:
        for inner in attribute.g.node:
            inner.input[:] = [new.get(name, name) for name in inner.input]
            _rename_captured(inner, new)
