"""Small shapes of a substitution's inputs under which both of its sides have types.

Equal dimensions are found by unification over both sides, so that rules on shapes that random sampling rarely hits (a
convolution whose image and filters are one tensor) get theirs as well.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.terms.semantics import TermType, output_types
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, Term

Shapes = dict[int, tuple[int, ...]]
Dim = tuple[int, int] | None
"""(input, axis), or None for a dimension that is computed."""

_LIMIT = 20_000
"""Assignments of dimensions that are tried; more are sampled."""
_SPATIAL_DRAWS = 8


@dataclass(slots=True)
class _Classes:
    """Dimensions that must be equal, by union and find; the class None is the dimension 1."""

    parent: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    spatial: set[tuple[int, int]] = field(default_factory=set)
    ones: set[tuple[int, int]] = field(default_factory=set)

    def find(self, dim: tuple[int, int]) -> tuple[int, int]:
        while self.parent.setdefault(dim, dim) != dim:
            dim = self.parent[dim]
        return dim

    def unify(self, a: Sequence[Dim], b: Sequence[Dim]) -> None:
        for x, y in zip(a, b, strict=False):
            if x is not None and y is not None:
                self.parent[self.find(x)] = self.find(y)


def small_shapes(substitution: Substitution, max_dim: int = 4, seed: int = 0) -> Iterator[Shapes]:
    """Shapes per input, under which both sides have types and their outputs the same shapes; small ones first.

    Dimensions run up to `max_dim`: all combinations where they are few, else a sample drawn with `seed`. Heights and
    widths beside each other are sampled in any case.
    """
    for ranks in _ranks(substitution):
        found = sorted(set(_assignments(substitution, ranks, max_dim, seed)), key=lambda dims: (sum(dims), dims))
        classes = _unified(substitution, ranks)
        slots = [classes.find((i, axis)) for i in sorted(ranks) for axis in range(ranks[i])]
        order = list(dict.fromkeys(slots))
        for dims in found:
            value = dict(zip(order, dims, strict=True))
            shapes = {i: tuple(value[classes.find((i, axis))] for axis in range(ranks[i])) for i in sorted(ranks)}
            if is_typed(substitution, shapes):
                yield shapes


def is_typed(substitution: Substitution, shapes: Mapping[int, tuple[int, ...]]) -> bool:
    """Return whether both sides have types for inputs of these shapes, and outputs of the same shapes."""
    types = {number: TermType(shape) for number, shape in shapes.items()}
    before, after = output_types(substitution.source, types), output_types(substitution.target, types)
    return before is not None and after is not None and [t.shape for t in before] == [t.shape for t in after]


def _assignments(
    substitution: Substitution, ranks: Mapping[int, int], max_dim: int, seed: int
) -> Iterator[tuple[int, ...]]:
    classes = _unified(substitution, ranks)
    roots = list(dict.fromkeys(classes.find((i, axis)) for i in sorted(ranks) for axis in range(ranks[i])))
    spatial = {classes.find(dim) for dim in classes.spatial}
    ones = {classes.find(dim) for dim in classes.ones}
    rng = random.Random(seed)
    inner = [r for r in roots if r in spatial and r not in ones]
    outer = [r for r in roots if r not in spatial and r not in ones]
    draws: list[tuple[int, ...]] = list(itertools.product(range(1, max_dim + 1), repeat=len(inner)))
    if len(draws) > _SPATIAL_DRAWS and outer:
        draws = [(1,) * len(inner), (max_dim,) * len(inner), *rng.sample(draws, _SPATIAL_DRAWS - 2)]
    total = math.prod((max_dim,) * len(outer)) * len(draws)
    rest: Iterator[tuple[int, ...]] = itertools.product(range(1, max_dim + 1), repeat=len(outer))
    if total > _LIMIT:
        few = _LIMIT // len(draws)
        small = itertools.product((1, 2), repeat=len(outer))
        drawn = (tuple(rng.randint(1, max_dim) for _ in outer) for _ in range(few))
        rest = itertools.chain(itertools.islice(small, few), drawn)
    for dims in rest:
        for spread in draws:
            value = {**dict(zip(outer, dims, strict=True)), **dict(zip(inner, spread, strict=True))}
            yield tuple(value.get(root, 1) for root in roots)


def known_ranks(substitution: Substitution) -> dict[int, int]:
    """Ranks of the inputs as far as the operators fix them; 0 for the others."""
    solver = _solved(substitution)
    return {number: solver.rank(number) for number in _inputs(substitution)}


def _inputs(substitution: Substitution) -> list[int]:
    return sorted({*substitution.source.inputs, *substitution.target.inputs})


def _solved(substitution: Substitution) -> _RankSolver:
    solver = _RankSolver(dict.fromkeys(_inputs(substitution), 0))
    changed = True
    while changed:
        source, target = solver.pass_over(substitution.source), solver.pass_over(substitution.target)
        changed = source or target or solver.spread(substitution)
    return solver


def _ranks(substitution: Substitution) -> Iterator[dict[int, int]]:
    """Ranks of the inputs that the operators allow: several where an operator works on any."""
    inputs, solver = _inputs(substitution), _solved(substitution)
    groups = sorted({solver.find(i) for i in inputs if not solver.rank(i)})
    products = {solver.find(i) for i in solver.products}
    choices = [(2, 3) if group in products else (2, 1, 4) for group in groups]
    for choice in itertools.product(*choices) if groups else [()]:
        known = dict(zip(groups, choice, strict=True))
        yield {i: solver.rank(i) or known[solver.find(i)] for i in inputs}


class _RankSolver:
    """Ranks by propagation: operands of element-wise operators and products have equal ranks, others fixed ones."""

    def __init__(self, known: dict[int, int]) -> None:
        self._known = known
        self._parent = {number: number for number in known}
        self.products: set[int] = set()

    def find(self, number: int) -> int:
        while self._parent[number] != number:
            number = self._parent[number]
        return number

    def rank(self, number: int) -> int:
        return self._known[self.find(number)]

    def spread(self, substitution: Substitution) -> bool:
        """Nothing more follows from outputs: both sides' outputs have equal ranks where both are known by inputs."""
        changed = False
        for before, after in zip(substitution.source.outputs, substitution.target.outputs, strict=True):
            a, b = self._origin(substitution.source, before), self._origin(substitution.target, after)
            changed |= self._join(a, b)
        return changed

    def pass_over(self, side: Side) -> bool:
        changed = False
        for node in side.terms:
            origins = [self._origin(side, operand) for operand in node.inputs]
            fixed = _fixed_rank(node)
            for origin in origins[:1] if node.op == "smul" else origins:
                changed |= self._join(origin, fixed)
            if node.op in ("ewadd", "ewmul", "matmul"):
                changed |= self._join(origins[0], origins[1])
            if node.op == "matmul":
                self.products.update(-1 - o for o in origins if o < 0)
        return changed

    def _origin(self, side: Side, operand: Operand) -> int:
        """Return what fixes an operand's rank: -1 - number of an input, a rank, or 0 where nothing is known."""
        while operand.node != INPUT:
            node = side.terms[operand.node]
            if _fixed_rank(node) or node.op in ("imatmul", "iewmul"):
                return _fixed_rank(node)
            if node.op == "reshape":
                return len(node.param("shape"))
            found = [self._origin(side, source) for source in node.inputs]
            return next((o for o in found if o), 0)
        return -1 - operand.index

    def _join(self, a: int, b: int) -> bool:
        if a > 0:
            a, b = b, a
        if a >= 0 or b == 0:
            return False
        root = self.find(-1 - a)
        if b > 0:
            changed = self._known[root] == 0
            self._known[root] = self._known[root] or b
            return changed
        other = self.find(-1 - b)
        if root == other:
            return False
        self._known[other] = self._known[other] or self._known[root]
        self._parent[root] = other
        return True


def _fixed_rank(node: Term) -> int:
    if node.op in ("conv", "maxpool", "avgpool", "enlarge", "iconv", "cpool"):
        return 4
    if node.op == "transpose":
        return len(node.param("perm"))
    return int(node.param("rank")) if node.op == "concat" else 0


def _unified(substitution: Substitution, ranks: Mapping[int, int]) -> _Classes:
    classes = _Classes()
    for number, rank in ranks.items():
        for axis in range(rank):
            classes.find((number, axis))
    outputs = []
    for side in (substitution.source, substitution.target):
        values: list[tuple[tuple[Dim, ...] | None, ...]] = []

        def shape(
            operand: Operand, values: list[tuple[tuple[Dim, ...] | None, ...]] = values
        ) -> tuple[Dim, ...] | None:
            if operand.node == INPUT:
                return tuple((operand.index, axis) for axis in range(ranks[operand.index]))
            return values[operand.node][operand.index]

        for node in side.terms:
            values.append(_symbolic(classes, node, [shape(operand) for operand in node.inputs]))
        outputs.append([shape(operand) for operand in side.outputs])
    for before, after in zip(*outputs, strict=True):
        if before is not None and after is not None and len(before) == len(after):
            classes.unify(before, after)
    return classes


def _symbolic(
    classes: _Classes, node: Term, operands: Sequence[tuple[Dim, ...] | None]
) -> tuple[tuple[Dim, ...] | None, ...]:
    """Shapes of a term's outputs in dimensions of the inputs; a constant's is None."""
    known = [operand for operand in operands if operand is not None]
    if not known:
        return (None,)
    first = known[0]
    if node.op == "smul" and len(known) == 2:
        classes.ones.update(dim for dim in known[1] if dim is not None)
    if node.op in ("ewadd", "ewmul") and len(known) == 2:
        classes.unify(first, known[1])
    if node.op in ("concat", "split"):
        axis = node.param("axis")
        if node.op == "concat" and len(known) == 2:
            classes.unify((*first[:axis], None, *first[axis + 1 :]), known[1])
        return ((*first[:axis], None, *first[axis + 1 :]),) * node.outputs
    if node.op == "matmul":
        return (_product(classes, operands),)
    if node.op in ("conv", "maxpool", "avgpool", "enlarge"):
        return (_windowed(classes, node, operands),)
    if node.op == "transpose":
        perm = node.param("perm")
        return (tuple(first[axis] for axis in perm) if len(perm) == len(first) else None,)
    return (None,) if node.op == "reshape" else (first,)


def _product(classes: _Classes, operands: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    a, b = operands
    if a is None or b is None:
        return b if a is None else a
    if min(len(a), len(b)) < 2:
        return None
    classes.unify((*a[:-2], a[-1]), (*b[:-2], b[-2]))
    return (*a[:-1], b[-1])


def _windowed(classes: _Classes, node: Term, operands: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, ...] | None:
    for operand in operands:
        if operand is not None and len(operand) == 4:
            classes.spatial.update(dim for dim in operand[2:] if dim is not None)
    x = operands[0]
    if x is None or len(x) != 4:
        return None
    if node.op == "enlarge":
        return (*x[:2], None, None)
    weight = operands[1] if node.op == "conv" else None
    channels = weight[0] if weight is not None else None if node.op == "conv" else x[1]
    kept = node.param("padding") == "same" and node.param("stride") == (1, 1)
    return (x[0], channels, *(x[2:] if kept else (None, None)))
