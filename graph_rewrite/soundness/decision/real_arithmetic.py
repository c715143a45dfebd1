"""Two graphs over the reals: exactly at rational inputs, and at all inputs by z3."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np
from onnx import helper

from graph_rewrite.ir.graph import Graph
from graph_rewrite.soundness.decision.counterexample import Counterexample, at, feeds_like, is_half, shrunk
from graph_rewrite.soundness.decision.verdict import Decision
from graph_rewrite.soundness.decision.z3_prover import ProofOutcome, Prover, begin_anew, feeds_of
from graph_rewrite.soundness.domains.domain import DivisorIsZero, NeedsIntegers, Unsupported
from graph_rewrite.soundness.domains.effort import Effort
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.domains.reals import Reals
from graph_rewrite.soundness.semantics.call import Tensor
from graph_rewrite.soundness.semantics.evaluation import Evaluator, inputs_of

_ROUNDING = Fraction(1, 10**6)
"""Differences up to this one, relative to the output's largest element, may come from literals rounded to float32."""
_HALF_ROUNDING = Fraction(1, 100)
"""The same for half precision."""
ORDERED = frozenset((
    "Relu", "LeakyRelu", "PRelu", "Abs", "Clip", "Max", "Min", "HardSigmoid", "HardSwish", "MaxPool", "GlobalMaxPool",
    "ReduceMax", "ReduceMin", "Floor", "Ceil", "Round", "Sign", "Sqrt", "Pow", "Less", "Greater", "LessOrEqual",
    "GreaterOrEqual", "Equal", "Not", "And", "Or", "Xor", "Where", "Cast", "FusedConv", "FusedGemm", "Div", "Mod",
    "IsNaN", "IsInf", "Elu", "Celu", "Selu", "ThresholdedRelu", "Shrink", "Softplus", "Cos", "Cosh",
))  # fmt: skip
"""Operators of which there are axioms, or that compare: what z3 knows beyond the field."""
_NO_AXIOMS = (
    "functions of arguments that differ, which no axiom relates; or a literal was rounded in a way that was not "
    "recognised, so this is left to floating point"
)


def search_exactly(before: Graph, after: Graph, seed: int) -> Counterexample | None:
    """Small integer inputs at which two rational functions differ by more than the rounding of literals explains."""
    rounding = _HALF_ROUNDING if any(is_half(graph) for graph in (before, after)) else _ROUNDING
    for feeds in feeds_like(before, seed):
        try:
            evaluator = Evaluator(Reals(feeds), Interpretation(ideal=False))
            inputs = inputs_of(before, evaluator.domain, seed, integers=False)
            pairs = zip(evaluator.outputs(before, inputs), evaluator.outputs(after, inputs), strict=True)
            found = [(i, apart) for i, (a, b) in enumerate(pairs) if (apart := _apart(a, b, rounding)) is not None]
        except (Unsupported, DivisorIsZero):
            continue
        if found:
            output, (index, first, second) = found[0]
            return Counterexample(feeds, before.output_names[output], index, first, second)
    return None


def _apart(a: Tensor, b: Tensor, rounding: Fraction) -> tuple[tuple[int, ...], float, float] | None:
    elements = [*zip(np.ndindex(*a.array.shape), a.array.reshape(-1), b.array.reshape(-1), strict=True)]
    if not elements or not all(isinstance(x, Fraction) for _, *pair in elements for x in pair):
        return None
    index, first, second = max(elements, key=lambda entry: abs(entry[1] - entry[2]))
    scale = max(max(abs(x), abs(y)) for _, x, y in elements)
    return (index, float(first), float(second)) if abs(first - second) > rounding * scale else None


def prove(before: Graph, after: Graph, effort: Effort, masks: frozenset[str]) -> Decision:
    """Equality by z3, constants read exactly or else ideally; a model that the reference confirms refutes it."""
    if not any(node.op in ORDERED for graph in (before, after) for node in graph.nodes.values()):
        return Decision("unknown", "", _NO_AXIOMS)
    decision = Decision("unknown")
    for ideal in (False, True):
        interpretation = Interpretation(ideal)
        try:
            outcome = _outcome(before, after, interpretation, effort, masks)
        except Unsupported as reason:
            return Decision("unknown", "", str(reason))
        except DivisorIsZero:
            return Decision("unknown", "", "a divisor is zero whatever the inputs are")
        if outcome.proved:
            return Decision("equal", "z3", _shown(outcome, interpretation))
        if outcome.model is not None:
            found = at(before, after, feeds_of(outcome.model, _input_types(before)))
            if found is not None:
                text = "z3 has a model of the difference, and the reference semantics agree"
                return Decision("unequal", "z3", text, shrunk(before, after, found))
            outcome = ProofOutcome(False, reason=_UNCONFIRMED)
        decision = (
            Decision("unknown", "", outcome.reason) if not decision.detail or not interpretation.notes else decision
        )
    return decision


_UNCONFIRMED = (
    "z3 has a model of a difference, but the reference semantics see none beyond rounding: a function has properties "
    "that are not among its axioms, or a literal was rounded to float32; left to floating point"
)


def _outcome(
    before: Graph, after: Graph, interpretation: Interpretation, effort: Effort, masks: frozenset[str]
) -> ProofOutcome:
    for integers in (False, True):
        begin_anew()
        evaluator = Evaluator(Reals(effort=effort), interpretation, masks=masks)
        try:
            inputs = inputs_of(before, evaluator.domain, 0, integers)
            firsts, seconds = (evaluator.outputs(graph, inputs) for graph in (before, after))
        except NeedsIntegers:
            if integers:
                raise
            continue
        prover = Prover(effort)
        for a, b in zip(firsts, seconds, strict=True):
            outcome = prover.equal(a.array, b.array)
            if not outcome.proved:
                return outcome
        return outcome
    raise Unsupported("indices depend on the inputs")


def _shown(outcome: ProofOutcome, interpretation: Interpretation) -> str:
    parts = [f"z3 refutes a difference over the reals in {outcome.queries} queries, wherever no divisor is zero"]
    if interpretation.notes:
        parts.append(f"reading {', '.join(interpretation.notes)}")
    return "; ".join(parts)


def _input_types(graph: Graph) -> Mapping[str, tuple[tuple[int, ...], Any]]:
    types = {graph.names[value]: graph.types[value] for value in graph.inputs}
    return {
        name: (type.shape, helper.tensor_dtype_to_np_dtype(type.dtype))
        for name, type in types.items()
        if type is not None
    }
