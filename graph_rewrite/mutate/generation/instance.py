"""Small instances of subprograms: mutants are found at few channels and small images, and carried over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import gcd, prod

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.moves import DoesNotFit, Move, Tiles
from graph_rewrite.mutate.program import Step, Subprogram, TensorProgram
from graph_rewrite.mutate.value_types import ValueType, input_types, type_of, types_of

SIDE = 16
"""The longest side of an image in a small instance, unless kernels are large."""
BATCH = 4
"""The largest batch of a small instance."""
_RATIO = 6
"""Numbers of channels keep their ratios up to this one."""
_ENOUGH = 4096
"""Elements of a subprogram's values that need no smaller instance."""


def small_instance(sub: Subprogram) -> tuple[Shape, ...]:
    """Return shapes of a subprogram's inputs at which it computes the same in small; its own where there are none."""
    try:
        if sum(value.size for value in types_of(sub.program, sub.shapes)) <= _ENOUGH:
            return sub.shapes
        shapes = _fitted(sub.program, _shrunk(sub))
        types = types_of(sub.program, shapes)
    except (DoesNotFit, LayoutError):
        return sub.shapes
    wanted = types_of(sub.program, sub.shapes)
    same = all(len(a.shape) == len(b.shape) for a, b in zip(types, wanted, strict=True))
    return shapes if same and sum(map(_size, shapes)) < sum(map(_size, sub.shapes)) else sub.shapes


def _size(shape: Shape) -> int:
    return prod(shape)


def _shrunk(sub: Subprogram) -> tuple[Shape, ...]:
    """Shrink batches, images and channels, equal sizes alike. Kernels and groups of up to four stay as they are."""
    filters = {each.inputs[1]: each.inputs[0] for each in sub.program.steps if each.op == "conv"}
    biases = {value for each in sub.program.steps if each.op == "conv" for value in each.inputs[2:]}
    reach = max([1, *(d * (k - 1) + 1 for d, k in _taps(sub))])
    side = max(SIDE if all(len(s) < 5 for s in sub.shapes) else SIDE // 2, 3 * reach)
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
    smaller = _smaller(sorted(channels))
    kept = min(groups, BATCH)
    found = []
    for value, shape in enumerate(sub.shapes):
        if value in filters:
            found.append((kept * smaller[shape[0] // groups], smaller[shape[1]], *shape[2:]))
        elif not shape:
            found.append(())
        elif len(shape) == 1:
            found.append((kept * smaller[shape[0] // groups],))
        elif len(shape) in (2, 3):
            found.append((*(min(size, BATCH) for size in shape[:-2]), *(smaller[size] for size in shape[-2:])))
        else:
            own = kept * smaller[shape[1] // groups] if filters else smaller[shape[1]]
            found.append((min(shape[0], BATCH), own, *(_side(size, side) for size in shape[2:])))
    return tuple(found)


def _fitted(program: TensorProgram, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Give filters as many channels as what they are applied to has in small: a concatenation of shrunk values has
    another number than its shrunk size."""
    found = list(shapes)
    types = input_types(shapes)
    for each in program.steps:
        image, *rest = each.inputs
        if each.op == "conv" and image >= program.count > rest[0]:
            old, size = found[rest[0]], types[image].shape[1]
            groups = max(1, round(size / old[1])) if size % old[1] == 0 else 1
            found[rest[0]] = (old[0], size // groups, *old[2:])
            types[rest[0]] = ValueType(found[rest[0]], types[rest[0]].monomials)
        types.append(type_of(each, [types[value] for value in each.inputs]))
    return tuple(found)


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


def _smaller(sizes: Sequence[int]) -> dict[int, int]:
    """Return smaller sizes of the same order: in the same ratios where these are small."""
    common = gcd(*sizes) if sizes else 1
    if sizes and sizes[-1] // common <= _RATIO:
        least = 2 if sizes[0] // common < 2 else 1
        return {size: min(size, size // common * least) for size in sizes}
    return {size: min(size, 2 + number) for number, size in enumerate(sizes)}


def lifted(sketch: Sketch, small: Sequence[Shape], real: Sequence[Shape]) -> Iterator[Sketch]:
    """Yield a mutant for the real shapes: with the same factors, then with the real batch or groups in the place of
    those of the small instance."""
    yield sketch
    swaps = {a[i]: b[i] for a, b in zip(small, real, strict=True) for i in (0,) if len(a) > 2 and a[0] != b[0]}
    swaps |= {
        s[1] // f[1]: r[1] // g[1]
        for s, r in zip(small, real, strict=True) for f, g in zip(small, real, strict=True)
        if len(s) == len(f) > 2 and s[1] % f[1] == 0 and r[1] % g[1] == 0 and s[1] // f[1] > 1
        and s[1] // f[1] != r[1] // g[1]
    }  # fmt: skip
    for old, new in swaps.items():
        other = _swapped(sketch, old, new)
        if other != sketch:
            yield other


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
