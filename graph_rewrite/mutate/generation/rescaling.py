"""Programs at smaller sizes: the inputs of their steps fit each other again, and so do the layouts between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from graph_rewrite.layouts import Crop, Fuse, Layout, Pad, Primitive, Shape, Split
from graph_rewrite.mutate.moves import DoesNotFit, layout_of
from graph_rewrite.mutate.program import Step, Subprogram, TensorProgram, step
from graph_rewrite.mutate.value_types import ValueType, type_of, types_of

GROUPS = 4
"""The largest number of groups of a small instance."""


def fitted(sub: Subprogram, shapes: Sequence[Shape]) -> Subprogram:
    """Return a subprogram at smaller shapes of its inputs. An input takes the sizes that the other operand of the first
    step that reads it has there: a sum of shrunk values has another size than its own, shrunk.

    Raises:
        DoesNotFit: a step does not take its operands.
        LayoutError: a layout does not.
    """
    program = sub.program
    real = [type.shape for type in types_of(program, sub.shapes)]
    small = list(shapes)
    waiting = set(range(program.count))
    steps: list[Step] = []
    for each in program.steps:
        for place, value in enumerate(each.inputs):
            if value in waiting:
                small[value] = _beside(each, place, waiting, small, real, program.count)
        waiting.difference_update(each.inputs)
        sizes = {a: b for r, s in zip(real, small, strict=False) for a, b in zip(r, s, strict=False)}
        new = rescaled(each, real[each.inputs[0]], small[each.inputs[0]], sizes) if each.op == "layout" else each
        steps.append(new)
        small.append(type_of(new, [ValueType(small[value], frozenset()) for value in each.inputs]).shape)
    made = TensorProgram(program.count, tuple(steps), program.outputs)
    return replace(sub, program=made, shapes=tuple(small[: program.count]))


def _beside(
    each: Step, place: int, waiting: set[int], small: Sequence[Shape], real: Sequence[Shape], count: int
) -> Shape:
    """Return the small shape of an operand, one of the program's `count` inputs, that fits the other operands."""
    value = each.inputs[place]
    own = small[value]
    known = [v for v in each.inputs if v not in waiting] or list(each.inputs[:place])
    if not known:
        return own
    other = known[0]
    if each.op == "conv":
        return _of_conv(each, place, small, real, count)
    if each.op == "matmul":
        inner = (*own[:-1], small[other][-2]) if place == 0 else (*own[:-2], small[other][-1], own[-1])
        return (*_aligned(inner[:-2], real[value][:-2], small[other][:-2], real[other][:-2]), *inner[-2:])
    if each.op in ("add", "mul"):
        return _aligned(own, real[value], small[other], real[other])
    if each.op == "concat":
        axis = each.param("axis")
        return tuple(own[i] if i == axis else size for i, size in enumerate(small[other]))
    return own


def _of_conv(each: Step, place: int, small: Sequence[Shape], real: Sequence[Shape], count: int) -> Shape:
    """Return the small shape of a convolution's operand: its filters have the channels of an image that is computed."""
    image, filters = each.inputs[:2]
    own = small[each.inputs[place]]
    if place == 2:
        return small[filters][:1]
    if place == 1 and image >= count:
        groups = min(real[image][1] // real[filters][1], GROUPS)
        return (own[0], small[image][1] // groups, *own[2:])
    return own


def _aligned(own: Shape, own_real: Shape, other: Shape, other_real: Shape) -> Shape:
    """Return a small shape with the sizes of another one where both are equal in the real shapes."""
    found = list(own)
    for i in range(1, min(len(own), len(other)) + 1):
        if own_real[-i] == other_real[-i]:
            found[-i] = other[-i]
    return tuple(found)


def rescaled(each: Step, real: Shape, small: Shape, sizes: Mapping[int, int]) -> Step:
    """Return a layout for a smaller operand. One with moves has no sizes, and stays as it is.

    Args:
        each: the layout.
        real: the shape of its operand.
        small: the smaller shape.
        sizes: smaller sizes that are known, by the real ones.

    Raises:
        DoesNotFit: a part of the layout has no smaller form.
        LayoutError: the layout does not fit the shape.
    """
    if real == small or not all(isinstance(move, Primitive) for move in each.chain):
        return each
    layout = layout_of(each.chain, real).normalised()
    made = Layout(small)
    for primitive, before in zip(layout.primitives, layout.shapes, strict=False):
        made = made.then(_rescaled(primitive, before, made.shape, sizes))
    return step("layout", *each.inputs, chain=made.primitives)


def _rescaled(primitive: Primitive, real: Shape, small: Shape, sizes: Mapping[int, int]) -> Primitive:
    match primitive:
        case Fuse(axis, parts):
            return Fuse(axis, small[axis : axis + len(parts)])
        case Split(axis, parts):
            return Split(axis, _parts(parts, small[axis], sizes))
        case Crop(axis, before, after):
            whole, left = real[axis], small[axis]
            if before * left % whole == 0 and after * left % whole == 0:
                return Crop(axis, before * left // whole, after * left // whole)
            if before + after < left:
                return primitive
            raise DoesNotFit(f"{primitive} at {small}")
        case Pad(axis, before, after):
            whole, left = real[axis], small[axis]
            if before * left % whole == 0 and after * left % whole == 0:
                return Pad(axis, before * left // whole, after * left // whole)
            return primitive
        case _:
            return primitive


def _parts(parts: Sequence[int], total: int, sizes: Mapping[int, int]) -> tuple[int, ...]:
    """Return smaller sizes with a product: known ones, the size of one part left open.

    Raises:
        DoesNotFit: there are none.
    """
    if not parts:
        return ()
    for others in (sizes, {}):
        for free in reversed(range(len(parts))):
            found = [others.get(size, min(size, 2)) for size in parts]
            found[free] = 1
            rest, remainder = divmod(total, prod(found))
            if not remainder and (rest > 1) == (parts[free] > 1):
                found[free] = rest
                return tuple(found)
    raise DoesNotFit(f"{total} as {len(parts)} factors")


def by_size(sub: Subprogram) -> tuple[Shape, ...]:
    """Return smaller shapes of a subprogram's inputs, equal sizes alike. What a layout takes apart is the product
    of its parts; the number of equal parts that are cut out of an axis stays.

    Raises:
        DoesNotFit: there are windows, whose sizes must stay.
    """
    if any(each.op in ("conv", "pool") for each in sub.program.steps):
        raise DoesNotFit("kernels keep their sizes")
    real = [type.shape for type in types_of(sub.program, sub.shapes)]
    products: dict[int, tuple[int, ...]] = {}
    counts = {1}
    for each in sub.program.steps:
        if each.op == "layout":
            layout = layout_of(each.chain, real[each.inputs[0]]).normalised()
            products |= _factors(layout)
            cut = dict(_cut(layout))
            products |= cut
            counts.update(count for count, _ in cut.values())
    wanted = {size for shape in real for size in shape}.union(*products.values())
    single = sorted(wanted.difference(products, counts))
    known = {size: size for size in counts} | {size: min(size, 2 + number) for number, size in enumerate(single)}
    for whole in sorted(products):
        known[whole] = prod(known[part] for part in products[whole])
    return tuple(tuple(known[size] for size in shape) for shape in sub.shapes)


def _factors(layout: Layout) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the sizes that a layout takes apart or fuses, with their parts; parts of 1 are left out."""
    for primitive in layout.primitives:
        if isinstance(primitive, Split | Fuse):
            parts = tuple(size for size in primitive.sizes if size > 1)
            if len(parts) > 1:
                yield prod(parts), parts


def _cut(layout: Layout) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the sizes that a layout cuts an equal part out of, with the number of parts and their size."""
    for primitive, shape in zip(layout.primitives, layout.shapes, strict=False):
        if isinstance(primitive, Crop):
            whole = shape[primitive.axis]
            part = whole - primitive.before - primitive.after
            if 1 < part < whole and whole % part == 0 == primitive.before % part:
                yield whole, (whole // part, part)
