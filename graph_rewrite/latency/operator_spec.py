"""One operator application, described so fully that it can be timed alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

ValueType = tuple[int, tuple[int, ...]]
"""Element type (`onnx.TensorProto.DataType`) and static shape."""
_VIEWS = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
"""Operators whose output lies where their input does."""


@dataclass(frozen=True)
class OperatorSpec:
    """An operator with its attributes and the types of what it takes and gives.

    `attrs` holds ints, floats, strs, bytes, tuples of these, arrays (tensor attributes) or `onnx.AttributeProto`.
    `input_types` and `output_types` have None where an optional one is left out. `constant_inputs` says which inputs
    are constants, by index: with their array where the values matter (shapes, axes, indices), with None where they are
    weights of which only the type matters. `opset` is the version of the operator's domain.
    """

    op: str
    domain: str
    attrs: Mapping[str, Any]
    input_types: tuple[ValueType | None, ...]
    output_types: tuple[ValueType | None, ...]
    constant_inputs: Mapping[int, NDArray[Any] | None] = field(default_factory=dict)
    opset: int = 23

    @property
    def is_constant(self) -> bool:
        """Return whether every input is a constant: ONNX Runtime then computes it once, when the model is opened."""
        present = [index for index, kind in enumerate(self.input_types) if kind is not None]
        return all(index in self.constant_inputs for index in present)

    @property
    def is_view(self) -> bool:
        """Return whether the operator moves nothing inside a model: its output is its first input under another shape.
        Alone in a model it takes the time of a copy, as inputs and outputs of a model have memory of their own."""
        return self.op in _VIEWS and not self.domain

    @cached_property
    def key(self) -> str:
        """Stable digest; equal specs cost the same."""
        attrs = sorted((name, _token(value)) for name, value in self.attrs.items())
        constants = sorted((index, _token(value)) for index, value in self.constant_inputs.items())
        parts = (self.op, self.domain, self.opset, attrs, self.input_types, self.output_types, constants)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def _token(value: Any) -> str:
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.dtype}{value.shape} {digest}"
    if hasattr(value, "SerializeToString"):
        return f"proto {value.SerializeToString(deterministic=True)!r}"
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_token, value))}]"
    return f"{type(value).__name__} {value!r}"
