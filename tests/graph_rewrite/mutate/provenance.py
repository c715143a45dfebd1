"""Programs as sums of products: which elements of the inputs each term of each element reads."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import layout_of
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.mutate.value_types import types_of

Terms = dict[Any, tuple[int, ...]]
"""By the index of summation: the positions that are read of all inputs, one after the other."""
Elements = np.ndarray[Any, Any]
"""An array whose elements are terms."""


def provenance(program: TensorProgram, shapes: Sequence[Shape]) -> list[Elements]:
    """Return the terms of each element of each output."""
    values = [_leaf(number, shape) for number, shape in enumerate(shapes)]
    types = types_of(program, shapes)
    for number, each in enumerate(program.steps):
        shape = types[program.count + number].shape
        values.append(_STEPS[each.op](each, [values[v] for v in each.inputs], shape))
    return [values[v] for v in program.outputs]


def _array(shape: Shape, element: Callable[[tuple[int, ...]], Terms]) -> Elements:
    found = np.empty(shape, dtype=object)
    for place in np.ndindex(*shape):
        found[place] = element(place)
    return found


def _leaf(number: int, shape: Shape) -> Elements:
    return _array(shape, lambda place: {number: place})


def _times(index: Any, a: Terms, b: Terms) -> Terms:
    return {(index, i, j): (*p, *q) for i, p in a.items() for j, q in b.items()}


def _layout(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    flat = operands[0].reshape(-1)
    index = layout_of(each.chain, operands[0].shape).index_map()
    return _array(shape, lambda place: {} if index[place] < 0 else flat[index[place]])


def _seen(each: Step, x: Elements, kernel: Shape, place: tuple[int, ...], channel: int) -> Any:
    """Yield the elements of a channel in the window at a place, by their place in the kernel."""
    params = dict(each.params)
    dilations = params.get("dilations", (1,) * len(kernel))
    for tap in np.ndindex(*kernel):
        at = tuple(
            place[2 + i] * params["strides"][i] - params["pads"][i] + k * dilations[i] for i, k in enumerate(tap)
        )  # fmt: skip
        if all(0 <= a < size for a, size in zip(at, x.shape[2:], strict=True)):
            yield tap, x[(place[0], channel, *at)]


def _conv(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    x, w = operands[:2]
    per_group = w.shape[0] // (x.shape[1] // w.shape[1])

    def element(place: tuple[int, ...]) -> Terms:
        m, first, found = place[1], place[1] // per_group * w.shape[1], {}
        for c in range(w.shape[1]):
            for tap, read in _seen(each, x, w.shape[2:], place, first + c):
                found |= _times((c, tap), read, w[(m, c, *tap)])
        return found

    return _array(shape, element)


def _pool(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    (x,) = operands

    def element(place: tuple[int, ...]) -> Terms:
        seen = _seen(each, x, each.param("kernel"), place, place[1])
        return {(tap, index): read for tap, terms in seen for index, read in terms.items()}

    return _array(shape, element)


def _matmul(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    a = np.broadcast_to(operands[0], (*shape[:-2], *operands[0].shape[-2:]))
    b = np.broadcast_to(operands[1], (*shape[:-2], *operands[1].shape[-2:]))

    def element(place: tuple[int, ...]) -> Terms:
        found: Terms = {}
        for k in range(a.shape[-1]):
            found |= _times(k, a[(*place[:-1], k)], b[(*place[:-2], k, place[-1])])
        return found

    return _array(shape, element)


def _pairwise(combine: Callable[[Terms, Terms], Terms]) -> Callable[[Step, list[Elements], Shape], Elements]:
    def element_wise(each: Step, operands: list[Elements], shape: Shape) -> Elements:
        a, b = (np.broadcast_to(operand, shape) for operand in operands)
        return _array(shape, lambda place: combine(a[place], b[place]))

    return element_wise


def _sum(a: Terms, b: Terms) -> Terms:
    return {("a", i): read for i, read in a.items()} | {("b", i): read for i, read in b.items()}


def _fit(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    x = operands[0]
    inside = lambda place: all(i < size for i, size in zip(place, x.shape, strict=True))  # noqa: E731
    return _array(shape, lambda place: x[place] if inside(place) else {})


def _diagonal(each: Step, operands: list[Elements], shape: Shape) -> Elements:
    (x,) = operands
    count, source, target = each.param("count"), each.param("source"), each.param("target")

    def element(place: tuple[int, ...]) -> Terms:
        block, inside = divmod(place[target], x.shape[target])
        if place[source] // (x.shape[source] // count) != block:
            return {}
        terms: Terms = x[tuple(inside if axis == target else i for axis, i in enumerate(place))]
        return terms

    return _array(shape, element)


_STEPS: dict[str, Callable[[Step, list[Elements], Shape], Elements]] = {
    "layout": _layout,
    "conv": _conv,
    "pool": _pool,
    "matmul": _matmul,
    "add": _pairwise(_sum),
    "mul": _pairwise(lambda a, b: _times(0, a, b)),
    "concat": lambda each, operands, shape: np.concatenate(operands, axis=each.param("axis")),
    "fit": _fit,
    "diagonal": _diagonal,
}
