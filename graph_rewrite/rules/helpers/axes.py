"""Axes: permutations, shapes, joins and splits."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

TO_CHANNELS, FROM_CHANNELS = (0, 3, 1, 2), (0, 2, 3, 1)
"""Permutations of the axes of an image that has its channels last, [N, H, W, C], to [N, C, H, W], and back."""


def permutation(perm: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the attribute `perm` of Transpose; left out, it reverses the axes."""
    return tuple(reversed(range(rank))) if perm is None else tuple(perm)


def inverse(perm: Sequence[int]) -> tuple[int, ...]:
    """Return the permutation that undoes `perm`."""
    result = [0] * len(perm)
    for place, axis in enumerate(perm):
        result[axis] = place
    return tuple(result)


def swapped(rank: int) -> tuple[int, ...]:
    """Return the permutation that exchanges the last two of `rank` axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def transpose(op: ReplacementBuilder, x: Ref, perm: Sequence[int]) -> Ref:
    """Return x with its axes permuted; x itself where nothing moves."""
    if tuple(perm) == tuple(range(x.rank)):
        return x
    result: Ref = op.Transpose(x, perm=tuple(perm))
    return result


def reshape(op: ReplacementBuilder, x: Ref, shape: Sequence[int]) -> Ref:
    """Return x in a static shape; x itself where it has that shape."""
    if tuple(shape) == x.shape:
        return x
    # A zero in the shape means "as in the input" unless allowzero is set.
    result: Ref = op.Reshape(x, op.ints(*shape), allowzero=1 if 0 in shape else None)
    return result


def stripped(shape: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without leading ones, which broadcasting does not see."""
    dims = list(shape)
    while dims and dims[0] == 1:
        dims.pop(0)
    return tuple(dims)


def concat(op: ReplacementBuilder, parts: Sequence[Ref], axis: int) -> Ref:
    """Return the parts joined along an axis; a single part is returned as it is."""
    if len(parts) == 1:
        return parts[0]
    result: Ref = op.Concat(*parts, axis=axis)
    return result


def split(op: ReplacementBuilder, x: Ref, sizes: Sequence[int], axis: int) -> tuple[Ref, ...]:
    """Split x into the given sizes along an axis."""
    result: tuple[Ref, ...] = op.Split(x, op.ints(*sizes), axis=axis, _outputs=len(sizes))
    return result


def sizes_of(m: Match, label: str, count: int, axis: int) -> tuple[int, ...]:
    """Return the sizes along `axis` of the outputs of the matched Split with this label."""
    return tuple(m.value(label, i).shape[axis] for i in range(count))
