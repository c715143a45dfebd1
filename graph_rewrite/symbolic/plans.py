"""Plans: constants of a rewritten graph that depend on the shapes of its inputs, as computations from these shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graph_rewrite.ir.constants import Constant, ConstantExpression, nbytes
from graph_rewrite.ir.node import Node
from graph_rewrite.symbolic.integers import Formula, fit
from graph_rewrite.symbolic.lanes import Lane

MOST_INTEGERS = 64
"""Longest vector of integers that is written as formulas: shapes, axes, paddings."""
MOST_BYTES = 16 << 20
"""Largest constant that is kept whole for parts of it."""
_ROUNDING = 1e-6
"""Difference, relative to the scale, between a constant and that part of a larger one: products of matrices round
differently by size."""
_SLICE_BY_INPUTS = 10
"""The first opset in which Slice reads its ends from an input."""
_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)


@dataclass(frozen=True)
class Fixed:
    """A constant that is the same at every binding."""

    constant: Constant


@dataclass(frozen=True)
class Integers:
    """A tensor of integers, each a formula of the symbols."""

    formulas: tuple[Formula, ...]
    shape: tuple[int, ...]
    dtype: int


@dataclass(frozen=True)
class Rows:
    """The first elements of a constant along some axes."""

    constant: Constant
    axes: tuple[int, ...]
    sizes: tuple[Formula, ...]


@dataclass(frozen=True)
class Runtime:
    """A value of the graph itself, of which only the shape is read."""

    value: int


@dataclass(frozen=True)
class Computed:
    """Output `index` of an operator over other plans. `source` is the value of the original model that it is, where it
    is one."""

    op: str
    domain: str
    attrs: Mapping[str, Any]
    inputs: tuple[Plan | None, ...]
    index: int
    outputs: int
    key: Any


Plan = Fixed | Integers | Rows | Runtime | Computed


class Planner:
    """Finds plans for constants that the lanes hold in the same place.

    In order of preference: one constant, where all are equal; formulas of the symbols, for small vectors of integers;
    part of the constant at the largest size, where there is one; what the original model computes the constant by; what
    a rewrite computed it by.
    """

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = lanes
        self._symbols = [lane.symbols for lane in lanes]
        self._plans: dict[tuple[str, ...], Plan | None] = {}
        self._origins: dict[tuple[str, ...], int] | None = None
        self._sources: dict[int, Plan | None] = {}

    def plan(self, constants: Sequence[Constant]) -> Plan | None:
        """Return a plan for the constants at one place, a constant per lane; None where there is none."""
        first = constants[0]
        if all(constant is first for constant in constants):
            return Fixed(first)
        key = tuple(constant.digest for constant in constants)
        if key not in self._plans:
            self._plans[key] = None  # an expression never reads itself; this only ends a recursion
            self._plans[key] = self._made(constants, key)
        return self._plans[key]

    def formulas(self, rows: Sequence[Sequence[int]]) -> tuple[Formula, ...] | None:
        """Return a formula per position of vectors of integers, one vector per lane."""
        found = [fit(column, self._symbols) for column in zip(*rows, strict=True)]
        known = tuple(formula for formula in found if formula is not None)
        return known if len(known) == len(found) else None

    def _made(self, constants: Sequence[Constant], key: tuple[str, ...]) -> Plan | None:
        if len(set(key)) == 1:
            return Fixed(constants[0])
        return self._integers(constants) or self._rows(constants) or self._original(key) or self._rewritten(constants)

    def _rows(self, constants: Sequence[Constant]) -> Plan | None:
        """Return the part of the constant at the largest size that the others are."""
        pairs = zip(constants, self._lanes, strict=True)
        full, limited = next(((c, lane.limited) for c, lane in pairs if lane.limited), (None, frozenset[str]()))
        if full is None or nbytes(full) > MOST_BYTES or self._lanes[0].graph.opset < _SLICE_BY_INPUTS:
            return None
        shapes = [constant.type.shape for constant in constants]
        if any(len(shape) != full.type.rank for shape in shapes):
            return None
        axes = tuple(axis for axis in range(full.type.rank) if len({shape[axis] for shape in shapes}) > 1)
        sizes = self.formulas([[shape[axis] for axis in axes] for shape in shapes])
        if not axes or sizes is None or any(not limited.issuperset(t.symbols) for size in sizes for t in size.terms):
            return None
        same = all(_is_part(constant, full) for constant in constants)
        return Rows(full, axes, sizes) if same else None

    def _integers(self, constants: Sequence[Constant]) -> Plan | None:
        type = constants[0].type
        if type.dtype not in _INTEGERS or type.size > MOST_INTEGERS or any(c.type != type for c in constants):
            return None
        formulas = self.formulas([[int(i) for i in constant.numpy().reshape(-1)] for constant in constants])
        return None if formulas is None else Integers(formulas, type.shape, type.dtype)

    def _original(self, key: tuple[str, ...]) -> Plan | None:
        """Return the original model's own computation of a constant."""
        if self._origins is None:
            self._origins = {}
            for value in self._lanes[0].unfolded.producer:
                known = [lane.known[value] for lane in self._lanes if value in lane.known]
                if len(known) == len(self._lanes):
                    self._origins.setdefault(tuple(constant.digest for constant in known), value)
        found = self._origins.get(key)
        return None if found is None else self._source(found)

    def _source(self, value: int) -> Plan | None:
        """Return the original model's computation of one of its values that are known at every binding."""
        if value not in self._sources:
            self._sources[value] = None
            self._sources[value] = self._cone(value)
        return self._sources[value]

    def _cone(self, value: int) -> Plan | None:
        unfolded = self._lanes[0].unfolded
        node = unfolded.node_of(value)
        if node is None:
            return None
        inputs: list[Plan | None] = []
        for read in node.inputs:
            plan = None if read is None else self._read(node, read)
            if plan is None and read is not None:
                return None
            inputs.append(plan)
        return Computed(
            node.op, node.domain, node.attrs, tuple(inputs), node.outputs.index(value), len(node.outputs), node.id
        )

    def _read(self, node: Node, value: int) -> Plan | None:
        known = [lane.known[value] for lane in self._lanes if value in lane.known]
        if len(known) == len(self._lanes):
            same = len({constant.digest for constant in known}) == 1
            return Fixed(known[0]) if same else self._integers(known) or self._source(value)
        return Runtime(value) if node.op in ("Shape", "Size") else None

    def _rewritten(self, constants: Sequence[Constant]) -> Plan | None:
        """Return the computation by which rewrites made a constant out of others."""
        origins = [constant.origin for constant in constants if constant.origin is not None]
        if len(origins) != len(constants) or not _same_operator(origins):
            return None
        first = origins[0]
        inputs: list[Plan | None] = []
        for operands in zip(*(origin.inputs for origin in origins), strict=True):
            present = [operand for operand in operands if operand is not None]
            plan = self.plan(present) if len(present) == len(operands) else None
            if plan is None and present:
                return None
            inputs.append(plan)
        key = tuple(constant.digest for constant in constants)
        return Computed(first.op, first.domain, first.attrs, tuple(inputs), first.index, first.outputs, key)


def _is_part(constant: Constant, full: Constant) -> bool:
    """Tell whether a constant is the first part of another along every axis, as far as rounding goes."""
    if any(size > most for size, most in zip(constant.type.shape, full.type.shape, strict=True)):
        return False
    part, array = full.numpy()[tuple(slice(size) for size in constant.type.shape)], constant.numpy()
    if array.dtype.kind not in "fV":
        return np.array_equal(part, array)
    wide, scale = array.astype(np.float64), np.abs(array.astype(np.float64)).max(initial=0.0)
    return np.allclose(part.astype(np.float64), wide, rtol=0.0, atol=_ROUNDING * scale, equal_nan=True)


def _same_operator(origins: Sequence[ConstantExpression]) -> bool:
    first = origins[0]
    return all(
        (o.op, o.domain, o.index, o.outputs, o.opset, len(o.inputs))
        == (first.op, first.domain, first.index, first.outputs, first.opset, len(first.inputs))
        and o.attrs == first.attrs
        for o in origins
    )


def reshape_target(targets: Sequence[Sequence[int]], shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return one target of Reshape that does what all these do, by 0 for a dimension that stays and -1 for one that
    follows from the others; None where that is not enough.

    Args:
        targets: a target per lane, of the same length.
        shapes: the shape of the input in each lane.
    """
    found: list[int] = []
    for axis, sizes in enumerate(zip(*targets, strict=True)):
        kept = all(axis < len(shape) and shape[axis] == size for shape, size in zip(shapes, sizes, strict=True))
        if len(set(sizes)) == 1 and sizes[0] != 0:
            found.append(int(sizes[0]))
        elif kept or set(sizes) == {0}:
            found.append(0)
        else:
            found.append(-1)
    if found.count(-1) > 1 or any(np.prod(shape) == 0 for shape in shapes):
        return None
    return tuple(found)
