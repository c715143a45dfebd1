"""Builder of random models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

BATCH = 1
Shape = tuple[int, ...]


class Chooser(Protocol):
    """Source of the decisions that a random model needs."""

    def choose(self, options: Sequence[Any]) -> Any: ...

    def permutation(self, length: int) -> list[int]: ...


class Drawn:
    """Decisions drawn by Hypothesis, which can shrink them."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw

    def choose(self, options: Sequence[Any]) -> Any:
        return self._draw(st.sampled_from(list(options)))

    def permutation(self, length: int) -> list[int]:
        return list(self._draw(st.permutations(range(length))))


class Seeded:
    """Decisions by a seeded generator, which spread wider than Hypothesis's."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def choose(self, options: Sequence[Any]) -> Any:
        return self._random.choice(options)

    def permutation(self, length: int) -> list[int]:
        return self._random.sample(range(length), length)


@dataclass
class Net:
    """Model under construction: its nodes, its values by name and shape, and the sources of decisions and weights."""

    chooser: Chooser
    rng: np.random.Generator
    dtype: Any = np.float32
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)
    shapes: dict[str, Shape] = field(default_factory=dict)
    live: list[str] = field(default_factory=list)

    def node(self, op: str, inputs: Sequence[str], shape: Shape, **attrs: Any) -> str:
        """Append a node with one result of this shape."""
        return self.nodes_with(op, inputs, [shape], **attrs)[0]

    def nodes_with(self, op: str, inputs: Sequence[str], shapes: Sequence[Shape], **attrs: Any) -> list[str]:
        """Append a node with results of these shapes."""
        names = [f"v{len(self.shapes) + i}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, list(inputs), names, f"n{len(self.nodes)}", **attrs))
        self.shapes.update(zip(names, shapes, strict=True))
        return names

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Add normal numbers, scaled so that sums over the first axes keep unit size, or return an earlier weight."""
        fan = float(np.prod(shape[:-1])) if scale is None else 1.0
        array = self.rng.standard_normal(shape) * (scale or 1.0) / np.sqrt(max(fan, 1.0))
        known = [t.name for t in self.initializers if tuple(t.dims) == shape and t.name.startswith("w")]
        if known and self.flip():
            return known[self.rng.integers(len(known))]
        return self.constant(array.astype(self.dtype), "w")

    def constant(self, array: np.ndarray[Any, Any], prefix: str = "c") -> str:
        name = f"{prefix}{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, dtype=self.dtype))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def flip(self) -> bool:
        return bool(self.chooser.choose((False, True)))

    def choose(self, options: Sequence[Any]) -> Any:
        return self.chooser.choose(options)

    def pick(self, rank: int) -> str | None:
        """Return a value of this rank that blocks may read, if there is one."""
        options = [name for name in self.live if len(self.shapes[name]) == rank]
        return self.choose(options) if options else None

    def partner(self, shape: Shape, *others: str) -> str:
        """Return a value of this shape that blocks may read, or else the first of `others`."""
        options = [name for name in self.live if self.shapes[name] == shape]
        return self.choose(options) if options else others[0]


Block = Callable[[Net, str], list[str]]
"""Function that appends operators which read the given value and returns the values that later blocks may read."""
