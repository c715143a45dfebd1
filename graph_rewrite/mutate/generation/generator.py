"""The mutation generator: programs with the inputs and outputs of an original, up to a number of steps (PET, OSDI'21,
algorithm 1)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial

import numpy as np

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.field import apply, outputs_of, random_inputs
from graph_rewrite.mutate.generation.finish import Destinations, Target, solve
from graph_rewrite.mutate.generation.sketch import Sketch, signature, signature_of
from graph_rewrite.mutate.generation.vocabulary import (
    averaging_variants,
    chains,
    conv_variants,
    unary_variants,
    vocabulary_of,
)
from graph_rewrite.mutate.moves import Chain, DoesNotFit, Move, Tiles
from graph_rewrite.mutate.program import Step, TensorProgram, step
from graph_rewrite.mutate.value_types import Monomial, ValueType, input_types, type_of, types_of
from graph_rewrite.soundness.domains.limbs import Residues

DEPTH = 4
"""Steps of a mutant at most; the layouts of its outputs, which are solved for, are not counted."""
KEEP = 0.25
"""The part of each output's positions that a mutant must get right."""
_ORDER = ((1, True), (2, True), (2, False), (3, True), (4, True), (3, False), (4, False))
_ORDER_OF_SEVERAL = ((1, True), (2, True), (3, True), (4, True), (2, False), (3, False), (4, False))
"""Numbers of steps in the order in which mutants of one and of several products are built; True for those with few
kinds of layouts, or none where there are several products."""
_GROWTH = 4
"""A value may have so many times the elements of the largest of the original."""


@dataclass(slots=True)
class _State:
    types: list[ValueType]
    arrays: list[Residues]
    steps: list[Step] = field(default_factory=list)
    prints: set[int] = field(default_factory=set)


class Generator:
    """Enumerate the mutants of a program at small shapes, those of fewer steps first.

    Args:
        original: the program.
        shapes: the shapes of its inputs.
        depth: how many steps a mutant has at most, beside the layouts of its outputs.
        keep: the part of each output that must be right, from 0 to 1.
        stop: asked now and then; the enumeration pauses when it returns True.
    """

    def __init__(
        self,
        original: TensorProgram,
        shapes: Sequence[Shape],
        depth: int = DEPTH,
        keep: float = KEEP,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._original, self._depth, self._keep, self._stop = original, depth, keep, stop
        self._inputs = random_inputs(shapes, seed=7)
        self._targets = [Target(values) for values in outputs_of(original, self._inputs)]
        types = types_of(original, shapes)
        self._wanted = [types[value].monomials for value in original.outputs]
        self._useful = {part for wanted in self._wanted for term in wanted for part in _parts(term)}
        self._degree = max(len(term) for wanted in self._wanted for term in wanted)
        self._largest = _GROWTH * max(value.size for value in types)
        self._vocabulary = vocabulary_of(original, shapes, [target.shape for target in self._targets])
        self._joins = sum(each.op in ("conv", "matmul", "pool") for each in original.steps) > 1
        self._biased = any(len(each.inputs) == 3 for each in original.steps)
        self._carries = any(each.op in ("add", "concat", "layout", "mul", "pool") for each in original.steps)
        """Whether a step may follow the last product: mutants end with an operator like one of the original's."""
        self._narrow = True
        self._best: dict[object, float] = {signature(original, shapes): 1.0}
        self._shapes = shapes
        self.tried = 0
        """Values computed so far."""

    def sketches(self) -> Iterator[Sketch]:
        """Yield mutants; of those whose operators other than layouts are the same, each is better than the last."""
        for sketch in self.with_pauses():
            if sketch is None:
                return
            yield sketch

    def with_pauses(self) -> Iterator[Sketch | None]:
        """Yield the same, and None whenever `stop` returns True: who asks for the next one then goes on."""
        for depth, narrow in _ORDER_OF_SEVERAL if self._joins else _ORDER:
            if depth > self._depth:
                continue
            self._narrow = narrow
            state = _State(input_types(self._shapes), list(self._inputs))
            state.prints.update(_print(array) for array in self._inputs)
            yield from self._grown(state, depth)

    def _grown(self, state: _State, left: int) -> Iterator[Sketch | None]:
        """Yield the mutants that are `left` steps longer, and None for a pause."""
        for new in self._steps(state, left):
            while self._stop():
                yield None
            try:
                type = type_of(new, [state.types[value] for value in new.inputs])
            except (DoesNotFit, LayoutError):
                continue
            if type.size > self._largest or not self._leads_on(type, left):
                continue
            if left == 1 and self._best.get(self._signature(state, new), 0.0) == 1:
                continue
            array = apply(new, [state.arrays[value] for value in new.inputs])
            self.tried += 1
            key = _print(array)
            if key in state.prints:
                continue
            state.types.append(type)
            state.arrays.append(array)
            state.steps.append(new)
            state.prints.add(key)
            if left == 1:
                yield from self._ended(state)
            else:
                yield from self._grown(state, left - 1)
            state.types.pop()
            state.arrays.pop()
            state.steps.pop()
            state.prints.remove(key)

    def _signature(self, state: _State, *more: Step) -> object:
        return signature_of([*state.steps, *more], state.types)

    def _leads_on(self, type: ValueType, left: int) -> bool:
        """Tell whether a value may be part of a mutant that is complete after `left - 1` more steps."""
        if left == 1:
            enough = all(type.size >= self._keep * target.size for target in self._targets)
            return enough and all(wanted <= type.monomials for wanted in self._wanted)
        if type.degree == self._degree and not self._carries:
            return False
        return type.degree <= self._degree and any(term in self._useful for term in type.monomials)

    def _steps(self, state: _State, left: int) -> Iterator[Step]:
        """Yield the steps that may come next: in one order only where two do not depend on each other, and the last
        ones use everything."""
        count = len(self._inputs)
        last = state.steps[-1] if state.steps else None
        newest = len(state.types) - 1
        used = {value for each in state.steps for value in each.inputs}
        unused = [value for value in range(count, len(state.types)) if value not in used]
        highest = max(type.degree for type in state.types)
        products = max(self._degree - highest, 0)
        for new in self._options(state, left, products, unused):
            if last is not None and newest not in new.inputs and _comes_before(new, last):
                continue
            open_values = len([value for value in unused if value not in new.inputs]) + 1
            if open_values <= (1, 1 + self._biased, 4, 6)[left - 1] + (left > 1):
                yield new

    def _options(self, state: _State, left: int, products: int, unused: Sequence[int]) -> Iterator[Step]:
        values = range(len(state.types))
        needed = unused if left == 1 else []
        if left == 1 or self._carries or products > 1:
            for original in self._vocabulary.operators:
                yield from self._like(original, state, needed)
        if left <= max(products, 1):
            return
        for value in values:
            type, words = state.types[value], self._vocabulary
            if type.degree < self._degree and not (self._narrow and self._joins):
                overlaps = words.overlaps if words.plays(type.monomials, "conv", 0) else ()
                for chain in chains(type.shape, words.factors, overlaps, self._narrow):
                    yield Step("layout", (value,), (("chain", chain),))
            yield from self._diagonals(type, value)
        if self._joins:
            yield from self._joined(state)

    def _like(self, original: Step, state: _State, needed: Sequence[int]) -> Iterator[Step]:
        """Yield steps like one of the original's that read the `needed` values, over all values whose types fit."""
        types = state.types
        if original.op == "conv":
            for x, w in itertools.permutations(range(len(types)), 2):
                if not {x, w}.issuperset(needed) or not self._play(types, "conv", x, w):
                    continue
                if len(types[x].shape) == len(types[w].shape) > 2 and types[x].shape[1] % types[w].shape[1] == 0:
                    biases = [
                        b for b, type in enumerate(types) if type.shape == types[w].shape[:1] and len(type.shape) == 1
                    ]  # fmt: skip
                    for extra in [(b,) for b in biases] if len(original.inputs) == 3 else [()]:
                        yield from conv_variants(original, (x, w, *extra), types[w].shape[2:])
        elif original.op in ("matmul", "add", "mul"):
            pairs = itertools.permutations if original.op == "matmul" else itertools.combinations
            for a, b in pairs(range(len(types)), 2):
                if {a, b}.issuperset(needed) and (original.op != "matmul" or self._play(types, "matmul", a, b)):
                    yield Step(original.op, (a, b))
        elif original.op == "pool":
            for x, type in enumerate(types):
                if {x}.issuperset(needed):
                    yield from unary_variants(original, x)
                for w, other in enumerate(types):
                    if not any(other.monomials) and len(other.shape) == len(type.shape) and {x, w}.issuperset(needed):
                        yield from averaging_variants(original, (x, w))
        elif original.op == "layout":
            for value in range(len(types)):
                if {value}.issuperset(needed):
                    yield Step("layout", (value,), original.params)

    def _play(self, types: Sequence[ValueType], op: str, a: int, b: int) -> bool:
        plays = self._vocabulary.plays
        return plays(types[a].monomials, op, 0) and plays(types[b].monomials, op, 1)

    def _joined(self, state: _State) -> Iterator[Step]:
        """Yield concatenations of values that play the same part, and zeros that make one as large as another."""
        for a, b in itertools.product(range(len(state.types)), repeat=2):
            first, second = state.types[a], state.types[b]
            rank = len(first.shape)
            if rank == len(second.shape) and self._vocabulary.are_alike(first.monomials, second.monomials):
                yield from (step("concat", a, b, axis=axis) for axis in range(min(rank, 2)))
                if first.shape != second.shape:
                    yield step("fit", a, b)

    def _diagonals(self, type: ValueType, value: int) -> Iterator[Step]:
        rank = len(type.shape)
        if type.degree == 1 and rank > 2:
            last = [(0, 2)] if rank == 3 else []
            for (source, target), count in itertools.product([(0, 1), *last], self._vocabulary.blocks):
                yield step("diagonal", value, count=count, source=source, target=target)

    def _ended(self, state: _State) -> Iterator[Sketch]:
        """Yield the mutant whose outputs are layouts of the newest value, if it is better than those like it."""
        key = self._signature(state)
        known = self._best.get(key, 0.0)
        value = len(state.types) - 1
        shape = state.types[value].shape
        outputs, share = [], 1.0
        for target in self._targets:
            options = itertools.chain([()], _undone(state.steps))
            least = max(self._keep, float(np.nextafter(known, 2)))
            more = partial(_destinations, shape, self._vocabulary.factors)
            found = solve(target, state.arrays[value], options, least, more)
            if found is None:
                return
            outputs.append((value, found[0]))
            share = min(share, found[2])
        self._best[key] = share
        yield Sketch(len(self._inputs), tuple(state.steps), tuple(outputs), share)


@lru_cache(maxsize=128)
def _destinations(shape: Shape, factors: tuple[int, ...]) -> Destinations:
    return Destinations(shape, chains(shape, factors))


def _comes_before(a: Step, b: Step) -> bool:
    """Order steps that do not depend on each other, so that a program is built in one order only."""
    if (a.op, a.inputs) != (b.op, b.inputs):
        return (a.op, a.inputs) < (b.op, b.inputs)
    return repr(a.params) < repr(b.params)


def _undone(steps: Sequence[Step]) -> Iterator[Chain]:
    """Yield the layouts that undo those of a program, if they are moves."""
    for each in steps:
        if each.op == "layout":
            yield tuple(move.undone() for move in reversed(each.chain) if isinstance(move, Move | Tiles))


def _parts(term: Monomial) -> Iterator[Monomial]:
    for length in range(len(term) + 1):
        yield from itertools.combinations(term, length)


def _print(array: Residues) -> int:
    return hash((array.shape, array.tobytes()))


def deadline(seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
    """Return a function that tells whether so many seconds have passed."""
    end = clock() + seconds
    return lambda: clock() >= end
