"""Proposals for operators that take or add elements: Slice, Gather, Pad."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import OperatorDraft, Proposal, axes_of
from graph_rewrite.soundness.instances.proposals.movement import signed

FAR = np.iinfo(np.int64).max
"""The end that exports write where a slice goes on to the end."""


def propose_slice(a: OperatorDraft) -> None:
    """Slice(x, starts, ends, axes, steps) along one axis or two; perhaps where an earlier Slice of x ended."""
    like: OperatorDraft | None = a.notes.get("like")
    if like is not None and a.free(0):
        a.data(0, like.shape(0))
    a.fresh_input(0, (2, 3, 4, 1), (4, 3, 2, 5))
    shape = a.shape(0)
    beside = like is not None and like.inputs[0] != a.inputs[0] and like.shape(0) == shape
    if like is not None and beside and a.pick("cuts", ("the same", "others")) == "the same":
        cuts = dict(like.notes["cuts"])
    elif like is not None and not beside and like.inputs[0] == a.inputs[0]:
        cuts = dict(like.notes["cuts"])
        axis = next(iter(cuts))
        start = cuts[axis][1] if cuts[axis][1] != FAR else shape[axis]
        cuts[axis] = (start, a.pick("goes on to", (FAR, shape[axis], start + 1)), 1)
    else:
        first = a.pick("axis", range(len(shape)))
        cuts = {first: cuts_of(shape[first])[a.pick("cut", CUTS)]}
        second = a.pick(
            "second axis",
            (None, *(axis for axis in range(len(shape)) if axis != first)),
            (2.0 * len(shape), *(1.0,) * (len(shape) - 1)),
        )
        if second is not None:
            cuts[second] = cuts_of(shape[second])[a.pick("second cut", CUTS)]
    a.notes["cuts"] = cuts
    _give_cuts(a, cuts, len(shape))


def _give_cuts(a: OperatorDraft, cuts: dict[int, tuple[int, int, int]], rank: int) -> None:
    if a.free(1):
        a.parameter(1, [start for start, _, _ in cuts.values()])
    if a.free(2):
        a.parameter(2, [end for _, end, _ in cuts.values()])
    leading = list(cuts) == list(range(len(cuts)))
    stepped = any(step != 1 for _, _, step in cuts.values())
    axes_needed = not leading or (stepped and a.tail is not None)
    if a.free(3) if axes_needed else a.optional(3):
        a.parameter(3, signed(a, tuple(cuts), rank))
    elif axes_needed:
        raise DeadEnd("the axes have to be named")
    elif a.tail is not None:
        return
    if a.free(4) if stepped else a.optional(4):
        a.parameter(4, [step for _, _, step in cuts.values()])
    elif stepped:
        raise DeadEnd("the steps have to be named")


def cuts_of(dim: int) -> dict[str, tuple[int, int, int]]:
    """Start, end and step of slices of an axis: from either end, past the end, with steps, backwards, all of it."""
    half = max(dim // 2, 1)
    return {
        "first half": (0, half, 1), "second half": (half, FAR, 1), "all": (0, dim, 1), "all, no end": (0, FAR, 1),
        "last": (-half, FAR, 1), "but the first": (1, dim, 1), "but the last": (0, -1, 1), "every second": (0, dim, 2),
        "odd ones": (1, FAR, 2), "every second, no end": (0, FAR, 2), "backwards": (-1, -dim - 1, -1),
        "backwards to 1": (dim - 1, 0, -1), "every third": (0, dim, 3), "past the end": (half, dim + 3, 1),
        "from -dim": (-dim, half, 1), "backwards by 2": (-1, -FAR, -2),
    }  # fmt: skip


CUTS = tuple(cuts_of(4))
"""Names of the slices of an axis."""


def propose_gather(a: OperatorDraft) -> None:
    """Gather(x, indices, axis): a number, a run, a step, backwards, anything, a table."""
    a.fresh_input(0, (2, 3, 4, 1), (3, 4, 2, 1))
    shape = a.shape(0)
    axis = a.attr("axis", (None, *axes_of(len(shape)))) or 0
    if not -len(shape) <= axis < len(shape):
        raise DeadEnd("no such axis")
    dim = shape[axis]
    runs = [
        list(range(dim)),
        list(range(dim))[::2],
        list(range(dim))[::-1],
        [0],
        [dim - 1, 0],
        [-1],
        [-dim],
        [dim // 2],
    ]
    runs += [list(range(dim))[1:], [0, 0], [-2 % dim, dim - 1]]
    kind = a.pick("indices", (*range(len(runs)), "first", "last", "table"))
    content: object = (
        {"first": 0, "last": -1, "table": [[0, dim - 1], [dim // 2, 0]]}.get(kind)
        if isinstance(kind, str)
        else runs[kind]
    )
    if isinstance(content, list) and not content:
        raise DeadEnd("no indices")
    if a.free(1):
        a.parameter(1, np.asarray(content))


def propose_pad(a: OperatorDraft) -> None:
    """Pad(x, pads, value, axes, mode)."""
    spatial = a.source.ranks.of_output(a.node) or frozenset()
    a.fresh_input(0, (2, 3, 4, 1), (2, 3, 4, 1))
    rank = len(a.shape(0))
    mode = a.attr("mode", (None, "constant", "edge", "reflect"), (2, 1, 1, 1))
    axes = a.pick("padded axes", ("all", "one", "last two") if rank > 1 else ("all",))
    first = min(2, rank - 1) if spatial and min(spatial) > 2 else 0
    which = {"all": range(first, rank), "one": [rank - 1], "last two": range(rank - 2, rank)}[axes]
    amounts = a.pick("pads", (0, 1, 2, "before", "after", "negative"), (2, 2, 1, 1, 1, 1))
    if mode == "reflect" and amounts not in (0, 1):
        raise DeadEnd("not enough to reflect")
    before, after = {"before": (1, 0), "after": (0, 2), "negative": (-1, 1)}.get(amounts, (amounts, amounts))
    named = a.optional(3) if a.tail is None and len(a.node.inputs) > 3 else False
    full = list(which) if named else list(range(rank))
    pads = [before if axis in which else 0 for axis in full] + [after if axis in which else 0 for axis in full]
    if a.free(1):
        a.parameter(1, pads)
    if named:
        a.parameter(3, signed(a, tuple(full), rank))
    if len(a.node.inputs) > 2 and a.optional(2):
        a.parameter_of(2, np.array(a.pick("value", (0, 1, 0.5)), dtype=a.numpy_dtype()))


SLICES_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "Slice"): propose_slice,
    ("", "Gather"): propose_gather,
    ("", "Pad"): propose_pad,
}
