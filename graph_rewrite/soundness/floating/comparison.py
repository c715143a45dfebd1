"""Comparison in floating point: both graphs in ONNX Runtime on the CPU, without any optimisation, and by the float64
reference, on inputs of every kind in `values.KINDS`. `docs/soundness.md` states the policy on NaN, infinities and
zeros.

Differences are relative to the sensitivity of the output: the magnitude against which one rounding of an operand
counts, measured by Monte Carlo arithmetic (D. S. Parker, 1997: operands disturbed by a unit roundoff), and at most the
largest magnitude of anything computed on the way. At a cancellation that is what cancels; a mask of -1e9 under a
Softmax does not count. Tolerances are those of `graph_rewrite.delivery.equivalence`: c u sqrt(8 + depth).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from graph_rewrite.delivery.equivalence import default_tolerance, depth
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.evaluation import outputs_of, run_values
from graph_rewrite.rewriting.rule import SIGNED_ZERO
from graph_rewrite.runtime import Deployment
from graph_rewrite.soundness.floating.arrays import Comparison, compare_arrays, is_float, magnitude
from graph_rewrite.soundness.floating.inputs import KINDS, InputKind, feeds

Array = np.ndarray[Any, Any]

RUNTIME, REFERENCE = "ONNX Runtime", "float64 reference"
NONFINITE = "NaN and infinities"
OVERFLOW = "the range: the target overflows earlier"
UNDERFLOW = "the range: the target underflows earlier"
NO_KERNEL = "a run in ONNX Runtime where that has no kernel for the source"

_DEPLOYMENT = Deployment("cpu", 1, "none")
_TRIALS = 3
_DOUBLE = (2.0**-53, 4096.0)
_LITERAL = (2.0**-24, 32.0)
"""What a constant or an attribute that a rule rounds to float32 may lose, in the terms of `default_tolerance`."""
_NOISE = 4.0
_UNIT, _SUBNORMAL = 2.0**-24, 2.0**-149
_LARGEST: dict[int, float] = {
    TensorProto.FLOAT: float(np.finfo(np.float32).max), TensorProto.FLOAT16: 65504.0, TensorProto.BFLOAT16: 3.38e38,
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
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
    counterexample: Difference | None
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
        NotImplementedError: an operator without reference semantics.
        ValueError: an input without a static type, graphs with different inputs or numbers of outputs, or an unknown
            name in `lossy`.
    """
    _check_interfaces(before, after)
    unknown = lossy - {SIGNED_ZERO, *(kind.name for kind in KINDS)}
    if unknown:
        raise ValueError(f"lossy: neither a kind of inputs nor {SIGNED_ZERO!r}: {min(unknown)!r}")
    pair, worst, at, compared, lost = _Pair(before, after), 0.0, "", [], set[str]()
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


def run_runtime(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Outputs in ONNX Runtime on the CPU with all optimisations off."""
    return _run(_session(graph), feeds)


def _session(graph: Graph) -> ort.InferenceSession:
    data = to_proto(graph).SerializeToString()
    options = _DEPLOYMENT.session_options()
    # Messages about failures come as exceptions; on standard error they would run into tables.
    options.log_severity_level = 4
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _run(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    known = {item.name for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    return [np.asarray(a) for a in session.run(names, {name: a for name, a in feeds.items() if name in known})]


def _check_interfaces(before: Graph, after: Graph) -> None:
    inputs = [sorted(graph.names[value] for value in graph.inputs) for graph in (before, after)]
    if inputs[0] != inputs[1] or len(before.outputs) != len(after.outputs):
        raise ValueError(f"the graphs are no rewrites of each other: inputs {inputs[0]} and {inputs[1]}")


class _Pair:
    """Two graphs with what comparisons on all inputs share: sessions and tolerances."""

    def __init__(self, before: Graph, after: Graph) -> None:
        self.before, self.after = before, after
        self.runtime_tolerance = max(default_tolerance(graph, _DEPLOYMENT) for graph in (before, after))
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
            session = _session(self.before)
            _run(session, feeds(self.before, KINDS[0], 0))
            return session
        except Exception:  # pybind11's exceptions have no common base
            return None

    @cached_property
    def target(self) -> ort.InferenceSession:
        """A session on the target. Raises whatever ONNX Runtime says against it."""
        return _session(self.after)


@dataclass(slots=True)
class _Values:
    """What the reference computes in both graphs on one set of inputs."""

    pair: _Pair
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


@dataclass(frozen=True, slots=True)
class _Seen:
    """What one kind of inputs showed."""

    error: float
    difference: Difference | None
    lost: frozenset[str]
    compared: bool


def _look(pair: _Pair, kind: InputKind, fed: Mapping[str, Array], lossy: frozenset[str]) -> _Seen:
    """Both engines on one set of inputs."""
    try:
        values = _Values(pair, fed)
    except (ValueError, FloatingPointError):
        if kind.policy == "report":  # onnx's reference evaluator fails on NaN in places
            return _Seen(0.0, None, frozenset(), False)
        raise
    compared = kind.policy != "report" and (pair.infinite_constants or _all_finite(pair.before, values.before))
    overflows = kind.policy == "finite" and not _all_finite(pair.after, values.after)
    worst, lost = 0.0, set[str]()
    for engine, before, after in _outputs(values):
        if isinstance(after, str):
            message = f"ONNX Runtime runs the source and not the target: {after}"
            failed = Difference(kind.name, engine, "", None, message, fed, before, ())
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
            shown = Difference(kind.name, engine, name, found.index, found.message, fed, tuple(before), tuple(after))
            return _Seen(found.error, shown, frozenset(lost), compared)
    return _Seen(worst, None, frozenset(lost), compared)


def _outputs(values: _Values) -> Iterator[tuple[str, Sequence[Array], Sequence[Array] | str]]:
    """Outputs of both graphs by each engine, or why ONNX Runtime refused the target."""
    pair = values.pair
    yield REFERENCE, outputs_of(pair.before, values.before), outputs_of(pair.after, values.after)
    if pair.source is None:
        return
    before = _run(pair.source, values.fed)
    try:
        yield RUNTIME, before, _run(pair.target, values.fed)
    except Exception as error:  # whatever ONNX Runtime says about the target is a finding
        yield RUNTIME, before, " ".join(str(error).split())


def _shake(rng: np.random.Generator, array: Array) -> Array:
    """Each floating-point number but zero moved up or down by one rounding."""
    if not is_float(array):
        return array
    signs = rng.choice([-1.0, 1.0], size=array.shape)
    return np.where(array == 0, array, array * (1.0 + _UNIT * signs) + _SUBNORMAL * signs)


def _opposite(kind: InputKind, a: Array, b: Array) -> tuple[int, ...] | None:
    """Where a zero's sign decided: an element that is infinite on both sides, with opposite signs."""
    if not kind.zeros or not is_float(a) or a.shape != b.shape:
        return None
    opposite = np.argwhere(np.isinf(a) & np.isinf(b) & (a != b))
    return tuple(int(i) for i in opposite[0]) if len(opposite) else None


def _loss(found: Comparison, kind: InputKind, compared: bool, overflows: bool, b: Array) -> str:
    """What was lost where an element differs without refuting the equality by that; empty where it refutes it."""
    if found.index is None:
        return ""
    if not compared:
        return NONFINITE
    # An operator may overflow inside, which only its result shows.
    overflows = overflows or (kind.policy == "finite" and is_float(b) and not np.isfinite(b[found.index]))
    return OVERFLOW if overflows else ""


def _all_finite(graph: Graph, values: Mapping[int, Array]) -> bool:
    """Whether every value is finite in its own type; `values` may be wider."""
    for value, array in values.items():
        type = graph.types.get(value)
        if type is None or not is_float(array):
            continue
        # Not `magnitude`: a NaN makes the comparison false.
        if not float(np.abs(array).max(initial=0.0)) <= _LARGEST.get(type.dtype, math.inf):
            return False
    return True


def _literals(graph: Graph) -> set[object]:
    """Floating-point constants and attributes that operators read, and constants that are outputs."""
    used = {value for node in graph.nodes.values() for value in node.inputs if value is not None} | {*graph.outputs}
    found: set[object] = {c.digest for v, c in graph.constants.items() if v in used and is_float(c.numpy())}
    attributes = (value for node in graph.nodes.values() for value in node.attrs.values())
    return found | {value for value in attributes if isinstance(value, float)}
