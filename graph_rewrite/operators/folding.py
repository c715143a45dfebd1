"""Constant expressions: built in canonical form, evaluated once, cached by content."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.attributes import AttrValue, operator_signature
from graph_rewrite.ir.constants import Constant, ConstantExpression, from_array, from_ints
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.evaluation import run_operator

_KNOWN: weakref.WeakValueDictionary[tuple[str, tuple[int, ...]], Constant] = weakref.WeakValueDictionary()
"""Constants in use, by digest and by the expressions that their operands were folded from: operands of equal contents
may stand for different exact numbers. An expression holds its operands, so that their ids stay theirs."""


def fold(
    op: str,
    domain: str,
    attrs: Mapping[str, AttrValue],
    inputs: Sequence[Constant | None],
    types: Sequence[TensorType],
    opset: int,
) -> tuple[Constant, ...]:
    """The outputs of an operator over constants, as constants.

    Small ones are evaluated at once; for the others, moves that undo each other (Transpose of Transpose, Reshape of
    Reshape) are composed, so that a rewrite and its inverse give the constant they started from.
    """
    op, attrs, inputs = _compose(op, attrs, inputs, types[0])
    if op == "Identity" and inputs[0] is not None:
        return (inputs[0],)
    signature = operator_signature(op, domain, attrs)
    names = tuple([None if constant is None else constant.digest for constant in inputs])
    origins = tuple(0 if constant is None or constant.origin is None else id(constant.origin) for constant in inputs)
    results = []
    for index, type in enumerate(types):
        key = _digest(signature, names, index, len(types), type, opset)
        known = _KNOWN.get((key, origins))
        if known is None:
            expression = ConstantExpression(
                op, domain, dict(attrs), tuple(inputs), index, opset, len(types), evaluate_constant
            )
            known = Constant(type, key, expression=expression)
            if known.is_small and all(constant is None or constant.is_small for constant in inputs):
                known = from_array(evaluate_constant(known))
                known.origin = expression
            _KNOWN[key, origins] = known
        results.append(known)
    return tuple(results)


@lru_cache(maxsize=65536)
def _digest(
    signature: str, names: tuple[str | None, ...], index: int, outputs: int, type: TensorType, opset: int
) -> str:
    return digest("fold", signature, list(names), index, outputs, str(type), opset)


def evaluate_constant(constant: Constant) -> np.ndarray[Any, Any]:
    """Return the elements of a constant expression.

    Raises:
        UnknownOperatorError: the operator has no reference semantics.
        InvalidRewriteError: the operator cannot be computed over its operands, or gives another shape than declared.
    """
    expression = constant.expression
    if expression is None:
        raise ValueError(f"{constant!r} is not an expression")
    arrays = [None if source is None else source.numpy() for source in expression.inputs]
    results = run_operator(
        expression.op, expression.domain, expression.attrs, arrays, expression.opset, expression.outputs
    )
    array = np.asarray(results[expression.index])
    wanted = constant.type
    if tuple(array.shape) != wanted.shape:
        raise InvalidRewriteError(f"{expression.op} over constants gave shape {array.shape}, expected {wanted.shape}")
    return array


def _compose(
    op: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Constant | None], type: TensorType
) -> tuple[str, Mapping[str, AttrValue], Sequence[Constant | None]]:
    first = inputs[0] if inputs else None
    if first is None or op not in ("Transpose", "Reshape", "Identity", "Flatten", "Squeeze", "Unsqueeze"):
        return op, attrs, inputs
    inner = first.expression
    if op == "Transpose":
        perm = tuple(attrs.get("perm", tuple(reversed(range(first.type.rank)))))
        if inner is not None and inner.op == "Transpose" and inner.inputs[0] is not None:
            first, before = inner.inputs[0], inner.attrs["perm"]
            perm = tuple(before[axis] for axis in perm)
        if perm == tuple(range(len(perm))):
            return "Identity", {}, [first]
        return "Transpose", {"perm": perm}, [first]
    if op == "Identity":
        return op, attrs, inputs
    if inner is not None and inner.op == "Reshape" and inner.inputs[0] is not None:
        first = inner.inputs[0]
    if first.type == type:
        return "Identity", {}, [first]
    # Otherwise a target of 0 stands for the size before.
    return "Reshape", {"allowzero": 1} if 0 in type.shape else {}, [first, from_ints(type.shape)]
