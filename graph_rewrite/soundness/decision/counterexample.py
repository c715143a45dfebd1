"""Inputs at which two graphs differ, by the float64 reference semantics, made small for a reader."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.operators.standard_semantics import EvaluationError
from graph_rewrite.soundness.domains.domain import Array

_TOLERANCE = 1e-4
"""Differences up to this one, relative to the output's largest element, may come from constants rounded to float32."""
_HALF_TOLERANCE = 2e-2
"""The same where the graphs have constants or attributes in half precision."""
_SHRINKING_S = 1.0
_SHOWN = 24
"""Inputs of up to so many elements are shown in full."""


@dataclass(frozen=True)
class Counterexample:
    """At `inputs` (by name), element `index` of the output called `output` is `before` in the one graph, and `after` in
    the other."""

    inputs: Mapping[str, Array]
    output: str
    index: tuple[int, ...]
    before: float
    after: float

    def __str__(self) -> str:
        lines = [f"  {name} {list(array.shape)} = {_shown(array)}" for name, array in self.inputs.items()]
        place = f"{self.output}{list(self.index)}" if self.index else self.output
        return "\n".join(["at", *lines, f"{place} is {self.before:.9g} before and {self.after:.9g} after"])


def _shown(array: Array) -> str:
    if array.size <= _SHOWN:
        return str(array.tolist())
    set_places = np.argwhere(array != 0)
    if len(set_places) <= _SHOWN:
        parts = (f"{list(map(int, place))}: {array[tuple(place)]:g}" for place in set_places)
        return f"0 but for {', '.join(parts)}" if len(set_places) else "0 everywhere"
    return " ".join(np.array2string(array, threshold=_SHOWN, precision=6).split())


def signature_difference(before: Graph, after: Graph) -> str | None:
    """Return how the inputs and outputs of two graphs differ in number, names and types; None where they do not."""
    names = [[graph.names[value] for value in graph.inputs] for graph in (before, after)]
    if names[0] != names[1]:
        return f"the inputs are {names[0]} before and {names[1]} after"
    pairs = [*zip(before.inputs, after.inputs, strict=True)]
    if len(before.outputs) != len(after.outputs):
        return f"there are {len(before.outputs)} outputs before and {len(after.outputs)} after"
    for first, second in (*pairs, *zip(before.outputs, after.outputs, strict=True)):
        types = before.types[first], after.types[second]
        if types[0] != types[1]:
            name = before.names.get(first, str(first))
            return f"{name} is {types[0]} before and {types[1]} after"
    return None


def search(before: Graph, after: Graph, seed: int) -> Counterexample | None:
    """Inputs at which the graphs differ by more than rounding; None where none were found."""
    for feeds in feeds_like(before, seed):
        found = at(before, after, feeds)
        if found is not None:
            return shrunk(before, after, found)
    return None


def feeds_like(graph: Graph, seed: int) -> Iterator[dict[str, Array]]:
    """Inputs to try: small integers first, then normal numbers of several magnitudes, then positive ones, for roots."""
    rng = np.random.default_rng(seed)
    for limit in (2, 4, 4):
        yield _feeds(graph, rng, functools.partial(_integers, rng, limit))
    for scale in (1.0, 1e-3, 30.0, 1e-2):
        yield _feeds(graph, rng, functools.partial(rng.normal, 0.0, scale))
    yield _feeds(graph, rng, functools.partial(rng.uniform, 0.5, 2.0))


def _integers(rng: np.random.Generator, limit: int, shape: tuple[int, ...]) -> Array:
    return rng.integers(1 - limit, limit, shape)


def _feeds(graph: Graph, rng: np.random.Generator, draw: Callable[[tuple[int, ...]], Any]) -> dict[str, Array]:
    feeds = {}
    for value in graph.inputs:
        type = graph.types[value]
        if type is None:
            continue
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(type.dtype))
        array = rng.integers(0, 2, type.shape) if dtype.kind in "biu" else draw(type.shape)
        feeds[graph.names[value]] = np.asarray(array).astype(dtype)
    return feeds


def at(before: Graph, after: Graph, feeds: Mapping[str, Array]) -> Counterexample | None:
    """The largest difference of the graphs at these inputs; None where there is none beyond rounding, or where the
    reference semantics do not know an operator. Elements that are not finite are left to floating-point checks."""
    try:
        with np.errstate(all="ignore"):
            pairs = list(zip(run_graph(before, feeds), run_graph(after, feeds), strict=True))
    except EvaluationError:
        return None
    tolerance = _HALF_TOLERANCE if any(is_half(graph) for graph in (before, after)) else _TOLERANCE
    for i, (a, b) in enumerate(pairs):
        if a.shape != b.shape or not a.size:
            continue
        first, second = a.astype(np.float64), b.astype(np.float64)
        with np.errstate(all="ignore"):
            gap = np.where(np.isfinite(first) & np.isfinite(second), np.abs(first - second), 0.0)
        scale = float(np.max(np.abs(first[np.isfinite(first)]), initial=0.0))
        scale = max(scale, float(np.max(np.abs(second[np.isfinite(second)]), initial=0.0)))
        place = np.unravel_index(int(np.argmax(gap)), gap.shape)
        if gap[place] > tolerance * scale:
            index = tuple(map(int, place))
            return Counterexample(dict(feeds), before.output_names[i], index, float(first[place]), float(second[place]))
    return None


def is_half(graph: Graph) -> bool:
    """Return whether a value of the graph has half precision."""
    halves = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
    return any(type is not None and type.dtype in halves for type in graph.types.values())


def shrunk(before: Graph, after: Graph, found: Counterexample) -> Counterexample:
    """The same refutation with as many elements set to zero as a second allows: halves of inputs first, then less."""
    deadline = time.monotonic() + _SHRINKING_S
    for name in found.inputs:
        step = max(1, found.inputs[name].size)
        while step and time.monotonic() < deadline:
            for start in range(0, found.inputs[name].size, step):
                flat = found.inputs[name].reshape(-1).copy()
                if not flat[start : start + step].any() or time.monotonic() > deadline:
                    continue
                flat[start : start + step] = 0
                smaller = {**found.inputs, name: flat.reshape(found.inputs[name].shape)}
                found = at(before, after, smaller) or found
            step //= 2
    return found
