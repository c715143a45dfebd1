"""The inputs on which two models are compared: random ones, the user's, and extreme ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.input_ranges import index_ranges
from graph_rewrite.operators.input_types import element_shapes, element_types
from graph_rewrite.operators.usual_values import settled_values
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.runtime.ort_worker.patterns import ABSENT, FLOAT_PATTERNS, INDEX_PATTERNS

_FLOATS = frozenset({
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ, TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E5M2FNUZ,
})  # fmt: skip
_INTEGERS = frozenset({
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
})  # fmt: skip


SEEDS = 5
"""Random inputs of a comparison that has the time for them."""
LEAST_SEEDS = 2
"""Random inputs that a comparison must have: masks are all ones for one, and random for the other."""


@dataclass(frozen=True)
class ComparisonInputs:
    """Inputs of a comparison: those that it must have, `more` of the same kind that only a short time limit leaves out,
    and extra ones as far as the time goes."""

    run: Sequence[FeedSpec]
    extra: Sequence[FeedSpec]
    more: Sequence[FeedSpec] = ()


def comparison_inputs(
    graph: Graph, seeds: int, given: FeedSpec | Sequence[FeedSpec] | None, data: Sequence[FeedSpec], extremes: bool
) -> ComparisonInputs:
    """Return the inputs to compare a model on: random ones, or as `given` says, the user's `data`, and extreme ones."""
    extreme = extreme_inputs(graph, given) if extremes else []
    seeded = seeded_inputs(graph, seeds, given)
    must = LEAST_SEEDS if _are_drawn(given) else len(seeded)
    return ComparisonInputs([*seeded[:must], *data[:1]], [*data[1:], *extreme], seeded[must:])


def seeded_inputs(graph: Graph, seeds: int, given: FeedSpec | Sequence[FeedSpec] | None) -> list[FeedSpec]:
    """Return recipes for random inputs: masks are all ones for the first one and random for the others. A file of
    inputs is the only one, and several recipes are taken as they are."""
    if given is not None and not isinstance(given, FeedSpec):
        return list(given)
    if given is not None and given.npz is not None:
        return [given]
    shapes = element_shapes(graph)
    ranges = _ranges(graph, given)
    masks = {name: (0, 2) for value in graph.inputs if "mask" in (name := graph.names[value]).lower()}
    first, values = given.seed if given else 0, _values(graph, given)
    return [
        FeedSpec(first + i, ranges if i == 0 else {**masks, **ranges}, element_shapes=shapes, values=values)
        for i in range(seeds)
    ]


def extreme_inputs(graph: Graph, given: FeedSpec | Sequence[FeedSpec] | None) -> list[FeedSpec]:
    """Return recipes for inputs of the patterns that the types of a model's inputs admit; masks are all ones. One is
    without the optional inputs. None where the inputs come from a file or from several recipes."""
    if not _are_drawn(given):
        return []
    types = {type.dtype for value in graph.inputs if (type := graph.types.get(value)) is not None}
    types |= {type.dtype for type in element_types(graph).values()}
    optional = any(info.type.HasField("optional_type") for info in graph.header.graph.input)
    patterns = [*(FLOAT_PATTERNS if types & _FLOATS else ()), *(INDEX_PATTERNS if types & _INTEGERS else ())]
    patterns += [ABSENT] if optional else []
    ranges, shapes = _ranges(graph, given), element_shapes(graph)
    seed, values = given.seed if given else 0, _values(graph, given)
    return [FeedSpec(seed, ranges, pattern=pattern, element_shapes=shapes, values=values) for pattern in patterns]


def _are_drawn(given: FeedSpec | Sequence[FeedSpec] | None) -> TypeGuard[FeedSpec | None]:
    """Return whether inputs are drawn at random; a file of inputs, or several recipes, are all that there are."""
    return given is None or (isinstance(given, FeedSpec) and given.npz is None)


def _ranges(graph: Graph, given: FeedSpec | None) -> dict[str, tuple[float, float]]:
    return {**index_ranges(graph), **(given.input_ranges if given else {})}


def _values(graph: Graph, given: FeedSpec | None) -> dict[str, Any]:
    return {**settled_values(graph), **(given.values if given else {})}
