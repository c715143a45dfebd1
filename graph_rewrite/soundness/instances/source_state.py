"""The state of a source graph in the making: what the choices made so far have fixed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graph_rewrite.onnx_files.assembly import Assembly
from graph_rewrite.rewriting.patterns import Maybe, Pattern, PatternNode, PatternOutput, PatternValue, Value, Var
from graph_rewrite.soundness.instances.chooser import Chooser
from graph_rewrite.soundness.instances.element_types import DTYPE_WEIGHTS, DTYPES, element_types_of
from graph_rewrite.soundness.instances.ranks import AcceptedRanks

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class SourceState:
    """Bindings of the pattern's variables and attributes, the operators assembled so far, and the source of choices."""

    def __init__(self, pattern: Pattern, chooser: Chooser, examples: Mapping[str, Sequence[Any]], seed: int) -> None:
        self.chooser, self.examples = chooser, examples
        self.assembly = Assembly()
        self.ranks = AcceptedRanks(pattern)
        self.bound: dict[str, Any] = {}
        """Variables: a value, None where left out, or a tuple of values."""
        self.attrs: dict[str, Any] = {}
        self.results: dict[PatternNode, tuple[int, ...]] = {}
        """The values that the operators assembled so far compute."""
        self.beside: dict[bool, tuple[str, ...]] = {}
        """The last choice of an operand's shape beside the others, for constants and for other operands."""
        self.reduced = 0
        """The number of last axes that the last reduction went over."""
        self._numbers = np.random.default_rng(seed)
        usable = element_types_of(pattern)
        weights = [weight for dtype, weight in zip(DTYPES, DTYPE_WEIGHTS, strict=True) if dtype in usable]
        self.dtype = int(chooser.pick("element type", [dtype for dtype in DTYPES if dtype in usable], weights))
        values = [v.name for v in pattern.variables if v.kind in (Value, Maybe)]
        values = values if len(values) > 1 else []
        self._constant = chooser.pick("constant", (None, *values), (4.0 * len(values) + 1, *(1.0,) * len(values)))

    def value_of(self, value: PatternValue | None) -> int | None:
        """Return the value that a variable or an output of the pattern is bound to; None where there is none yet, or it
        is left out."""
        if isinstance(value, PatternOutput):
            return self.results[value.node][value.index]
        bound = None if value is None else self.bound.get(value.name)
        return bound if isinstance(bound, int) else None

    def shapes_so_far(self, ranks: Sequence[int]) -> dict[str, Shape]:
        """Shapes of the graph's inputs of these ranks, by name; the latest first."""
        found = {name: self.assembly.types[v].shape for name, v in reversed(self.bound.items()) if isinstance(v, int)}
        inputs = {n: s for n, s in found.items() if self.bound[n] not in self.assembly.constants}
        return {name: shape for name, shape in inputs.items() if len(shape) in ranks and shape}

    def is_constant(self, variable: Var) -> bool:
        """Return whether a variable for any value is to be a constant."""
        return bool(variable.name == self._constant)

    def random(self, shape: Shape, dtype: np.dtype[Any], positive: bool = False) -> Array:
        """Seeded eighths up to 3, without 0; small whole numbers for integers."""
        if dtype.kind == "b":
            return np.asarray(self._numbers.integers(0, 2, shape), dtype=dtype)
        numbers = self._numbers.integers(1, 25 if dtype.kind == "f" else 4, shape) / (8.0 if dtype.kind == "f" else 1.0)
        signs = 1 if positive or dtype.kind == "u" else self._numbers.choice((-1, 1), shape)
        return np.asarray(numbers * signs).astype(dtype)
