"""Kinds of inputs on which two graphs are compared, and what a difference on each of them means."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from onnx import helper

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.input_ranges import index_ranges

Array = np.ndarray[Any, Any]
Policy = Literal["strict", "finite", "report"]


@dataclass(frozen=True, slots=True)
class InputKind:
    """A kind of inputs: the distribution of floating-point numbers (integers, booleans and indices are drawn alike in
    every kind).

    `policy` says what refutes an equality at which the source is finite throughout. `strict`: any difference, a target
    that is not finite included. `finite`: a difference of finite numbers; a target that overflows is only reported.
    `report`: nothing, differences are reported.
    """

    name: str
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    policy: Policy

    @property
    def zeros(self) -> bool:
        """True where zeros of either sign are what it is about."""
        return "zeros" in self.name


def _nonfinite(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    special = rng.choice([np.nan, np.inf, -np.inf], size=shape)
    return np.where(rng.random(shape) < 0.2, special, rng.standard_normal(shape))


def _signs(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.choice([-1.0, 1.0], size=shape)


KINDS: tuple[InputKind, ...] = (
    InputKind("normal", lambda rng, shape: rng.standard_normal(shape), "strict"),
    InputKind("positive", lambda rng, shape: rng.uniform(1.1, 3.0, shape), "strict"),
    InputKind("unit", lambda rng, shape: rng.uniform(0.05, 0.95, shape), "strict"),
    InputKind("integers", lambda rng, shape: rng.integers(-3, 4, shape).astype(np.float64), "strict"),
    InputKind("small", lambda rng, shape: 1e-3 * rng.standard_normal(shape), "strict"),
    InputKind("zeros", lambda rng, shape: np.zeros(shape), "strict"),
    InputKind("negative zeros", lambda rng, shape: -np.zeros(shape), "strict"),
    InputKind("signed zeros", lambda rng, shape: rng.choice([-1.0, -0.0, 0.0, 1.0], size=shape), "strict"),
    InputKind("large", lambda rng, shape: 1e4 * rng.standard_normal(shape), "finite"),
    InputKind("huge", lambda rng, shape: 1e30 * _signs(rng, shape) * rng.uniform(0.5, 2.0, shape), "finite"),
    InputKind("denormal", lambda rng, shape: 1e-40 * _signs(rng, shape) * rng.uniform(0.5, 2.0, shape), "finite"),
    InputKind("NaN and infinities", _nonfinite, "report"),
)
"""Every kind, the plainest first: a counterexample is taken from the first kind that gives one."""

_NO_ZERO = frozenset({"BitShift", "Div", "Mod", "Pow"})
_BY_NAME = {kind.name: kind for kind in KINDS}


def kind(name: str) -> InputKind:
    """The kind of this name.

    Raises:
        ValueError: there is none.
    """
    if name not in _BY_NAME:
        raise ValueError(f"there is no kind of inputs {name!r}; known are {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def feeds(graph: Graph, kind: InputKind, seed: int) -> dict[str, Array]:
    """An array per input of `graph`, by name; the same for equal names, types, kind and seed.

    Integers are drawn from -3 to 3 (from 1 on where any operator divides: dividing by the integer 0 ends the process),
    and from the range that is valid where they select entries of a table. Numbers of a narrower type are clipped to its
    range.

    Raises:
        ValueError: an input without a static type.
    """
    ranges, found = index_ranges(graph), {}
    least = 1 if any(node.op in _NO_ZERO for node in graph.nodes.values()) else -3
    for value in graph.inputs:
        name, type = graph.names[value], graph.types[value]
        if type is None:
            raise ValueError(f"input {name} has no static type")
        # Seeded by name: a graph and its rewrite may list their inputs in different orders.
        rng = np.random.default_rng([seed, zlib.crc32(kind.name.encode()), zlib.crc32(name.encode())])
        found[name] = _draw(rng, type, kind, ranges.get(name), least)
    return found


def _draw(
    rng: np.random.Generator, type: TensorType, kind: InputKind, valid: tuple[int, int] | None, least: int
) -> Array:
    dtype = helper.tensor_dtype_to_np_dtype(type.dtype)
    if valid is not None:
        return rng.integers(*valid, type.shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, type.shape).astype(dtype)
    if dtype.kind in "iu":
        return rng.integers(max(least, 0) if dtype.kind == "u" else least, 4, type.shape).astype(dtype)
    drawn = np.asarray(kind.draw(rng, type.shape), dtype=np.float64)
    if dtype == np.float16:
        largest = float(np.finfo(np.float16).max)
        drawn = np.where(np.isfinite(drawn), np.clip(drawn, -largest, largest), drawn)
    return drawn.astype(dtype)
