"""Degrees of the polynomials that a graph computes: they bound how often random elements hide a difference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.domains.prime_field import P
from graph_rewrite.soundness.semantics.evaluation import Evaluator, inputs_of

_TYPE = np.dtype([("n", np.float64), ("d", np.float64)])
"""Bounds of the degrees of numerator and denominator; floats, as they may grow beyond 64 bits."""


@dataclass(frozen=True, slots=True)
class Bound:
    """`degree` of the difference of any two outputs, with its denominators cleared, and what functions add: how many
    were applied, and the degree of the difference of any two of their arguments."""

    degree: float
    functions: int
    argument: float

    @property
    def per_trial(self) -> float:
        """The probability that one trial does not show a difference: that of the outputs (Schwartz-Zippel), or that
        arguments of functions that differ coincide."""
        return (self.degree + self.functions**2 / 2 * self.argument) / P

    def error(self, trials: int) -> float:
        """The probability that no trial of so many shows a difference, to two digits; 0 where there is no bound."""
        return 0.0 if self.per_trial >= 1 else float(f"{max(self.per_trial**trials, math.ulp(0.0)):.1e}")

    def text(self, trials: int) -> str:
        """In words."""
        if self.per_trial >= 1:
            return f"degree {self.degree:.3g}, too high for a bound of the error"
        apart = f" and {self.functions} applications of functions to arguments of degree {self.argument:.0f}"
        return f"degree {self.degree:.0f}{apart if self.functions else ''}: error at most {self.error(trials):.1e}"


class Degrees:
    """Upper bounds of degrees instead of numbers."""

    def __init__(self) -> None:
        self.functions, self.argument = 0, 0.0

    def literal(self, value: Fraction | float, symbol: str = "") -> tuple[float, float]:
        return (1.0 if symbol else 0.0), 0.0

    def array(self, elements: Sequence[Any], shape: tuple[int, ...]) -> Array:
        return np.array(list(elements), dtype=_TYPE).reshape(shape)

    def variables(self, name: str, shape: tuple[int, ...]) -> Array:
        return _of(np.ones(shape), np.zeros(shape))

    def truths(self, name: str, shape: tuple[int, ...]) -> Array:
        return np.ones(shape, dtype=np.bool_)

    def add(self, a: Array, b: Array) -> Array:
        return _of(np.maximum(a["n"] + b["d"], b["n"] + a["d"]), a["d"] + b["d"])

    def mul(self, a: Array, b: Array) -> Array:
        return _of(a["n"] + b["n"], a["d"] + b["d"])

    def neg(self, a: Array) -> Array:
        return a

    def reciprocal(self, a: Array) -> Array:
        return _of(a["d"], a["n"])

    def maximum(self, args: Sequence[Array]) -> Array:
        return args[0] if len(args) == 1 else self.function("maximum", args)

    def function(self, name: str, args: Sequence[Array]) -> Array:
        arrays = np.broadcast_arrays(*args)
        self.functions += arrays[0].size
        numbers = [a for a in arrays if a.dtype.names]  # the others are truth values
        self.argument = max([self.argument, *(2 * float(np.max(a["n"] + a["d"], initial=0.0)) for a in numbers)])
        return _of(np.ones(arrays[0].shape), np.zeros(arrays[0].shape))

    def less(self, a: Array, b: Array) -> Array:
        return np.ones(self.function("Less", [a, b]).shape, dtype=np.bool_)

    def equal(self, a: Array, b: Array) -> Array:
        return self.less(a, b)

    def both(self, a: Array, b: Array) -> Array:
        return np.logical_and(a, b)

    def negation(self, a: Array) -> Array:
        return a

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return _of(np.maximum(a["n"], b["n"]), np.maximum(a["d"], b["d"]))

    def infinite(self, a: Array) -> Array:
        return np.zeros(a.shape, dtype=np.int64)


def _of(numerator: Array, denominator: Array) -> Array:
    n, d = np.broadcast_arrays(numerator, denominator)
    result = np.empty(n.shape, dtype=_TYPE)
    result["n"], result["d"] = n, d
    return result


def error_bound(
    before: Graph,
    after: Graph,
    interpretation: Interpretation,
    free: frozenset[str],
    masks: frozenset[str],
    integers: bool,
) -> Bound:
    """The bound for a comparison of two graphs that `Evaluator` can evaluate.

    Raises:
        Unsupported: as `Evaluator.outputs`.
    """
    degrees = Degrees()
    evaluator = Evaluator(degrees, interpretation, free, masks)
    inputs = inputs_of(before, degrees, 0, integers)
    worst = 0.0
    for a, b in zip(evaluator.outputs(before, inputs), evaluator.outputs(after, inputs), strict=True):
        if a.array.dtype == _TYPE and b.array.dtype == _TYPE and a.array.size:
            both = np.maximum(a.array["n"] + b.array["d"], b.array["n"] + a.array["d"])
            worst = max(worst, float(np.max(both)))
    return Bound(worst, degrees.functions, degrees.argument)
