"""The interface of a domain: the numbers that a graph is evaluated over.

There are three: a prime field (`prime_field`), the reals (`reals`), and degrees of polynomials (`degrees`). The
evaluator in `soundness.semantics` knows operators; a `Domain` knows numbers. Arrays are numpy arrays whose elements
mean something to their domain only. Shapes and the movement of elements are numpy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np

Array = np.ndarray[Any, Any]


class Unsupported(Exception):
    """A graph has no exact meaning in a domain; the message says why."""


class NeedsIntegers(Unsupported):
    """An operator reads indices or a shape that depend on the inputs."""


class DivisorIsZero(ArithmeticError):
    """A divisor is zero at the values that variables have."""


class Domain(Protocol):
    """Numbers of some kind. Operands of element-wise operations broadcast."""

    def literal(self, value: Fraction | float, symbol: str = "") -> Any:
        """An element: `value`, a float only where it is infinite, times the irrational number called `symbol`."""

    def array(self, elements: Sequence[Any], shape: tuple[int, ...]) -> Array:
        """Elements as an array."""

    def variables(self, name: str, shape: tuple[int, ...]) -> Array:
        """Free variables, the same for the same name and shape."""

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        """Free truth values."""

    def add(self, a: Array, b: Array) -> Array: ...

    def mul(self, a: Array, b: Array) -> Array: ...

    def neg(self, a: Array) -> Array: ...

    def reciprocal(self, a: Array) -> Array: ...

    def maximum(self, args: Sequence[Array]) -> Array:
        """The largest of the arguments, element by element."""

    def function(self, name: str, args: Sequence[Array]) -> Array:
        """A function of this name, the same everywhere, of the arguments element by element."""

    def less(self, a: Array, b: Array) -> Array: ...

    def equal(self, a: Array, b: Array) -> Array: ...

    def both(self, a: Array, b: Array) -> Array:
        """Logical and."""

    def negation(self, a: Array) -> Array:
        """Logical not."""

    def select(self, condition: Array, a: Array, b: Array) -> Array: ...

    def infinite(self, a: Array) -> Array:
        """-1 where an element is minus infinity, 1 where it is plus infinity, else 0."""
