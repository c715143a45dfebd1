"""A call of an operator on tensors over a domain: what the evaluator hands to the semantics of the operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.attributes import AttrValue, float32
from graph_rewrite.soundness.domains.domain import Array, Domain, NeedsIntegers, Unsupported
from graph_rewrite.soundness.domains.interpretation import HALF, SINGLE, Interpretation, root

FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
)  # fmt: skip
"""Element types that stand for the real numbers."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array over a domain; or, where `known`, of the integers or truth values that it holds. `values` are the
    numbers of a constant; `held` is a type that holds every element exactly, where it is not `dtype`."""

    array: Array
    dtype: int
    known: bool = False
    values: Array | None = None
    held: int | None = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(slots=True)
class Call:
    """An operator to be applied, as its semantics see it."""

    domain: Domain
    interpretation: Interpretation
    op: str
    attrs: Mapping[str, AttrValue]
    inputs: tuple[Tensor | None, ...]
    opset: int
    outputs: int

    def array(self, index: int) -> Array:
        """Input `index` as elements of the domain; truth values are 0 and 1.

        Raises:
            Unsupported: the input was left out.
        """
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise Unsupported(f"{self.op} without input {index}")
        if tensor.dtype == TensorProto.BOOL and not tensor.known:
            one, zero = (np.broadcast_to(self.rational(n), tensor.array.shape) for n in (1, 0))
            return self.domain.select(tensor.array, one, zero)
        return self.interpretation.array(self.domain, tensor.array) if tensor.known else tensor.array

    def maybe(self, index: int) -> Array | None:
        """Input `index`, None where it was left out."""
        return self.array(index) if self.has(index) else None

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def arrays(self) -> list[Array]:
        """All inputs."""
        return [self.array(i) for i in range(len(self.inputs))]

    def condition(self, index: int) -> Array:
        """An input of truth values."""
        tensor = self.inputs[index]
        assert tensor is not None
        return tensor.array

    def known(self, index: int) -> Array:
        """Input `index` as integers that don't depend on the graph's inputs.

        Raises:
            NeedsIntegers: they do depend on them.
        """
        tensor = self.inputs[index]
        if tensor is None or not tensor.known:
            raise NeedsIntegers(f"{self.op} reads indices or a shape that depend on the inputs")
        return tensor.array

    def attr(self, name: str, default: float) -> Array:
        """A float attribute as a scalar of the domain. Defaults are float32, as given ones are."""
        return self.number(float(self.attrs.get(name, float32(default))))

    def number(self, value: float) -> Array:
        """A float literal as a scalar of the domain."""
        half = bool(self.inputs) and self.first.dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        return self.domain.array(
            [self.domain.literal(*self.interpretation.number(value, HALF if half else SINGLE))], ()
        )

    def rational(self, value: Fraction | int) -> Array:
        """A rational number as a scalar of the domain, exactly."""
        return self.domain.array([self.domain.literal(Fraction(value))], ())

    def root(self, square: Fraction) -> Array:
        """The root of a positive rational number as a scalar of the domain."""
        return self.domain.array([self.domain.literal(*root(square))], ())

    @property
    def first(self) -> Tensor:
        """The first input.

        Raises:
            Unsupported: there is none.
        """
        tensor = self.inputs[0] if self.inputs else None
        if tensor is None:
            raise Unsupported(f"{self.op} without its first input")
        return tensor


Semantics = Callable[[Call], Any]
"""The function that an operator computes, over any domain: an array, a `Tensor`, or a sequence of these, an entry per
output."""
