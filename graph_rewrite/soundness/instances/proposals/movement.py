"""Proposals for operators that move elements: Transpose, Reshape and its kin, Concat, Split, Slice, Gather, Pad."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping

import numpy as np

from graph_rewrite.rewriting.patterns import AttrVar
from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import DIMS, OperatorDraft, Proposal, axes_of
from graph_rewrite.soundness.instances.proposals.elementwise import RANKS
from graph_rewrite.soundness.instances.source_state import Shape

_PERMUTED = (3, 2, 4, 1)


def propose_transpose(a: OperatorDraft) -> None:
    """Transpose(x, perm)."""
    literal = a.node.attrs.get("perm")
    bound = a.source.attrs.get(literal.name) if isinstance(literal, AttrVar) else literal
    a.fresh_input(0, (len(bound),) if isinstance(bound, tuple) else _PERMUTED)
    rank = len(a.shape(0))
    if isinstance(literal, tuple) and rank != len(literal):
        raise DeadEnd("the permutation has another rank")
    swap = (*range(rank - 2), *range(rank - 1, max(rank - 3, -1), -1))
    others = [p for p in itertools.permutations(range(rank)) if p not in (swap,)]
    a.attr("perm", (swap, None, *others), (len(others), len(others) / 2 + 1, *(1.0,) * len(others)))


def propose_reshape(a: OperatorDraft) -> None:
    """Reshape(x, shape) to dimensions merged, split, or taken over; by 0 and -1 as well."""
    like: OperatorDraft | None = a.notes.get("like")
    if like is not None and a.free(0):
        source, target = list(like.shape(0)), list(like.notes["target"])
        kept = [i for i, dim in enumerate(target) if dim in source and math.prod(source) == math.prod(target)]
        change = a.pick("change", (None, *kept), (2.0, *(1.0,) * len(kept)))
        if change is not None:
            size = a.pick("change to", [d for d in (*DIMS, 6) if d != target[change]])
            place = source.index(target[change])
            source[place] = target[change] = size
        a.data(0, tuple(source))
    else:
        wanted = a.source.ranks.of_output(a.node)
        if a.free(0):
            a.fresh_input(0, (3, 4, 2, 1, 0), (2, 4, 3, 1))
        options = targets(a.shape(0))
        restored = restoring(a)
        options = list(dict.fromkeys((*restored, *options)))
        fitting = [t for t in options if len(t) in wanted] if wanted else options
        target = list(a.pick("to", fitting, [6.0 if t in restored else 1.0 for t in fitting]))
    a.notes["target"] = tuple(target)
    if a.free(1):
        written = a.pick("written", ("plain", "-1", "0"), (3, 1, 1))
        a.parameter(1, written_as(a.shape(0), tuple(target), written))
    a.attr("allowzero", (None,))


def targets(shape: Shape) -> list[Shape]:
    """Shapes that a value of this shape may be given: neighbours merged, an axis split, ones inserted or dropped."""
    found: dict[Shape, None] = {}
    size, rank = math.prod(shape), len(shape)
    if rank > 1:
        found[(math.prod(shape[:-1]), shape[-1])] = None
        found[(*shape[:2], math.prod(shape[2:]))] = None
        found[(*shape[:-2], shape[-2] * shape[-1])] = None
        found[(shape[0] * shape[1], *shape[2:])] = None
    for axis, dim in enumerate(shape):
        for part in (2, 3, 1):
            if dim % part == 0:
                found[(*shape[:axis], dim // part, part, *shape[axis + 1 :])] = None
                found[(*shape[:axis], part, dim // part, *shape[axis + 1 :])] = None
        if dim == 1:
            found[(*shape[:axis], *shape[axis + 1 :])] = None
    found[(*shape, 1)] = None
    found[(1, *shape)] = None
    if rank > 2:
        found[(1, 1, math.prod(shape[:-1]), shape[-1])] = None
    found.update(dict.fromkeys(itertools.permutations(shape) if rank <= 4 else ()))
    found[(size,)] = None
    found[shape] = None
    if size % 2 == 0:
        found[(2, size // 2)] = None
        found[(size // 2, 2)] = None
    for shorter in list(found)[:6]:
        for axis, dim in enumerate(shorter):
            if dim % 2 == 0 and len(shorter) < 4:
                found[(*shorter[:axis], dim // 2, 2, *shorter[axis + 1 :])] = None
    return list(found)


def restoring(a: OperatorDraft) -> list[Shape]:
    """Shapes that undo an earlier Reshape but for an axis or two that an operator between may have changed."""
    shape, found = a.shape(0), []
    for earlier in a.earlier:
        if earlier.op != "Reshape" or not shape:
            continue
        before = earlier.shape(0)
        found += [(*before[:-1], shape[-1]), (*before[:-2], *shape[-2:]), (*before[:1], *shape[1:2], *before[2:])]
        found += [(*before[:-2], *before[-2:][::-1]), before]
    return [target for target in found if math.prod(target) == math.prod(shape)]


def written_as(shape: Shape, target: Shape, written: str) -> list[int]:
    """A target shape with one dimension as -1, or those that stay as 0."""
    result = list(target)
    if written == "-1" and result:
        result[result.index(max(result))] = -1
    elif written == "0":
        result = [0 if i < len(shape) and shape[i] == dim else dim for i, dim in enumerate(result)]
    return result


def propose_flatten(a: OperatorDraft) -> None:
    """Flatten(x, axis)."""
    a.fresh_input(0, RANKS)
    a.attr("axis", (None, *range(len(a.shape(0)) + 1), *range(-len(a.shape(0)), 0)))


def propose_squeeze(a: OperatorDraft) -> None:
    """Squeeze(x, axes) of axes of size 1; all of them where axes are left out."""
    a.fresh_input(0, (3, 2, 4, 1), (1, 2, 3))
    ones = [axis for axis, dim in enumerate(a.shape(0)) if dim == 1]
    if a.optional(1):
        sets = [axes for count in (1, 2) for axes in itertools.combinations(ones, count)]
        a.parameter(1, signed(a, a.pick("axes", sets), len(a.shape(0))))


def propose_unsqueeze(a: OperatorDraft) -> None:
    """Unsqueeze(x, axes)."""
    a.fresh_input(0, RANKS)
    rank = len(a.shape(0))
    sets = [axes for count in (1, 2) for axes in itertools.combinations(range(rank + count), count)]
    if a.free(1):
        axes = a.pick("axes", sets)
        a.parameter(1, signed(a, axes, rank + len(axes)))


def propose_expand(a: OperatorDraft) -> None:
    """Expand(x, shape), where the shape broadcasts with x."""
    a.fresh_input(0, RANKS)
    shape = a.shape(0)
    options = [shape, (1,) * len(shape), (2, *shape), shape[1:], tuple(3 if dim == 1 else dim for dim in shape)]
    if a.free(1):
        a.parameter(1, a.pick("to", list(dict.fromkeys(options))))


def propose_concat(a: OperatorDraft) -> None:
    """Concat of parts that differ along the axis alone."""
    if not any(a.known(i) for i in range(len(a.inputs))):
        if a.inputs:
            a.fresh_input(0, (2, 3, 4, 1))
        else:
            a.data(0, a.fresh(a.tail.name if a.tail else "x", (2, 3, 4, 1)))
    known = [a.shape(i) for i in range(len(a.inputs)) if a.known(i)]
    rank = len(known[0])
    if any(len(shape) != rank for shape in known):
        raise DeadEnd("parts of different ranks")
    fitting = [x for x in axes_of(rank) if len({tuple(np.delete(shape, x % rank)) for shape in known}) == 1]
    axis = a.attr("axis", fitting)
    if axis is None or not -rank <= axis < rank:
        raise DeadEnd("no such axis")
    count = len(a.inputs)
    if a.tail is not None:
        count += a.pick("more parts", (1, 2, 0, 3), (3, 2, 1, 1))
    for i in range(count):
        if a.free(i):
            shape = list(known[0])
            shape[axis] = a.pick(f"part {i}", (2, 1, 3, known[0][axis]) if known[0][axis] > 3 else (2, 1, 3))
            a.data(i, tuple(shape))


def propose_split(a: OperatorDraft) -> None:
    """Split(x, sizes, axis)."""
    parts = a.node.outputs
    a.fresh_input(0, (2, 3, 4, 1), (4, 3, 2, 6))
    shape = a.shape(0)
    axes = [axis for axis in axes_of(len(shape)) if shape[axis] >= parts]
    axis = a.attr("axis", (*([None] if shape and shape[0] >= parts else []), *axes)) or 0
    if not -len(shape) <= axis < len(shape):
        raise DeadEnd("no such axis")
    if a.optional(1):
        a.parameter(1, a.pick("sizes", compositions(shape[axis], parts)))
    elif not a.known(1):
        a.attr("num_outputs", (parts,))


def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """Ways to write a number as a sum of so many positive ones."""
    if parts == 1:
        return [(total,)]
    return [(first, *rest) for first in range(1, total - parts + 2) for rest in compositions(total - first, parts - 1)]


def signed(a: OperatorDraft, axes: tuple[int, ...], rank: int) -> list[int]:
    """Axes in order, all counted from the front or all from the end."""
    back = a.pick("axes from", ("the front", "the end")) == "the end"
    return [axis - rank if back else axis for axis in axes]


MOVEMENT_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "Transpose"): propose_transpose,
    ("", "Reshape"): propose_reshape,
    ("", "Flatten"): propose_flatten,
    ("", "Squeeze"): propose_squeeze,
    ("", "Unsqueeze"): propose_unsqueeze,
    ("", "Expand"): propose_expand,
    ("", "Concat"): propose_concat,
    ("", "Split"): propose_split,
}
