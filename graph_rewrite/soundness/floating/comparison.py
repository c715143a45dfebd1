"""Comparison in floating point: both graphs in ONNX Runtime on the CPU, without any optimisation, and by the float64
reference, on inputs of every kind in `inputs.KINDS`. `docs/concepts/soundness.md` states the policy on NaN, infinities
and zeros.

Differences are relative to the sensitivity of the output: the magnitude against which one rounding of an operand
counts, measured by Monte Carlo arithmetic (D. S. Parker, 1997: operands disturbed by a unit roundoff), and at most the
largest magnitude of anything computed on the way. At a cancellation that is what cancels; a mask of -1e9 under a
Softmax does not count. Tolerances are those of `graph_rewrite.delivery.equivalence`: c u sqrt(8 + depth).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.evaluation import outputs_of
from graph_rewrite.operators.standard_semantics import EvaluationError
from graph_rewrite.rewriting.rule import SIGNED_ZERO
from graph_rewrite.rules.strict import NO_KERNEL
from graph_rewrite.soundness.floating.arrays import Comparison, compare_arrays, is_float
from graph_rewrite.soundness.floating.graph_pair import GraphPair, ReferenceValues
from graph_rewrite.soundness.floating.inputs import KINDS, InputKind, feeds
from graph_rewrite.soundness.floating.runtime import RuntimeRefusalError, run_session

Array = np.ndarray[Any, Any]

RUNTIME, REFERENCE = "ONNX Runtime", "float64 reference"
NONFINITE = "NaN and infinities"
OVERFLOW = "the range: the target overflows earlier"
UNDERFLOW = "the range: the target underflows earlier"

_LARGEST: dict[int, float] = {
    TensorProto.FLOAT: float(np.finfo(np.float32).max), TensorProto.FLOAT16: 65504.0, TensorProto.BFLOAT16: 3.38e38,
}  # fmt: skip


@dataclass(frozen=True)
class FloatDifference:
    """Inputs on which two graphs differ: where (one element of one output), in which engine and how far, and all inputs
    and outputs."""

    kind: str
    engine: str
    output: str
    index: tuple[int, ...] | None
    message: str
    feeds: Mapping[str, Array] = field(repr=False)
    before: Sequence[Array] = field(repr=False)
    after: Sequence[Array] = field(repr=False)


@dataclass(frozen=True)
class FloatResult:
    """Outcome of a comparison. `worst_error` is the largest difference in ONNX Runtime relative to the sensitivity of
    the output, over the kinds of inputs in `compared`; `kind` is where it occurred, or where the graphs differ. `lost`
    names what the target does not keep without being wrong by it, and what could not be run."""

    ok: bool
    worst_error: float
    kind: str
    counterexample: FloatDifference | None
    compared: tuple[str, ...]
    lost: frozenset[str]


def compare(
    before: Graph,
    after: Graph,
    *,
    seed: int = 0,
    kinds: Sequence[InputKind] = KINDS,
    lossy: frozenset[str] = frozenset(),
) -> FloatResult:
    """Compare a graph with its rewrite on inputs of each kind.

    Kinds on which anything that `before` computes is not finite are not compared, unless it has constants that are not
    finite themselves; they are only looked at for opposite infinities, where the sign of a zero was lost. `lossy` names
    what the rule says it does not keep: `SIGNED_ZERO`, or kinds of inputs, which are then left out.

    Raises:
        UnknownOperatorError: an operator without reference semantics.
        ValueError: an input without a static type, graphs with different inputs or numbers of outputs, or an unknown
            name in `lossy`.
    """
    unknown = lossy - {SIGNED_ZERO, *(kind.name for kind in KINDS)}
    if unknown:
        raise ValueError(f"lossy: neither a kind of inputs nor {SIGNED_ZERO!r}: {min(unknown)!r}")
    pair, worst, at, compared, lost = GraphPair(before, after), 0.0, "", [], set[str]()
    for kind in kinds:
        if kind.name in lossy:
            continue
        seen = _look(pair, kind, feeds(before, kind, seed), lossy)
        lost |= seen.lost
        if seen.compared:
            compared.append(kind.name)
        if seen.difference is not None:
            return FloatResult(False, seen.error, kind.name, seen.difference, tuple(compared), frozenset(lost))
        if seen.error > worst:
            worst, at = seen.error, kind.name
    if pair.source is None:
        lost.add(NO_KERNEL)
    return FloatResult(True, worst, at, None, tuple(compared), frozenset(lost))


@dataclass(frozen=True, slots=True)
class _Seen:
    """The findings on one kind of inputs."""

    error: float
    difference: FloatDifference | None
    lost: frozenset[str]
    compared: bool


def _look(pair: GraphPair, kind: InputKind, fed: Mapping[str, Array], lossy: frozenset[str]) -> _Seen:
    """Both engines on one set of inputs."""
    try:
        values = ReferenceValues(pair, fed)
    except EvaluationError:
        if kind.policy == "report":  # onnx's reference evaluator fails on NaN with some operators
            return _Seen(0.0, None, frozenset(), False)
        raise
    compared = kind.policy != "report" and (pair.infinite_constants or _all_finite(pair.before, values.before))
    overflows = kind.policy == "finite" and not _all_finite(pair.after, values.after)
    worst, lost = 0.0, set[str]()
    for engine, before, after in _outputs(values):
        if isinstance(after, str):
            message = f"ONNX Runtime runs the source and not the target: {after}"
            failed = FloatDifference(kind.name, engine, "", None, message, fed, before, ())
            return _Seen(math.inf, failed, frozenset(lost), compared)
        tolerance = pair.runtime_tolerance if engine == RUNTIME else pair.reference_tolerance
        for number, (a, b) in enumerate(zip(before, after, strict=True)):
            noise = values.noise(number, a) if engine == RUNTIME else 0.0
            found = compare_arrays(a, b, tolerance, partial(values.sensitivity, number), noise)
            if not found.differs:
                worst = max(worst, found.error if engine == RUNTIME and compared else 0.0)
                continue
            loss, opposite = _loss(found, kind, compared, overflows, b), _opposite(kind, a, b)
            if not loss and kind.name == "denormal" and engine == RUNTIME:
                loss = UNDERFLOW  # the reference, whose range is wider, sees no difference
            if opposite is not None and SIGNED_ZERO in lossy:
                loss = SIGNED_ZERO
            elif opposite is not None:
                found, loss = replace(found, index=opposite, message=f"{SIGNED_ZERO} is lost"), ""
            if loss:
                lost.add(loss)
                continue
            name = pair.before.output_names[number]
            shown = FloatDifference(
                kind.name, engine, name, found.index, found.message, fed, tuple(before), tuple(after)
            )
            return _Seen(found.error, shown, frozenset(lost), compared)
    return _Seen(worst, None, frozenset(lost), compared)


def _outputs(values: ReferenceValues) -> Iterator[tuple[str, Sequence[Array], Sequence[Array] | str]]:
    """Outputs of both graphs by each engine, or why ONNX Runtime refused the target."""
    pair = values.pair
    yield REFERENCE, outputs_of(pair.before, values.before), outputs_of(pair.after, values.after)
    if pair.source is None:
        return
    before = run_session(pair.source, values.fed)
    try:
        after: Sequence[Array] | str = run_session(pair.target, values.fed)
    except RuntimeRefusalError as error:
        after = str(error)
    yield RUNTIME, before, after


def _opposite(kind: InputKind, a: Array, b: Array) -> tuple[int, ...] | None:
    """Return where a zero's sign decided: an element that is infinite on both sides, with opposite signs."""
    if not kind.zeros or not is_float(a) or a.shape != b.shape:
        return None
    opposite = np.argwhere(np.isinf(a) & np.isinf(b) & (a != b))
    return tuple(int(i) for i in opposite[0]) if len(opposite) else None


def _loss(found: Comparison, kind: InputKind, compared: bool, overflows: bool, b: Array) -> str:
    """Return what was lost where an element differs without refuting the equality by that; empty where it refutes
    it."""
    if found.index is None:
        return ""
    if not compared:
        return NONFINITE
    # An operator may overflow inside, which only its result shows.
    overflows = overflows or (kind.policy == "finite" and is_float(b) and not np.isfinite(b[found.index]))
    return OVERFLOW if overflows else ""


def _all_finite(graph: Graph, values: Mapping[int, Array]) -> bool:
    """Return whether every value is finite in its own type; `values` may be wider."""
    for value, array in values.items():
        type = graph.types.get(value)
        if type is None or not is_float(array):
            continue
        # Not `magnitude`: a NaN makes the comparison false.
        if not float(np.abs(array).max(initial=0.0)) <= _LARGEST.get(type.dtype, math.inf):
            return False
    return True
