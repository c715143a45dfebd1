"""Proposals for element-wise operators: operands that broadcast, attributes, bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.rewriting.patterns import Const, Maybe, Scalar
from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import BOOL, OperatorDraft, Proposal
from graph_rewrite.soundness.instances.source_state import Shape

RANKS = (2, 3, 1, 4, 0)
_ATTRIBUTES: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "HardSigmoid": {"alpha": (None, 1 / 6, 0.5), "beta": (None, 0.25)},
    "LeakyRelu": {"alpha": (None, 0.25, 0.0, -0.5)},
    "ThresholdedRelu": {"alpha": (None, 0.5)},
    "Elu": {"alpha": (None, 0.5)},
    "Celu": {"alpha": (None, 0.5)},
    "Selu": {"alpha": (None, 1.5), "gamma": (None, 0.5)},
    "Shrink": {"lambd": (None, 0.25), "bias": (None, 0.5)},
    "Swish": {"alpha": (None, 0.5)},
    "Gelu": {"approximate": (None, "tanh", "none")},
    "IsInf": {"detect_negative": (None, 0), "detect_positive": (None, 0)},
    "QuickGelu": {"alpha": (None, 1.0, 0.5, -1.0, 0.0)},
}
_BOUNDS = ((-1.0, 1.0), (0.0, 6.0), (0.0, np.inf), (-0.5, 0.25), (0.5, 3.0), (1.0, -1.0), (-np.inf, 0.5))
"""Bounds of Clip; one pair is empty."""


def propose_elementwise(a: OperatorDraft) -> None:
    """Any operator that works element by element, the inputs broadcast against each other."""
    for name, options in _ATTRIBUTES.get(a.op, {}).items():
        a.attr(name, options)
    if a.op == "Mod" and a.dtype() not in (TensorProto.INT64, TensorProto.INT32):
        a.attr("fmod", (1,))
    dtype = BOOL if a.op in ("And", "Or", "Xor", "Not") else None
    # The larger operand is most often the one that no constant is.
    order = sorted(range(len(a.inputs)), key=lambda i: _constness(a, i))
    for i in order:
        if a.optional(i):
            place_beside(a, i, dtype)


def place_beside(a: OperatorDraft, i: int, dtype: int | None = None) -> None:
    """Give input i a shape that broadcasts with the known inputs, or a fresh one."""
    shapes = [a.shape(k) for k in range(len(a.inputs)) if a.known(k)]
    if not shapes:
        a.fresh_input(i, RANKS, dtype=dtype)
        return
    try:
        known = np.broadcast_shapes(*shapes)
    except ValueError as error:
        raise DeadEnd("shapes don't broadcast") from error
    variable = a.node.inputs[i] if i < len(a.node.inputs) else None
    if getattr(variable, "kind", None) is Scalar:
        a.data(i, (), dtype)
        return
    options = broadcasting(known)
    constant = a.is_constant(i)
    usual: tuple[str, ...] = ("equal", "last axis", "scalar", "per channel")
    if constant:
        usual = ("last axis", "per channel", "scalar", "equal")
    reduced = a.source.reduced
    if 0 < reduced <= len(known):
        options, usual = {"reduced axes": known[-reduced:], **options}, ("reduced axes", *usual)
    # Weights of a normalisation, biases of parallel products: several operands often are of one kind.
    usual = tuple(dict.fromkeys((*a.source.beside.get(constant, ()), *usual)))
    names = [name for name in usual if name in options] + [name for name in options if name not in usual]
    weights = [3.0 if name in usual[:2] else 2.0 if name in usual else 1.0 for name in names]
    chosen = a.pick(f"input {i} beside", names, weights)
    a.source.beside[constant] = (chosen,)
    # A whole number to a negative power is none.
    a.data(i, options[chosen], dtype, positive=a.op == "Pow")


def broadcasting(known: Shape) -> dict[str, Shape]:
    """Shapes that broadcast with a known one, by name, each once."""
    rank = len(known)
    options: dict[str, Shape] = {"equal": known, "scalar": (), "last axis": known[-1:]}
    if rank >= 3:
        options["per channel"] = (known[1], *(1,) * (rank - 2))
        options["per channel, all axes"] = (1, known[1], *(1,) * (rank - 2))
    options["last two axes"] = known[-2:]
    options["without first axis"] = known[1:]
    options["one element, all axes"] = (1,) * rank
    for axis in range(rank):
        options[f"axis {axis} is 1"] = (*known[:axis], 1, *known[axis + 1 :])
    options["one axis more"] = (2, *known)
    if 1 in known:
        options["ones grow"] = tuple(3 if dim == 1 else dim for dim in known)
    distinct: dict[str, Shape] = {}
    for name, shape in options.items():
        if shape not in distinct.values():
            distinct[name] = shape
    return distinct


def _constness(a: OperatorDraft, i: int) -> int:
    kind = getattr(a.node.inputs[i], "kind", None) if i < len(a.node.inputs) else None
    if kind is None or a.known(i):
        return -1
    return 2 if kind is Scalar else 1 if issubclass(kind, (Const, Maybe)) else 0


def propose_clip(a: OperatorDraft) -> None:
    """Clip(x, low, high): bounds of one element, either may be left out."""
    a.fresh_input(0, RANKS)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(a.dtype()))
    bounds = a.pick("bounds", _BOUNDS)
    for i, bound in ((1, bounds[0]), (2, bounds[1])):
        if dtype.kind != "f" and not np.isfinite(bound):
            raise DeadEnd("whole numbers are finite")
        if a.optional(i):
            a.parameter_of(i, np.array(bound, dtype=dtype))
        elif a.tail is not None:
            return


def propose_cast(a: OperatorDraft) -> None:
    """Cast(x, to)."""
    a.fresh_input(0, RANKS)
    a.attr("to", (1, 7, 9, 11, 6, 10))


def propose_where(a: OperatorDraft) -> None:
    """Where(condition, x, y)."""
    order = (1, 2, 0) if not a.known(0) else (0, 1, 2)
    for i in order:
        if a.free(i):
            place_beside(
                a, i, BOOL if i == 0 else next((a.type(k).dtype for k in (1, 2) if a.known(k)), a.source.dtype)
            )


def propose_variadic(a: OperatorDraft) -> None:
    """Sum(a, b, ...) and its kin; each operand broadcasts with those before."""
    for i in range(len(a.inputs)):
        if a.optional(i):
            place_beside(a, i)
    if a.tail is not None:
        for _ in range(a.pick("operands", (2, 3, 1, 4) if not a.inputs else (0, 1, 2))):
            place_beside(a, len(a.inputs))


def propose_dropout(a: OperatorDraft) -> None:
    """Dropout(x, ratio, training)."""
    a.fresh_input(0, RANKS)
    if a.optional(1):
        a.parameter_of(1, np.float32(a.pick("ratio", (0.5, 0.0))))
    if a.optional(2):
        a.parameter_of(2, np.bool_(a.pick("training", (False, True), (3, 1))))


ELEMENTWISE_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "Clip"): propose_clip,
    ("", "Cast"): propose_cast,
    ("", "Where"): propose_where,
    ("", "Sum"): propose_variadic,
    ("", "Mean"): propose_variadic,
    ("", "Max"): propose_variadic,
    ("", "Min"): propose_variadic,
    ("", "Dropout"): propose_dropout,
}
