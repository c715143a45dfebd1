"""Operators of ONNX Runtime's blocked layout over a domain, by their steps in ONNX's own operators (`nchwc.expand`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.operators import nchwc
from graph_rewrite.operators.standard_semantics import UnknownOperatorError
from graph_rewrite.soundness.domains.domain import Unsupported
from graph_rewrite.soundness.semantics.call import Call, Tensor
from graph_rewrite.soundness.semantics.standard import STANDARD


@dataclass(frozen=True, slots=True)
class _Shaped:
    """A tensor, with its shape where `expand` looks for it."""

    tensor: Tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.array.shape)


def blocked(call: Call) -> Tensor:
    """The result of an operator of com.microsoft.nchwc."""

    def apply(op: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> _Shaped:
        step = Call(call.domain, call.interpretation, op, attrs, tuple(map(_tensor, inputs)), nchwc.OPSET, 1)
        found = STANDARD[op](step)
        first = found[0] if isinstance(found, (list, tuple)) else found
        return _Shaped(first if isinstance(first, Tensor) else Tensor(np.asarray(first), call.first.dtype))

    inputs = [None if tensor is None else _Shaped(tensor) for tensor in call.inputs]
    try:
        result: _Shaped = nchwc.expand(call.op, call.attrs, inputs, apply)
    except UnknownOperatorError as error:
        raise Unsupported(str(error)) from error
    return result.tensor


def _tensor(value: Any) -> Tensor | None:
    if value is None:
        return None
    return value.tensor if isinstance(value, _Shaped) else Tensor(np.asarray(value), TensorProto.INT64, known=True)
