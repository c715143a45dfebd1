"""The mutation generator: programs with the inputs and outputs of an original, up to a number of steps (PET, OSDI'21,
algorithm 1)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.field import apply, outputs_of, random_inputs
from graph_rewrite.mutate.finish import Target, solve
from graph_rewrite.mutate.moves import Chain, DoesNotFit, Move, Tiles
from graph_rewrite.mutate.program import Program, Step, step
from graph_rewrite.mutate.types import Monomial, ValueType, input_types, type_of, types_of
from graph_rewrite.mutate.vocabulary import averaging_variants, chains, conv_variants, unary_variants, vocabulary_of
from graph_rewrite.soundness.domains.limbs import Residues

DEPTH = 4
"""Steps of a mutant at most; the layouts of its outputs, which are solved for, are not counted."""
KEEP = 0.25
"""The part of each output's positions that a mutant must get right."""
_GROWTH = 4
"""A value may have so many times the elements of the largest of the original."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """A mutant at the shapes where it was found: steps, and per output the value and the moves it is brought there by.
    A window follows the moves, which depends on the shapes."""

    count: int
    steps: tuple[Step, ...]
    outputs: tuple[tuple[int, Chain], ...]
    share_right: float

    def at(self, targets: Sequence[Target], inputs: Sequence[Residues], keep: float) -> Program | None:
        """Return the mutant for inputs of any shape, with its windows; None where too little is right.

        Raises:
            DoesNotFit: a step does not apply to these shapes.
        """
        types_of(Program(self.count, self.steps, ()), [array.shape for array in inputs])
        wanted = tuple(dict.fromkeys(value for value, _ in self.outputs))
        made = dict(zip(wanted, outputs_of(Program(self.count, self.steps, wanted), inputs), strict=True))
        steps, outputs = list(self.steps), []
        for (value, chain), target in zip(self.outputs, targets, strict=True):
            found = solve(target, made[value], [chain], keep)
            if found is None:
                return None
            outputs.append(_finished(steps, self.count, value, found[1]))
        return Program(self.count, tuple(steps), tuple(outputs)).live()


def _finished(steps: list[Step], count: int, value: int, chain: Chain) -> int:
    if not chain:
        return value
    steps.append(step("layout", value, chain=chain))
    return count + len(steps) - 1


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
        stop: asked now and then; the enumeration ends when it returns True.
    """

    def __init__(
        self,
        original: Program,
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
        self._own = signature(original, shapes)
        self._shapes = shapes
        self.tried = 0
        """Values computed so far."""

    def sketches(self) -> Iterator[Sketch]:
        """Yield mutants; of those whose operators other than layouts are the same, each is better than the last."""
        best: dict[object, float] = {self._own: 1.0}
        for depth in range(1, self._depth + 1):
            state = _State(input_types(self._shapes), list(self._inputs))
            state.prints.update(_print(array) for array in self._inputs)
            for sketch in self._grown(state, depth):
                key = signature(Program(sketch.count, sketch.steps, ()), self._shapes)
                if sketch.share_right > best.get(key, 0.0):
                    best[key] = sketch.share_right
                    yield sketch
            if self._stop():
                return

    def _grown(self, state: _State, left: int) -> Iterator[Sketch]:
        """Yield the mutants that are `left` steps longer."""
        for new in self._steps(state, left):
            if self._stop():
                return
            try:
                type = type_of(new, [state.types[value] for value in new.inputs])
            except (DoesNotFit, LayoutError):
                continue
            if type.size > self._largest or not self._leads_on(type, left):
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

    def _leads_on(self, type: ValueType, left: int) -> bool:
        """Tell whether a value may be part of a mutant that is complete after `left - 1` more steps."""
        if left == 1:
            return all(wanted <= type.monomials for wanted in self._wanted)
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
        for new in self._options(state, left, only_products=left <= products):
            if last is not None and newest not in new.inputs and (new.op, new.inputs, new.params) < (
                last.op, last.inputs, last.params,
            ):  # fmt: skip
                continue
            open_values = len([value for value in unused if value not in new.inputs]) + 1
            if open_values <= 1 + 2 * (left - 1):
                yield new

    def _options(self, state: _State, left: int, only_products: bool) -> Iterator[Step]:
        values = range(len(state.types))
        for original in self._vocabulary.operators:
            yield from self._like(original, state)
        if only_products or left == 1:
            return
        for value in values:
            type = state.types[value]
            if type.degree < self._degree or left > 1 and self._joins:
                for chain in chains(type.shape, self._vocabulary.factors, self._vocabulary.overlaps):
                    yield step("layout", value, chain=chain)
            yield from self._diagonals(type, value)
        if self._joins:
            yield from _joined(state)

    def _like(self, original: Step, state: _State) -> Iterator[Step]:
        """Yield steps like one of the original's, over all values whose types fit."""
        types = state.types
        if original.op == "conv":
            for x, w in itertools.permutations(range(len(types)), 2):
                if len(types[x].shape) == len(types[w].shape) > 2 and types[x].shape[1] % types[w].shape[1] == 0:
                    biases = [
                        b for b, type in enumerate(types) if type.shape == types[w].shape[:1] and len(type.shape) == 1
                    ]  # fmt: skip
                    for extra in [(b,) for b in biases] if len(original.inputs) == 3 else [()]:
                        yield from conv_variants(original, (x, w, *extra), types[w].shape[2:])
        elif original.op in ("matmul", "add", "mul"):
            pairs = itertools.permutations if original.op == "matmul" else itertools.combinations
            for a, b in pairs(range(len(types)), 2):
                yield step(original.op, a, b)
        elif original.op == "pool":
            for x, type in enumerate(types):
                yield from unary_variants(original, x)
                for w, other in enumerate(types):
                    if not any(other.monomials) and len(other.shape) == len(type.shape):
                        yield from averaging_variants(original, (x, w))
        elif original.op == "layout":
            for value in range(len(types)):
                yield step("layout", value, chain=original.chain)

    def _diagonals(self, type: ValueType, value: int) -> Iterator[Step]:
        if type.degree == 1 and len(type.shape) > 1:
            pairs = [(0, 1), (1, 0)] if len(type.shape) > 2 else []
            for (source, target), count in itertools.product(pairs, self._vocabulary.factors):
                yield step("diagonal", value, count=count, source=source, target=target)

    def _ended(self, state: _State) -> Iterator[Sketch]:
        """Yield the mutant whose outputs are layouts of the newest value, if there is one."""
        value = len(state.types) - 1
        shape = state.types[value].shape
        outputs, share = [], 1.0
        for target in self._targets:
            options = itertools.chain([()], _undone(state.steps), chains(shape, self._vocabulary.factors))
            found = solve(target, state.arrays[value], options, self._keep)
            if found is None:
                return
            outputs.append((value, found[0]))
            share = min(share, found[2])
        yield Sketch(len(self._inputs), tuple(state.steps), tuple(outputs), share)


def _joined(state: _State) -> Iterator[Step]:
    """Yield concatenations of two values; zeros at the end make the smaller one fit along one more axis."""
    for a, b in itertools.permutations(range(len(state.types)), 2):
        first, second = state.types[a].shape, state.types[b].shape
        if len(first) == len(second):
            for axis in range(min(len(first), 2)):
                yield step("concat", a, b, axis=axis)


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


def signature(program: Program, shapes: Sequence[Shape]) -> object:
    """Return what tells mutants apart: operators other than layouts, with the shapes of their operands, but not pads."""
    types = types_of(program, shapes)
    return tuple(
        (each.op, *(entry for entry in each.params if entry[0] != "pads"), *(types[value].shape for value in each.inputs))
        for each in program.steps if each.op != "layout"
    )  # fmt: skip


def deadline(seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[], bool]:
    """Return a function that tells whether so many seconds have passed."""
    end = clock() + seconds
    return lambda: clock() >= end
