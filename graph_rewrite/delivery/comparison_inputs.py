"""The inputs on which two models are compared: random ones and extreme ones."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.runtime.ort_worker.patterns import FLOAT_PATTERNS, INDEX_PATTERNS

_FLOATS = frozenset({TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16})
_INTEGERS = frozenset({
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip


def seeded_inputs(graph: Graph, seeds: int, given: FeedSpec | Sequence[FeedSpec] | None) -> list[FeedSpec]:
    """Return recipes for random inputs: masks are all ones for the first one and random for the others. A file of
    inputs is the only one, and several recipes are taken as they are."""
    if given is not None and not isinstance(given, FeedSpec):
        return list(given)
    if given is not None and given.npz is not None:
        return [given]
    ranges = _ranges(graph, given)
    masks = {name: (0, 2) for value in graph.inputs if "mask" in (name := graph.names[value]).lower()}
    first = given.seed if given else 0
    return [FeedSpec(first + i, ranges if i == 0 else {**masks, **ranges}) for i in range(seeds)]


def extreme_inputs(graph: Graph, given: FeedSpec | Sequence[FeedSpec] | None) -> list[FeedSpec]:
    """Return recipes for inputs of the patterns that the types of a model's inputs admit; masks are all ones. None
    where the inputs come from a file or from several recipes."""
    if given is not None and (not isinstance(given, FeedSpec) or given.npz is not None):
        return []
    types = {type.dtype for value in graph.inputs if (type := graph.types.get(value)) is not None}
    patterns = [*(FLOAT_PATTERNS if types & _FLOATS else ()), *(INDEX_PATTERNS if types & _INTEGERS else ())]
    ranges = _ranges(graph, given)
    return [FeedSpec(given.seed if given else 0, ranges, pattern=pattern) for pattern in patterns]


def _ranges(graph: Graph, given: FeedSpec | None) -> dict[str, tuple[float, float]]:
    return {**index_ranges(graph), **(given.input_ranges if given else {})}
