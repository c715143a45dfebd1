"""Movement of Reshape and operators like it: past element-wise operators, normalisations and Transpose, in both
directions."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.algebra.elimination_shape import RESHAPES
from graph_rewrite.rules.helpers.axes import permutation, reshape, stripped, transpose
from graph_rewrite.rules.helpers.elementwise import BINARY, UNARY, apply_like
from graph_rewrite.rules.helpers.operands import in_order, refuse_broadcast_scale
from graph_rewrite.rules.movement.transpose import NORMALISATIONS

Shape = tuple[int, ...]


class _Movement(Rule):
    family = "movement"


class ReshapeAfterUnary(_Movement):
    """f(Reshape(x)) = Reshape(f(x)) for element-wise f; so for Flatten, Squeeze, Unsqueeze"""

    def source(self, op: PatternBuilder, x: Any, shape: Values, rest: Values) -> Any:
        return op.any_of(UNARY)(op.any_of(RESHAPES)(x, shape), rest, _label="f")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return reshape(op, apply_like(op, m, "f", x, *rest), m.root().shape)


class ReshapeBeforeUnary(_Movement):
    """Reshape(f(x)) = f(Reshape(x)) for element-wise f; so for Flatten, Squeeze, Unsqueeze"""

    def source(self, op: PatternBuilder, x: Any, rest: Values, shape: Values) -> Any:
        return op.any_of(RESHAPES)(op.any_of(UNARY)(x, rest, _label="f"), shape)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], shape: tuple[Ref, ...]) -> Any:
        return apply_like(op, m, "f", reshape(op, x, m.root().shape), *rest)


class ReshapesAfterBinary(_Movement):
    """f(Reshape(x), Reshape(y)) = Reshape(f(x, y)) for element-wise f and x, y of one shape"""

    def source(self, op: PatternBuilder, x: Any, y: Any, s: Values, t: Values) -> Any:
        left, right = op.any_of(RESHAPES)(x, s, _label="left"), op.any_of(RESHAPES)(y, t, _label="right")
        return op.any_of(BINARY)(left, right, _label="f")

    def check(self, m: Match, x: Ref, y: Ref, s: tuple[Ref, ...], t: tuple[Ref, ...]) -> Refusal | None:
        alike = x.shape == y.shape and m.value("left").shape == m.value("right").shape
        return None if alike else Refusal("the operands differ in shape")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, s: tuple[Ref, ...], t: tuple[Ref, ...]) -> Any:
        return reshape(op, apply_like(op, m, "f", x, y), m.root().shape)


class ReshapeAfterBinary(_Movement):
    """f(Reshape(x), y) = Reshape(f(x, y)) for element-wise f, where y broadcasts over axes that stay"""

    def source(self, op: PatternBuilder, x: Any, shape: Values, y: Any) -> Any:
        moved = op.any_of(RESHAPES)(x, shape, _label="reshape")
        return op.any_of(BINARY)(moved, y, _label="f", _any_order=True)

    def check(self, m: Match, x: Ref, shape: tuple[Ref, ...], y: Ref) -> Refusal | None:
        return _stays(y, m.value("reshape").shape, x.shape, m.root().shape)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...], y: Ref) -> Any:
        operand = reshape(op, y, stripped(y.shape))
        return reshape(op, apply_like(op, m, "f", *in_order(m, "f", m.value("reshape"), x, operand)), m.root().shape)


class ReshapeBeforeBinary(_Movement):
    """Reshape(f(x, y)) = f(Reshape(x), y) for element-wise f, where y broadcasts over axes that stay"""

    def source(self, op: PatternBuilder, x: Any, y: Any, shape: Values) -> Any:
        return op.any_of(RESHAPES)(op.any_of(BINARY)(x, y, _label="f", _any_order=True), shape)

    def check(self, m: Match, x: Ref, y: Ref, shape: tuple[Ref, ...]) -> Refusal | None:
        return _stays(y, x.shape, m.root().shape, m.value("f").shape)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, shape: tuple[Ref, ...]) -> Any:
        moved, operand = reshape(op, x, m.root().shape), reshape(op, y, stripped(y.shape))
        return apply_like(op, m, "f", *in_order(m, "f", x, moved, operand))


class ReshapesBeforeBinary(_Movement):
    """Reshape(f(x, y)) = f(Reshape(x), Reshape(y)) for element-wise f and x, y of one shape"""

    def source(self, op: PatternBuilder, x: Any, y: Any, shape: Values) -> Any:
        return op.any_of(RESHAPES)(op.any_of(BINARY)(x, y, _label="f"), shape)

    def check(self, m: Match, x: Ref, y: Ref, shape: tuple[Ref, ...]) -> Refusal | None:
        return None if x.shape == y.shape else Refusal("the operands differ in shape")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, shape: tuple[Ref, ...]) -> Any:
        return apply_like(op, m, "f", *(reshape(op, operand, m.root().shape) for operand in (x, y)))


class ReshapeAfterNormalisation(_Movement):
    """f(Reshape(x)) = Reshape(f(x)) for f in Softmax, LogSoftmax, Hardmax, LayerNormalization, RMSNormalization, where
    the axes from the normalised one on stay"""

    def source(self, op: PatternBuilder, x: Any, shape: Values, rest: Values) -> Any:
        moved = op.any_of(RESHAPES)(x, shape)
        return op.any_of(NORMALISATIONS)(moved, rest, axis=op.attr("axis", -1), _label="f")

    def check(self, m: Match, x: Ref, shape: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return _keeps_last(m, m.root().shape, x.shape, rest)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return reshape(op, _normalise(op, m, x, rest, m.root().rank), m.root().shape)


class ReshapeBeforeNormalisation(_Movement):
    """Reshape(f(x)) = f(Reshape(x)) for f in Softmax, LogSoftmax, Hardmax, LayerNormalization, RMSNormalization, where
    the axes from the normalised one on stay"""

    def source(self, op: PatternBuilder, x: Any, rest: Values, shape: Values) -> Any:
        normal = op.any_of(NORMALISATIONS)(x, rest, axis=op.attr("axis", -1), _label="f")
        return op.any_of(RESHAPES)(normal, shape)

    def check(self, m: Match, x: Ref, rest: tuple[Ref, ...], shape: tuple[Ref, ...]) -> Refusal | None:
        return _keeps_last(m, x.shape, m.root().shape, rest)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], shape: tuple[Ref, ...]) -> Any:
        return _normalise(op, m, reshape(op, x, m.root().shape), rest, x.rank)


class TransposeAsReshape(_Movement):
    """Transpose(x, p) = Reshape(x), where p moves only axes of size 1"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Transpose(x, perm=op.attr("p"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        moved = [axis for axis in permutation(m.attr("p"), x.rank) if x.shape[axis] != 1]
        return None if moved == sorted(moved) else Refusal("axes that hold more than one element change places")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return reshape(op, x, m.root().shape)


class ReshapeAsTranspose(_Movement):
    """Reshape(x) = Transpose(x, p), where only axes of size 1 change places"""

    def source(self, op: PatternBuilder, x: Any, shape: Any) -> Any:
        return op.Reshape(x, shape)

    def check(self, m: Match, x: Ref, shape: Ref) -> Refusal | None:
        target = m.root().shape
        if len(target) != x.rank or [d for d in x.shape if d != 1] != [d for d in target if d != 1]:
            return Refusal("the axes with more than one element are not the same")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: Ref) -> Any:
        ones = iter([axis for axis, dim in enumerate(x.shape) if dim == 1])
        others = iter([axis for axis, dim in enumerate(x.shape) if dim != 1])
        return transpose(op, x, [next(ones if dim == 1 else others) for dim in m.root().shape])


class ReshapeAfterTranspose(_Movement):
    """Reshape(Transpose(x, p)) = Transpose(Reshape(x), q), where axes merge that p keeps together, or split"""

    def source(self, op: PatternBuilder, x: Any, shape: Values) -> Any:
        return op.any_of(RESHAPES)(op.Transpose(x, perm=op.attr("p"), _label="t"), shape)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...]) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        blocks = _aligned(m.value("t").shape, m.root().shape)
        if blocks is None or len(blocks) < 2:
            return Refusal("the Reshape merges and splits across all axes")
        sources = [perm[before.start : before.stop] for before, _ in blocks]
        if any(axes != tuple(range(axes[0], axes[0] + len(axes))) for axes in sources):
            return Refusal("the Reshape merges axes that the Transpose brought together")
        order = sorted(range(len(blocks)), key=lambda k: sources[k][0])
        places = {k: [m.root().shape[axis] for axis in blocks[k][1]] for k in order}
        starts: dict[int, int] = {}
        shape_before: list[int] = []
        for k in order:
            starts[k] = len(shape_before)
            shape_before.extend(places[k])
        moved = [starts[k] + i for k in range(len(blocks)) for i in range(len(places[k]))]
        return transpose(op, reshape(op, x, shape_before), moved)


class TransposeAfterReshape(_Movement):
    """Transpose(Reshape(x), q) = Reshape(Transpose(x, p)), where q keeps together the axes that the Reshape splits"""

    def source(self, op: PatternBuilder, x: Any, shape: Values) -> Any:
        return op.Transpose(op.any_of(RESHAPES)(x, shape, _label="r"), perm=op.attr("q"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...]) -> Any:
        middle = m.value("r")
        blocks = _aligned(x.shape, middle.shape)
        if blocks is None or len(blocks) < 2:
            return Refusal("the Reshape merges and splits across all axes")
        where = {axis: k for k, (_, after) in enumerate(blocks) for axis in after}
        perm = permutation(m.attr("q"), middle.rank)
        order = list(dict.fromkeys(where[axis] for axis in perm))
        if perm != tuple(axis for k in order for axis in blocks[k][1]):
            return Refusal("the Transpose takes apart axes that the Reshape splits")
        moved = transpose(op, x, [axis for k in order for axis in blocks[k][0]])
        return reshape(op, moved, m.root().shape)


def _stays(y: Ref, before: Shape, after: Shape, result: Shape) -> Refusal | None:
    """Tell whether y means the same to a first operand of shape `before` and of shape `after`."""
    if result != before:
        return Refusal("the other operand broadcasts the reshaped one")
    count = len(stripped(y.shape))
    if count and before[-count:] != after[-count:]:
        return Refusal("the other operand broadcasts over axes that the Reshape changes")
    return None


def _keeps_last(m: Match, before: Shape, after: Shape, parameters: tuple[Ref, ...]) -> Refusal | None:
    if m.opset < 13:
        return Refusal("before opset 13 Softmax works over several axes")
    count = len(before) - m.attr("axis") % len(before)
    if count > len(after) or before[-count:] != after[-count:]:
        return Refusal("the Reshape changes the normalised axes")
    return refuse_broadcast_scale(parameters, count)


def _normalise(op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], rank: int) -> Ref:
    """Apply the matched normalisation, which worked on `rank` axes, to x; its axis is counted from the end."""
    node = m.node("f")
    return op.apply(node.op, node.domain, {**node.attrs, "axis": m.attr("axis") % rank - rank}, (x, *rest), 1)[0]


def _aligned(before: Shape, after: Shape) -> list[tuple[range, range]] | None:
    """Return the finest blocks of consecutive axes that a Reshape maps onto each other; None for empty tensors and
    scalars."""
    if 0 in before or not before or not after:
        return None
    blocks: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        start_i, start_j = i, j
        left, right = before[i], after[j]
        i, j = i + 1, j + 1
        while left != right:
            if left < right:
                left, i = left * before[i], i + 1
            else:
                right, j = right * after[j], j + 1
        blocks.append((range(start_i, i), range(start_j, j)))
    # What is left over on one side are ones.
    last = blocks.pop()
    return [*blocks, (range(last[0].start, len(before)), range(last[1].start, len(after)))]


RULES = (
    ReshapeAfterUnary, ReshapeBeforeUnary, ReshapesAfterBinary, ReshapeAfterBinary, ReshapeBeforeBinary,
    ReshapesBeforeBinary, ReshapeAfterNormalisation, ReshapeBeforeNormalisation, TransposeAsReshape,
    ReshapeAsTranspose, ReshapeAfterTranspose, TransposeAfterReshape,
)  # fmt: skip
