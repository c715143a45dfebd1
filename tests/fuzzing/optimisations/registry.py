"""The steps from which random models are made: each adds one operator or a block to a value of a kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.fuzzing.optimisations.builder import BOOL, FLOAT, INT8, INT32, INT64, UINT8, Builder, Value

Make = Callable[[Builder, Value], Value]
Fits = Callable[[Value], bool]


@dataclass(frozen=True)
class Step:
    """Adds nodes to a value that it fits, and returns the value to go on from; raises Unfit where it cannot."""

    name: str
    make: Make
    fits: Fits
    weight: float


STEPS: list[Step] = []


def step(fits: Fits, weight: float = 1.0) -> Callable[[Make], Make]:
    """Register a function as a step."""

    def register(make: Make) -> Make:
        STEPS.append(Step(make.__name__, make, fits, weight))
        return make

    return register


def anything(x: Value) -> bool:
    return x.rank > 0


def floats(x: Value) -> bool:
    return x.is_float


def tensors(x: Value) -> bool:
    """Floats with at least one axis."""
    return x.is_float and x.rank > 0


def matrices(x: Value) -> bool:
    """Floats with at least two axes."""
    return x.is_float and x.rank >= 2


def sequences(x: Value) -> bool:
    """Floats of batch, positions and features."""
    return x.is_float and x.rank == 3


def single_sequences(x: Value) -> bool:
    return x.dtype == FLOAT and x.rank == 3


def images(x: Value) -> bool:
    """Floats of batch, channels, height and width."""
    return x.is_float and x.rank == 4


def integers(x: Value) -> bool:
    return x.dtype in (INT64, INT32, UINT8, INT8)


def wide_integers(x: Value) -> bool:
    return x.dtype in (INT64, INT32)


def booleans(x: Value) -> bool:
    return x.dtype == BOOL
