"""The ONNX form of a sequence of primitives: neighbours that one operator can do become one operator."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.layouts.operators import padded, reshaped, sliced
from graph_rewrite.layouts.primitive import Primitive, Shape
from graph_rewrite.layouts.sizes import Crop, Fold, Pad, Unfold
from graph_rewrite.layouts.views import Fuse, Split
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder


def build(op: ReplacementBuilder, x: Ref, primitives: Sequence[Primitive]) -> Ref:
    """Return x after the primitives: a Reshape for neighbouring views, a Pad or a Slice for several axes."""
    i = 0
    while i < len(primitives):
        end = _end_of_group(primitives, i, x.shape)
        group, i = primitives[i:end], end
        first = group[0]
        if _is_reshape(first, x.shape):
            x = reshaped(op, x, _result(x.shape, group))
        elif isinstance(first, Pad):
            x = padded(op, x, {each.axis: (each.before, each.after) for each in group if isinstance(each, Pad)})
        elif isinstance(first, Crop):
            crops = [each for each in group if isinstance(each, Crop)]
            x = sliced(op, x, {each.axis: (each.before, x.shape[each.axis] - each.after) for each in crops})
        else:
            x = first.onnx(op, x)
    return x


def _end_of_group(primitives: Sequence[Primitive], start: int, shape: Shape) -> int:
    """Return the end of the longest group of primitives from `start` on that one operator can do."""
    first, end = primitives[start], start + 1
    if _is_reshape(first, shape):
        shape = first.result(shape)
        while end < len(primitives) and _is_reshape(primitives[end], shape):
            shape, end = primitives[end].result(shape), end + 1
        return end
    if isinstance(first, (Pad, Crop)):
        axes = {first.axis}
        while end < len(primitives):
            following = primitives[end]
            if not isinstance(following, type(first)) or following.axis in axes:
                break
            axes.add(following.axis)
            end += 1
    return end


def _is_reshape(primitive: Primitive, shape: Shape) -> bool:
    """Tell whether a primitive keeps the order of all elements."""
    if isinstance(primitive, Unfold):
        return primitive.tile in (primitive.stride, shape[primitive.axis])
    if isinstance(primitive, Fold):
        tiles, tile = shape[primitive.axis : primitive.axis + 2]
        return tiles == 1 or tile == primitive.stride
    return isinstance(primitive, (Split, Fuse))


def _result(shape: Shape, primitives: Sequence[Primitive]) -> Shape:
    for primitive in primitives:
        shape = primitive.result(shape)
    return shape
