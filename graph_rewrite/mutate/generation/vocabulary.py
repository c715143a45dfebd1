"""The steps that the generator may add to a mutant: layouts of a value, and variants of the original's operators."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import Chain, Move, Place, Tiles
from graph_rewrite.mutate.program import Step, TensorProgram, step
from graph_rewrite.mutate.value_types import Monomial, types_of

PLACES: tuple[Place, Place] = ("outer", "inner")
LARGEST_FACTOR = 16
"""Factors of layouts are at most this large; a batch that is carried over to the real shapes may be larger."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The parts that a program's mutants are made of: factors of layouts, overlaps of tiles, and operators with their
    parameters."""

    factors: tuple[int, ...]
    overlaps: tuple[tuple[int, int], ...]
    """How far tiles overlap, and how many zeros come before the first."""
    operators: tuple[Step, ...]
    blocks: tuple[int, ...]
    """Numbers of groups and of batched products, whose operands may stand on a diagonal."""
    roles: Mapping[int, frozenset[tuple[str, int]]]
    """Per input of the original, the operators that read it, and as which operand."""

    def plays(self, monomials: frozenset[Monomial], op: str, operand: int) -> bool:
        """Tell whether values of these monomials may be an operand: one input alone only where the original has it."""
        return all((op, operand) in self.roles[term[0]] for term in monomials if len(term) == 1)

    def are_alike(self, a: frozenset[Monomial], b: frozenset[Monomial]) -> bool:
        """Tell whether values may stand side by side: inputs that are the same operand of the same operators."""
        single = [self.roles[term[0]] for term in a | b if len(term) == 1]
        return not single or bool(frozenset.intersection(*single))


def vocabulary_of(program: TensorProgram, shapes: Sequence[Shape], outputs: Sequence[Shape]) -> Vocabulary:
    """Return the vocabulary for mutants of a program at a shape."""
    factors, overlaps = {2, 4}, set[tuple[int, int]]()
    operators: dict[tuple[object, ...], Step] = {}
    blocks = set[int]()
    known, types = dict(enumerate(shapes)), types_of(program, shapes)
    for each in program.steps:
        operators.setdefault((each.op, each.params), each)
        if each.op in ("conv", "pool"):
            factors.update(each.param("strides"))
            image, kernel = known.get(each.inputs[0]), known.get(each.inputs[1]) if each.op == "conv" else None
            if each.op == "conv":
                factors.update(each.param("dilations"))
            if kernel is not None:
                reach = [d * (k - 1) for d, k in zip(each.param("dilations"), kernel[2:], strict=True)]
                overlaps.update(zip(reach, each.param("pads"), strict=False))
                overlaps.update((size, 0) for size in reach)
                if image is not None:
                    blocks.add(image[1] // kernel[1])
            if each.op == "pool":
                overlaps.update((k - 1, p) for k, p in zip(each.param("kernel"), each.param("pads"), strict=False))
        elif each.op == "matmul":
            blocks.update(size for v in each.inputs for size in types[v].shape[:-2])
    factors.update(shape[0] for shape in outputs if len(shape) > 2)
    wanted = tuple(sorted(f for f in factors | blocks if 1 < f <= LARGEST_FACTOR))
    tiles = tuple(sorted(pair for pair in overlaps if pair[0] > 0))
    diagonals = tuple(sorted(blocks & set(wanted)))
    return Vocabulary(wanted, tiles, tuple(operators.values()), diagonals, _roles(program))


def _roles(program: TensorProgram) -> dict[int, frozenset[tuple[str, int]]]:
    """Return the roles of inputs; those that a layout reads have the roles of what it gives."""
    found: dict[int, set[tuple[str, int]]] = {v: set() for v in range(program.count + len(program.steps))}
    for number in reversed(range(len(program.steps))):
        each = program.steps[number]
        for operand, value in enumerate(each.inputs):
            own = found[program.count + number] if each.op in ("layout", "concat") else {(each.op, operand)}
            found[value] |= own or {(each.op, operand)}
    return {value: frozenset(found[value]) for value in range(program.count)}


def chains(
    shape: Shape, factors: Sequence[int], overlaps: Sequence[tuple[int, int]] = (), narrow: bool = False
) -> Iterator[Chain]:
    """Yield chains of moves for a tensor: single moves, the same move of all spatial axes, and tiles of them; with
    `narrow`, only those of all spatial axes where there are several."""
    every = _chains(shape, tuple(factors), tuple(overlaps))
    return (chain for chain in every if len(chain) > 1) if narrow and len(shape) > 3 else iter(every)


@lru_cache(maxsize=4096)
def _chains(shape: Shape, factors: tuple[int, ...], overlaps: tuple[tuple[int, int], ...]) -> list[Chain]:
    rank = len(shape)
    found: list[Chain] = []
    spatial = range(2, rank)
    for factor in factors:
        if rank > 3:
            found += _jointly(shape, factor, spatial)
            found += [
                tuple(Tiles(axis, factor, overlap, 0, before) for axis in spatial)
                for overlap, before in overlaps if all(shape[axis] > overlap for axis in spatial)
            ]  # fmt: skip
        for source in range(rank):
            if shape[source] < factor:
                continue
            for target, part, place in itertools.product(range(rank), PLACES, PLACES):
                if source != target or part != place:
                    found += [(move,) for move in _fronts(Move(source, part, target, place, factor), shape)]
        found += [
            (Tiles(axis, factor, overlap, 0, before),)
            for axis in spatial
            for overlap, before in overlaps
            if shape[axis] > overlap
        ]
    return found


def _jointly(shape: Shape, factor: int, spatial: range) -> Iterator[Chain]:
    if any(shape[axis] < factor for axis in spatial):
        return
    for part, place in itertools.product(PLACES, PLACES):
        if part != place:
            yield tuple(Move(axis, part, axis, place, factor) for axis in spatial)
        for target in (0, 1):
            for order in (spatial, spatial[::-1]):
                options = [_fronts(Move(axis, part, target, place, factor), shape) for axis in order]
                yield tuple(moves[0] for moves in options)
                if all(len(moves) > 1 for moves in options):
                    yield tuple(moves[1] for moves in options)


def _fronts(move: Move, shape: Shape) -> list[Move]:
    """Return a move with zeros at the end, and with zeros in front where it needs any."""
    if shape[move.source] % move.factor == 0:
        return [move]
    return [move, Move(move.source, move.part, move.target, move.place, move.factor, True)]


def conv_variants(original: Step, inputs: tuple[int, ...], kernel: Shape) -> Iterator[Step]:
    """Yield convolutions of a kernel of this size: the original's strides and dilations or none, and pads that go with
    them."""
    return (Step("conv", inputs, params) for params in _conv_params(original.params, kernel))


@lru_cache(maxsize=1024)
def _conv_params(own: tuple[tuple[str, Any], ...], kernel: Shape) -> list[tuple[tuple[str, Any], ...]]:
    original = Step("conv", (), own)
    strides, dilations, pads = original.param("strides"), original.param("dilations"), original.param("pads")
    rank = len(kernel)
    ones = (1,) * rank
    half = tuple((k - 1) // 2 for k in kernel)
    rest = tuple(k - 1 - h for k, h in zip(kernel, half, strict=True))
    dense = tuple(p // d for p, d in zip(pads, dilations * 2, strict=True))
    one_bare = [tuple(0 if i % rank == axis else p for i, p in enumerate(pads)) for axis in range(rank)]
    options = [
        pads,
        (0,) * (2 * rank),
        *one_bare,
        dense,
        (*half, *half),
        (*half, *rest),
        (*rest, *half),
        (*rest, *rest),
    ]
    return [
        (("dilations", d), ("pads", p), ("strides", s))
        for s, d in dict.fromkeys([(strides, dilations), (ones, ones), (ones, dilations), (strides, ones)])
        for p in dict.fromkeys(options)
    ]


def averaging_variants(original: Step, inputs: tuple[int, ...]) -> Iterator[Step]:
    """Yield convolutions that stand for an average over windows."""
    ones = (1,) * len(original.param("kernel"))
    for s in dict.fromkeys([original.param("strides"), ones]):
        yield step("conv", *inputs, strides=s, dilations=ones, pads=original.param("pads"))


def unary_variants(original: Step, value: int) -> Iterable[Step]:
    """Return steps of one operand like the original's."""
    if original.op != "pool":
        return ()
    return (
        step("pool", value, **dict(original.params)),
        step("averaging", value, kernel=original.param("kernel")),
    )
