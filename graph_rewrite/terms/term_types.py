"""Types of substitutions' operators: shapes, and the borders that a split can undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from graph_rewrite.terms.substitution import INPUT, Operand, Side, Term

Cuts = tuple[int, ...]

ELEMENTWISE = ("ewadd", "ewmul")
ACTIVATIONS = ("relu", "sigmoid", "tanh")


@dataclass(frozen=True, slots=True)
class TermType:
    """The type of an operand: its shape, and per axis the borders that `split` can undo.

    The borders of an axis are a stack: `concat` pushes its border above those of its operands, `split` takes the
    topmost and leaves each part those on its side (as TASO does). Without `cuts` no axis has any.
    """

    shape: tuple[int, ...]
    cuts: tuple[Cuts, ...] = ()
    constant: Term | None = None
    """A constant that has yet to meet an operand to be sized by; its shape is then ()."""

    def __post_init__(self) -> None:
        if not self.cuts:
            object.__setattr__(self, "cuts", ((),) * len(self.shape))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


Types = tuple[TermType, ...]


def infer(term: Term, types: Sequence[TermType]) -> Types | None:
    """Types of the outputs; None where the operator does not accept operands of these types."""
    closed = close(term, types)
    return None if closed is None else _INFER[term.op](term, closed)


def close(term: Term, types: Sequence[TermType]) -> Types | None:
    """The operands' types, with constants sized by the operand that they meet; None where nothing sizes one."""
    if not any(t.constant for t in types):
        return tuple(types)
    if len(types) != 2 or all(t.constant for t in types):
        return None
    at = 0 if types[0].constant else 1
    constant = types[at].constant
    assert constant is not None
    sized = CONSTANTS[constant.op](term, constant, at, types[1 - at])
    if sized is None:
        return None
    return (sized, types[1]) if at == 0 else (types[0], sized)


def infer_side(side: Side, types: Mapping[int, TermType]) -> list[Types] | None:
    """Types of the outputs of each term, given those of the inputs; None where one does not accept its operands.

    An output that is a constant of unknown size has no type: such a side has none either.
    """
    values: list[Types] = []
    for node in side.terms:
        outputs = infer(node, [operand_type(operand, types, values) for operand in node.inputs])
        if outputs is None:
            return None
        values.append(outputs)
    return None if any(operand_type(o, types, values).constant for o in side.outputs) else values


def output_types(side: Side, types: Mapping[int, TermType]) -> Types | None:
    """Types of the side's outputs, given those of its inputs; None where the side has none."""
    values = infer_side(side, types)
    return None if values is None else tuple(operand_type(operand, types, values) for operand in side.outputs)


def operand_type(operand: Operand, types: Mapping[int, TermType], values: Sequence[Types]) -> TermType:
    """The type of an operand, given those of the inputs and of the terms before."""
    return types[operand.index] if operand.node == INPUT else values[operand.node][operand.index]


# Sizes of constants: the type of a constant as operand number `at` of a term, beside `other`.


def _close_ones(term: Term, constant: Term, at: int, other: TermType) -> TermType | None:
    return TermType(other.shape, other.cuts) if term.op == "ewmul" else None


def _close_identity(term: Term, constant: Term, at: int, other: TermType) -> TermType | None:
    if other.rank < 2:
        return None
    if term.op == "ewadd":
        return TermType(other.shape, other.cuts) if other.shape[-1] == other.shape[-2] else None
    if term.op == "matmul":
        axis = other.rank - (1 if at else 2)
    elif term.op == "concat" and term.param("axis") >= other.rank - 2:
        axis = 2 * other.rank - 3 - term.param("axis")
    else:
        return None
    lead = other.rank - 2
    shape = (*other.shape[:lead], other.shape[axis], other.shape[axis])
    return TermType(shape, (*other.cuts[:lead], other.cuts[axis], other.cuts[axis]))


def _close_kernel(term: Term, constant: Term, at: int, other: TermType) -> TermType | None:
    kernel = constant.param("kernel")
    if other.rank != 4 or (term.op != "conv" and other.shape[2:] != kernel):
        return None
    if term.op == "conv" and at == 1:
        axis = 1
    elif term.op == "concat" and term.param("axis") in (0, 1):
        axis = 1 - term.param("axis")
    elif term.op == "ewadd" and other.shape[0] == other.shape[1]:
        return TermType(other.shape, other.cuts)
    else:
        return None
    return TermType((other.shape[axis], other.shape[axis], *kernel), (other.cuts[axis], other.cuts[axis], (), ()))


def _close_average(term: Term, constant: Term, at: int, other: TermType) -> TermType | None:
    if term.op != "conv" or at != 1 or other.rank != 4:
        return None
    return TermType((other.shape[1], 1, *constant.param("kernel")), (other.cuts[1], (), (), ()))


CONSTANTS: Mapping[str, Callable[[Term, Term, int, TermType], TermType | None]] = {
    "iewmul": _close_ones,
    "imatmul": _close_identity,
    "iconv": _close_kernel,
    "cpool": _close_average,
}


# Types.


def _common(a: Sequence[Cuts], b: Sequence[Cuts]) -> tuple[Cuts, ...]:
    """The borders of axes on which both agree."""
    return tuple(x if x == y else () for x, y in zip(a, b, strict=True))


def _infer_constant(term: Term, types: Types) -> Types | None:
    return (TermType((), constant=term),)


def _infer_elementwise(term: Term, types: Types) -> Types | None:
    a, b = types
    return (TermType(a.shape, _common(a.cuts, b.cuts)),) if a.shape == b.shape else None


def _infer_scale(term: Term, types: Types) -> Types | None:
    return (types[0],) if types[1].size == 1 else None


def _infer_same(term: Term, types: Types) -> Types | None:
    return types


def _infer_matmul(term: Term, types: Types) -> Types | None:
    a, b = types
    if a.rank < 2 or a.rank != b.rank or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return None
    lead = _common(a.cuts[:-2], b.cuts[:-2])
    return (TermType((*a.shape[:-1], b.shape[-1]), (*lead, a.cuts[-2], b.cuts[-1])),)


def window(term: Term, sizes: Sequence[int], kernel: Sequence[int]) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """Output sizes and (before, after) padding of the two spatial axes. The odd element of padding comes after."""
    strides = term.param("stride")
    if term.param("padding") == "valid":
        return tuple((n - k) // s + 1 for n, k, s in zip(sizes, kernel, strides, strict=True)), [(0, 0), (0, 0)]
    outputs = tuple(-(-n // s) for n, s in zip(sizes, strides, strict=True))
    totals = [max((o - 1) * s + k - n, 0) for o, s, k, n in zip(outputs, strides, kernel, sizes, strict=True)]
    return outputs, [(total // 2, total - total // 2) for total in totals]


def _infer_conv(term: Term, types: Types) -> Types | None:
    x, w = types
    if x.rank != 4 or w.rank != 4 or x.shape[1] % w.shape[1] or w.shape[0] % (x.shape[1] // w.shape[1]):
        return None
    sizes, _ = window(term, x.shape[2:], w.shape[2:])
    if min(sizes) < 1:
        return None
    return (TermType((x.shape[0], w.shape[0], *sizes), (x.cuts[0], w.cuts[0], (), ())),)


def _infer_pool(term: Term, types: Types) -> Types | None:
    (x,) = types
    if x.rank != 4:
        return None
    sizes, _ = window(term, x.shape[2:], term.param("kernel"))
    return (TermType((*x.shape[:2], *sizes), (*x.cuts[:2], (), ())),) if min(sizes) >= 1 else None


def _infer_transpose(term: Term, types: Types) -> Types | None:
    (x,) = types
    perm = term.param("perm")
    if sorted(perm) != list(range(x.rank)):
        return None
    return (TermType(tuple(x.shape[i] for i in perm), tuple(x.cuts[i] for i in perm)),)


def _infer_concat(term: Term, types: Types) -> Types | None:
    a, b = types
    axis, rank = term.param("axis"), term.param("rank")
    if a.rank != rank or b.rank != rank or not 0 <= axis < rank:
        return None
    if a.shape[:axis] != b.shape[:axis] or a.shape[axis + 1 :] != b.shape[axis + 1 :]:
        return None
    border = a.shape[axis]
    shape = (*a.shape[:axis], border + b.shape[axis], *a.shape[axis + 1 :])
    stack = (*a.cuts[axis], *(border + cut for cut in b.cuts[axis]), border)
    cuts = _common(a.cuts, b.cuts)
    return (TermType(shape, (*cuts[:axis], stack, *cuts[axis + 1 :])),)


def _infer_split(term: Term, types: Types) -> Types | None:
    (x,) = types
    axis = term.param("axis")
    if axis >= x.rank or not x.cuts[axis]:
        return None
    *rest, border = x.cuts[axis]
    parts = []
    for low, high in pairwise((0, border, x.shape[axis])):
        stack = tuple(cut - low for cut in rest if low < cut < high)
        shape = (*x.shape[:axis], high - low, *x.shape[axis + 1 :])
        parts.append(TermType(shape, (*x.cuts[:axis], stack, *x.cuts[axis + 1 :])))
    return tuple(parts)


def _infer_reshape(term: Term, types: Types) -> Types | None:
    (x,) = types
    target = term.param("shape")
    if any(size == 0 and axis >= x.rank for axis, size in enumerate(target)):
        return None
    shape = [x.shape[axis] if size == 0 else size for axis, size in enumerate(target)]
    if shape.count(-1) > 1:
        return None
    if -1 in shape:
        known = int(np.prod([size for size in shape if size != -1], dtype=np.int64))
        if x.size % known:
            return None
        shape[shape.index(-1)] = x.size // known
    return (TermType(tuple(shape)),) if int(np.prod(shape, dtype=np.int64)) == x.size else None


def _infer_enlarge(term: Term, types: Types) -> Types | None:
    (w,) = types
    kernel = term.param("kernel")
    if w.rank != 4 or w.shape[2] > kernel[0] or w.shape[3] > kernel[1]:
        return None
    return (TermType((*w.shape[:2], *kernel), (*w.cuts[:2], (), ())),)


_INFER: Mapping[str, Callable[[Term, Types], Types | None]] = {
    **dict.fromkeys(ELEMENTWISE, _infer_elementwise),
    **dict.fromkeys(ACTIVATIONS, _infer_same),
    **dict.fromkeys(("maxpool", "avgpool"), _infer_pool),
    **dict.fromkeys(CONSTANTS, _infer_constant),
    "smul": _infer_scale,
    "matmul": _infer_matmul,
    "conv": _infer_conv,
    "transpose": _infer_transpose,
    "concat": _infer_concat,
    "split": _infer_split,
    "reshape": _infer_reshape,
    "enlarge": _infer_enlarge,
}
