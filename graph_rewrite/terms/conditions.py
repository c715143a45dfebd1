"""Conditions of substitutions beyond their types, and the weakest one under which a substitution holds.

What TASO's file leaves unsaid is mostly about the groups of convolutions, which shapes imply: the merge of two grouped
convolutions is a grouped convolution only where the groups line up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graph_rewrite.terms.semantics import P, TermType, close, evaluate, infer_side, random_arrays
from graph_rewrite.terms.small_shapes import Shapes, small_shapes
from graph_rewrite.terms.substitution import INPUT, Substitution


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an instance: shapes [N, C, H, W] and [M, C/groups, R, S], and the input's border of channels
    where it is a concatenation."""

    x: TermType
    w: TermType

    @property
    def groups(self) -> int:
        """Input channels over those of the filters."""
        return self.x.shape[1] // self.w.shape[1]

    @property
    def filters_per_group(self) -> int:
        """Output channels of each group."""
        return self.w.shape[0] // self.groups

    @property
    def kernel(self) -> tuple[int, ...]:
        """Height and width of the filters."""
        return self.w.shape[2:]


@dataclass(frozen=True, slots=True)
class Condition:
    """A named property of an instance's convolutions, on both sides together."""

    name: str
    text: str
    holds: Callable[[Sequence[Convolution]], bool]


def _alike(values: Iterable[object]) -> bool:
    return len(set(values)) <= 1


CONDITIONS: Mapping[str, Condition] = {
    condition.name: condition
    for condition in (
        Condition("equal groups", "all convolutions have the same number of groups", lambda found: _alike(
            c.groups for c in found)),
        Condition("one group", "no convolution has groups", lambda found: all(c.groups == 1 for c in found)),
        Condition("equal filters per group", "all convolutions have the same number of filters in each group",
                  lambda found: _alike(c.filters_per_group for c in found)),
        Condition("borders between groups", "no group of channels reaches over the border of a concatenation",
                  lambda found: all(cut % c.w.shape[1] == 0 for c in found for cut in c.x.cuts[1])
                  and all(cut % c.filters_per_group == 0 for c in found for cut in c.w.cuts[0])),
        Condition("equal kernels", "all convolutions have filters of the same height and width",
                  lambda found: _alike(c.kernel for c in found)),
        Condition("odd kernels", "all filters have odd height and width",
                  lambda found: all(size % 2 for c in found for size in c.kernel)),
        Condition("pointwise kernels", "all filters are 1x1",
                  lambda found: all(c.kernel == (1, 1) for c in found)),
    )
}  # fmt: skip
"""Every condition by name."""

_WIDEST = 2
"""Conditions that a derived one joins at most."""


@dataclass(frozen=True, slots=True)
class FieldCounterexample:
    """Shapes and an element of an output, as residues mod 2^31 - 1, where the sides differ."""

    shapes: tuple[tuple[int, ...], ...]
    output: int
    index: tuple[int, ...]
    before: int
    after: int

    def __str__(self) -> str:
        shapes = ", ".join(f"x{i}: {list(shape)}" for i, shape in enumerate(self.shapes))
        place = list(self.index)
        return f"{shapes}: output {self.output}{place} is {self.before} and {self.after} (mod {P})"


@dataclass(frozen=True, slots=True)
class Derivation:
    """The conditions under which a substitution holds, over the small shapes tried; or why it does not."""

    holds: bool
    conditions: tuple[str, ...] = ()
    instances: int = 0
    """Shapes tried that satisfy the conditions."""
    shapes: int = 0
    """Shapes tried, all with types on both sides."""
    counterexample: FieldCounterexample | None = None
    given: frozenset[str] = frozenset()
    """Conditions that all those shapes satisfy which satisfy the ones needed."""

    @property
    def reason(self) -> str:
        """The reason why the substitution does not hold; empty where it does."""
        if self.holds:
            return ""
        return str(self.counterexample) if self.counterexample else "no small shapes give both sides types"


def condition_holds(substitution: Substitution, types: Mapping[int, TermType], names: Iterable[str]) -> bool:
    """Return whether an instance with inputs of these types satisfies conditions.

    Raises:
        ValueError: a name that is no condition.
    """
    wanted = [_named(name) for name in names]
    if not wanted:
        return True
    found = list(convolutions(substitution, types))
    return all(condition.holds(found) for condition in wanted)


def convolutions(substitution: Substitution, types: Mapping[int, TermType]) -> Iterator[Convolution]:
    """The convolutions of both sides, for inputs of these types.

    Raises:
        ValueError: a side has no types.
    """
    for side in (substitution.source, substitution.target):
        values = infer_side(side, types)
        if values is None:
            raise ValueError(f"a side of {substitution} has no types for these inputs")
        for node in side.terms:
            if node.op == "conv":
                operands = [types[o.index] if o.node == INPUT else values[o.node][o.index] for o in node.inputs]
                closed = close(node, operands)
                if closed is not None:
                    yield Convolution(*closed)


def derive(substitution: Substitution, max_dim: int = 4, seed: int = 0) -> Derivation:
    """The weakest conditions under which both sides are equal over small shapes: those that most shapes satisfy.

    Each shape is evaluated at one random point of F_p, p = 2^31 - 1: sides that differ there as polynomials of degree d
    pass with probability d / p at most (Schwartz and Zippel). At most two conditions are joined.

    Args:
        substitution: its own conditions are left aside.
        max_dim: largest dimension of a shape.
        seed: of shapes where they are sampled, and of values.
    """
    tried: list[tuple[bool, frozenset[str]]] = []
    first: dict[frozenset[str], FieldCounterexample] = {}
    for number, shapes in enumerate(small_shapes(substitution, max_dim, seed)):
        types = {i: TermType(shape) for i, shape in shapes.items()}
        found = list(convolutions(substitution, types))
        satisfied = frozenset(c.name for c in CONDITIONS.values() if c.holds(found)) if found else frozenset()
        different = differs(substitution, shapes, seed=seed + number)
        tried.append((different is None, satisfied))
        if different is not None:
            first.setdefault(satisfied, different)
    weakest: tuple[str, ...] = ()
    most = 0
    for width in range(_WIDEST + 1):
        for names in itertools.combinations(CONDITIONS, width):
            under = [equal for equal, satisfied in tried if satisfied.issuperset(names)]
            if len(under) > most and all(under) and (len(under) > 1 or len(tried) == 1):
                weakest, most = names, len(under)
    if most:
        given = frozenset.intersection(*(satisfied for _, satisfied in tried if satisfied.issuperset(weakest)))
        return Derivation(True, tuple(sorted(weakest)), most, len(tried), given=given)
    # The one under the most conditions: nothing that could be asked for excludes it.
    worst = max(first, key=len) if first else None
    return Derivation(False, (), 0, len(tried), None if worst is None else first[worst])


def differs(substitution: Substitution, shapes: Shapes, *, seed: int) -> FieldCounterexample | None:
    """Evaluate both sides at a random point; where they differ, if they do."""
    types = {i: TermType(shape) for i, shape in shapes.items()}
    arrays = random_arrays(types, np.random.default_rng(seed))
    before = evaluate(substitution.source, arrays, types, seed=seed)
    after = evaluate(substitution.target, arrays, types, seed=seed)
    for number, (a, b) in enumerate(zip(before, after, strict=True)):
        if not np.array_equal(a, b):
            index = tuple(int(i) for i in np.argwhere(a != b)[0])
            own = tuple(shapes[i] for i in sorted(shapes))
            return FieldCounterexample(own, number, index, int(a[index]), int(b[index]))
    return None


def _named(name: str) -> Condition:
    if name not in CONDITIONS:
        raise ValueError(f"there is no condition {name!r}; known are {', '.join(CONDITIONS)}")
    return CONDITIONS[name]
