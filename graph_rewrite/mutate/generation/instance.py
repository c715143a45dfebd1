"""Small instances of subprograms: mutants are found at few channels and small images, and carried over."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, prod

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.generation.rescaling import GROUPS, by_size, fitted
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.generation.vocabulary import LARGEST_FACTOR
from graph_rewrite.mutate.moves import DoesNotFit, Move, Tiles
from graph_rewrite.mutate.program import Step, Subprogram, TensorProgram, step
from graph_rewrite.mutate.value_types import types_of

SIDE = 16
"""The longest side of an image in a small instance, unless kernels are large."""
LARGEST_SIDE = 32
"""The longest side where kernels are large, unless three times their reach is more."""
_TILED = 8
"""An image of so many times a kernel's size falls into four tiles, half of whose rows read their own tile alone."""
BATCH = 4
"""The largest batch of a small instance; half of it where images are larger."""
_RATIO = 6
"""Numbers of channels keep their ratios up to this one."""
_ENOUGH = 4096
"""Elements of a subprogram's values that need no smaller instance."""


def small_instance(sub: Subprogram) -> Subprogram:
    """Return a subprogram that computes the same in small: with smaller inputs, and layouts of their sizes. It is the
    subprogram itself where that is small enough, or where no smaller one is known."""
    wanted = types_of(sub.program, sub.shapes)
    if sum(value.size for value in wanted) <= _ENOUGH:
        return sub
    for shrink in (_shrunk, partial(_shrunk, ratios=True), by_size):
        try:
            small = fitted(sub, shrink(sub))
        except (DoesNotFit, LayoutError):
            continue
        types = types_of(small.program, small.shapes)
        same = all(len(a.shape) == len(b.shape) for a, b in zip(types, wanted, strict=True))
        if same and sum(map(_size, small.shapes)) < sum(map(_size, sub.shapes)):
            return small
    return sub


def _size(shape: Shape) -> int:
    return prod(shape)


def _shrunk(sub: Subprogram, ratios: bool = False) -> tuple[Shape, ...]:
    """Shrink batches, images and channels, equal sizes alike. Kernels and groups of up to four stay as they are, and so
    do the ratios of the sides of images where that is asked for."""
    filters = {each.inputs[1]: each.inputs[0] for each in sub.program.steps if each.op == "conv"}
    biases = {value for each in sub.program.steps if each.op == "conv" for value in each.inputs[2:]}
    reach = max([1, *(d * (k - 1) + 1 for d, k in _taps(sub))])
    kernel = max([1, *(k for _, k in _taps(sub))])
    flat = all(len(s) < 5 for s in sub.shapes)
    side = max(SIDE, 3 * reach, min(_TILED * (kernel - 1), LARGEST_SIDE)) if flat else max(SIDE // 2, 3 * reach)
    batch = BATCH if side <= SIDE else BATCH // 2
    groups = _groups(sub)
    channels = set[int]()
    for value, shape in enumerate(sub.shapes):
        if value in filters:
            channels.update((shape[0] // groups, shape[1]))
        elif value in biases or len(shape) == 1:
            channels.add(shape[0] // groups)
        elif len(shape) == 3 or len(shape) == 2:
            channels.update(shape[-2:])
        elif not shape:
            continue
        elif filters:
            channels.add(shape[1] // groups)
        else:
            channels.update(shape[1:2])
    alone = sum(each.op == "conv" for each in sub.program.steps) == 1
    smaller = _smaller(sorted(channels), ratios=not alone or groups > 1)
    kept = min(groups, GROUPS)
    images = (shape for value, shape in enumerate(sub.shapes) if value not in filters and len(shape) > 3)
    sides = _sides({size for shape in images for size in shape[2:]}, side, ratios)
    found = []
    for value, shape in enumerate(sub.shapes):
        if value in filters:
            found.append((kept * smaller[shape[0] // groups], smaller[shape[1]], *shape[2:]))
        elif not shape:
            found.append(())
        elif len(shape) == 1:
            found.append((kept * smaller[shape[0] // groups],))
        elif len(shape) in (2, 3):
            found.append((*(min(size, batch) for size in shape[:-2]), *(smaller[size] for size in shape[-2:])))
        else:
            own = kept * smaller[shape[1] // groups] if filters else smaller[shape[1]]
            found.append((min(shape[0], batch), own, *(sides[size] for size in shape[2:])))
    return tuple(found)


def _sides(sizes: Collection[int], largest: int, ratios: bool) -> dict[int, int]:
    """Return shorter sides of images; with `ratios`, multiples of the least one stay so."""
    found = {size: _side(size, largest) for size in sizes}
    least = min((size for size in sizes if size > 1), default=1)
    if ratios:
        multiples = [size for size in sizes if size % least == 0 and size <= GROUPS * least]
        found |= {size: size // least * found[least] for size in multiples}
    return found


def _side(size: int, largest: int) -> int:
    """Return a shorter side of the same remainder modulo 4."""
    return size if size <= largest else largest - (largest - size) % 4


def _taps(sub: Subprogram) -> Iterator[tuple[int, int]]:
    for each in sub.program.steps:
        if each.op == "conv" and each.inputs[1] < len(sub.shapes):
            yield from zip(each.param("dilations"), sub.shapes[each.inputs[1]][2:], strict=True)
        elif each.op == "pool":
            yield from ((1, size) for size in each.param("kernel"))


def _groups(sub: Subprogram) -> int:
    types = types_of(sub.program, sub.shapes)
    found = {
        types[each.inputs[0]].shape[1] // types[each.inputs[1]].shape[1]
        for each in sub.program.steps if each.op == "conv"
    }  # fmt: skip
    return found.pop() if len(found) == 1 else 1


def _smaller(sizes: Sequence[int], ratios: bool) -> dict[int, int]:
    """Return smaller sizes of the same order: in the same ratios where these are small, if `ratios` matter. They do not
    for one convolution alone, so that those of a network have few small instances."""
    common = gcd(*sizes) if sizes else 1
    if ratios and sizes and sizes[-1] // common <= _RATIO:
        least = 2 if sizes[0] // common < 2 else 1
        return {size: min(size, size // common * least) for size in sizes}
    return {size: min(size, 2 + number) for number, size in enumerate(sizes)}


def lifted(sketch: Sketch, small: Subprogram, real: Subprogram) -> Iterator[Sketch]:
    """Yield a mutant for the real shapes: with the same factors, then with the real batch or groups in the place of
    those of the small instance. The original's own layouts become those of the real sizes."""
    pairs = zip(small.program.steps, real.program.steps, strict=True)
    chains = {a.chain: b.chain for a, b in pairs if a.op == "layout" and a.chain != b.chain}
    if chains:
        steps = tuple(
            step("layout", *each.inputs, chain=chains.get(each.chain, each.chain)) if each.op == "layout" else each
            for each in sketch.steps
        )  # fmt: skip
        sketch = replace(sketch, steps=steps)
    yield sketch
    for old, new in _counts(small, real).items():
        other = _swapped(sketch, old, new)
        if other != sketch:
            yield other


def _counts(small: Subprogram, real: Subprogram) -> dict[int, int]:
    """Return the batches and groups of the real shapes, by those of the small ones."""
    pairs = list(zip(small.shapes, real.shapes, strict=True))
    filters = {each.inputs[1] for each in real.program.steps if each.op == "conv"}
    fed = [pair for value, pair in enumerate(pairs) if value not in filters]
    found: dict[int, int] = {}
    if any(each.op == "matmul" for each in real.program.steps):
        # Batches of products may be any axis before a layout.
        sizes = ((a, b) for s, r in pairs for a, b in zip(s[:-1], r[:-1], strict=True))
        found = {a: b for a, b in sizes if a < b <= LARGEST_FACTOR}
    found |= {s[0]: r[0] for s, r in fed if len(s) > 2 and s[0] != r[0]}
    found |= {
        s[1] // f[1]: r[1] // g[1]
        for s, r in pairs for f, g in pairs
        if len(s) == len(f) > 2 and s[1] % f[1] == 0 and r[1] % g[1] == 0 and s[1] // f[1] > 1
        and s[1] // f[1] != r[1] // g[1]
    }  # fmt: skip
    return found


def _swapped(sketch: Sketch, old: int, new: int) -> Sketch:
    def chain(moves: tuple[object, ...]) -> tuple[object, ...]:
        return tuple(_factor(move, old, new) for move in moves)

    steps = tuple(
        Step(each.op, each.inputs, tuple(
            (name, chain(value) if name == "chain" else new if name == "count" and value == old else value)
            for name, value in each.params
        )) for each in sketch.steps
    )  # fmt: skip
    outputs = tuple((value, chain(moves)) for value, moves in sketch.outputs)
    return replace(sketch, steps=steps, outputs=outputs)  # type: ignore[arg-type]


def _factor(move: object, old: int, new: int) -> object:
    if isinstance(move, Move) and move.factor == old:
        return replace(move, factor=new)
    if isinstance(move, Tiles) and move.count == old:
        return replace(move, count=new)
    return move


def work_of(program: TensorProgram, shapes: Sequence[Shape]) -> int:
    """Return how many multiplications a program takes.

    Raises:
        DoesNotFit: a step does not take its operands.
    """
    types = types_of(program, shapes)
    total = 0
    for number, each in enumerate(program.steps):
        size = types[program.count + number].size
        if each.op == "conv":
            size *= prod(types[each.inputs[1]].shape[1:])
        elif each.op == "matmul":
            size *= types[each.inputs[0]].shape[-1]
        elif each.op == "pool":
            size *= prod(each.param("kernel"))
        total += size
    return total
