"""Proposals for pooling, reductions, Softmax and normalisations."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import OperatorDraft, Proposal, axes_of
from graph_rewrite.soundness.instances.source_state import Shape

_SIZES = (4, 3, 2, 5, 1)


def propose_pool(a: OperatorDraft) -> None:
    """MaxPool(x) and AveragePool(x) over 1 to 3 spatial axes."""
    if a.free(0):
        rank = a.pick("spatial axes", (2, 1, 3), (4, 2, 1))
        a.data(0, (a.pick("batch", (2, 1)), a.pick("channels", (2, 3, 1)), *_sizes(a, rank)))
    sizes = a.shape(0)[2:]
    if not sizes:
        raise DeadEnd("not an image")
    rank = len(sizes)
    options = [(2,) * rank, sizes, (1,) * rank, (3,) * rank, tuple(itertools.islice(itertools.cycle((2, 1)), rank))]
    kernel = a.attr("kernel_shape", list(dict.fromkeys(options)))
    ones, twos = (1,) * rank, (2,) * rank
    a.attr("strides", (None, twos, ones, (3,) * rank))
    a.attr("dilations", (None, twos, ones), (4, 1, 1))
    padding = a.pick("padding", ("none", "same", "after", "SAME_UPPER", "SAME_LOWER", "VALID"), (4, 2, 1, 1, 1, 1))
    half = tuple((k - 1) // 2 for k in kernel)
    pads = {"none": None, "same": (*half, *half), "after": (*(0,) * rank, *(k - 1 for k in kernel))}
    if padding in pads:
        a.attr("pads", (pads[padding],))
    else:
        a.attr("auto_pad", (padding,))
    a.attr("ceil_mode", (None, 1), (4, 1))
    if a.op == "AveragePool":
        a.attr("count_include_pad", (None, 1), (3, 1))


def propose_global_pool(a: OperatorDraft) -> None:
    """GlobalAveragePool(x) over 1 to 3 spatial axes."""
    if a.free(0):
        rank = a.pick("spatial axes", (2, 1, 3))
        a.data(0, (a.pick("batch", (2, 1)), a.pick("channels", (2, 3, 1)), *_sizes(a, rank)))


def propose_resize(a: OperatorDraft) -> None:
    """Resize(x, roi, scales, sizes) along 1 to 3 spatial axes, by scales or by sizes."""
    if a.free(0):
        rank = a.pick("spatial axes", (2, 1, 3), (4, 1, 1))
        a.data(0, (a.pick("batch", (1, 2)), a.pick("channels", (2, 3, 1)), *_sizes(a, rank)))
    x = a.shape(0)
    rank = len(x) - 2
    if rank < 1:
        raise DeadEnd("not an image")
    a.attr("mode", ("nearest", "linear", None), (4, 3, 1))
    modes = ("asymmetric", "half_pixel", "pytorch_half_pixel", "align_corners", None)
    a.attr("coordinate_transformation_mode", modes, (4, 3, 1, 1, 1))
    a.attr("nearest_mode", ("floor", None, "round_prefer_ceil", "ceil"), (4, 3, 1, 1))
    # The region is read by one mode of cropping alone.
    if a.optional(1):
        a.parameter_of(1, np.zeros(0, np.float32))
    times = a.pick("times", ((2,) * rank, (2, 3, 2)[:rank], (1, 2, 1)[:rank], (3,) * rank), (4, 2, 1, 1))
    if a.optional(2):
        a.parameter_of(2, np.array([1, 1, *times], np.float32))
    elif a.optional(3):
        a.parameter(3, [*x[:2], *(size * count for size, count in zip(x[2:], times, strict=True))])


def _sizes(a: OperatorDraft, rank: int) -> Shape:
    return tuple(a.pick(f"size {k}", _SIZES if rank < 3 else (2, 3, 1)) for k in range(rank))


def propose_reduce(a: OperatorDraft) -> None:
    """Reduce(x, axes; keepdims, noop_with_empty_axes)."""
    a.fresh_input(0, (2, 3, 4, 1), (2, 3, 1, 4))
    rank = len(a.shape(0))
    if a.optional(1):
        last = [tuple(range(first, rank)) for first in range(rank - 1, -1, -1)]
        single = [(axis,) for axis in range(rank - 1)]
        sets = list(dict.fromkeys([*last, *single, *itertools.combinations(range(rank), 2), tuple(range(2, rank))]))
        axes = a.pick("axes", sets)
        a.source.reduced = len(axes) if axes in last else 0
        back = a.pick("axes from", ("the end", "the front")) == "the end"
        a.parameter(1, [axis - rank if back else axis for axis in axes])
    a.attr("keepdims", (None, 0, 1))
    a.attr("noop_with_empty_axes", (None, 1), (5, 1))


def propose_softmax(a: OperatorDraft) -> None:
    """Softmax(x; axis)."""
    a.fresh_input(0, (2, 3, 4, 1))
    _axis(a)


def _axis(a: OperatorDraft) -> int:
    rank = len(a.shape(0))
    axis = a.attr("axis", (None, *axes_of(rank)), (2.0 * rank + 1, *(1.0,) * (2 * rank)))
    axis = -1 if axis is None else axis
    if not -rank <= axis < rank:
        raise DeadEnd("no such axis")
    return int(axis) % rank


def propose_layer_norm(a: OperatorDraft) -> None:
    """LayerNormalization(x, scale, bias; axis, epsilon) over the axes from `axis` on."""
    a.fresh_input(0, (3, 2, 4, 1))
    normalised = a.shape(0)[_axis(a) :]
    a.attr("epsilon", (None, 1e-3, 0.5))
    a.attr("stash_type", (None,))
    scales = [normalised, normalised[-1:], (*(1,) * (len(normalised) - 1), normalised[-1])]
    if a.free(1):
        a.data(1, a.pick("scale", list(dict.fromkeys(scales)), None))
    if a.op == "LayerNormalization" and a.optional(2):
        a.data(2, a.shape(1))


def propose_batch_norm(a: OperatorDraft) -> None:
    """BatchNormalization(x, scale, bias, mean, variance; epsilon)."""
    a.fresh_input(0, (4, 3, 2, 5), (2, 3, 1, 4))
    channels = a.shape(0)[1:2]
    if not channels:
        raise DeadEnd("no channels")
    a.attr("epsilon", (None, 1e-3, 0.5))
    for i in (1, 2, 3, 4):
        if a.free(i):
            a.data(i, channels, positive=i == 4)


def propose_biased(a: OperatorDraft) -> None:
    """BiasGelu(x, bias) and FastGelu(x, bias), one number per element of the last axis."""
    a.fresh_input(0, (2, 3, 1, 4))
    if a.optional(1):
        a.data(1, a.shape(0)[-1:])


def propose_skip_layer_norm(a: OperatorDraft) -> None:
    """SkipLayerNormalization(x, skip, gamma, beta, bias; epsilon); the skip may be broadcast over the batch."""
    a.fresh_input(0, (3, 2))
    x = a.shape(0)
    if a.free(1):
        options = {"equal": x, "no batch": x[-2:], "batch of 1": (1, *x[1:])}
        a.data(1, options[a.pick("skip", tuple(options) if len(x) == 3 else ("equal",))])
    a.attr("epsilon", (None, 1e-3, 0.5))
    for i in (2, 3, 4):
        if a.optional(i):
            a.data(i, x[-1:])


LAYERS_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "MaxPool"): propose_pool,
    ("", "AveragePool"): propose_pool,
    ("", "GlobalAveragePool"): propose_global_pool,
    ("", "GlobalMaxPool"): propose_global_pool,
    ("", "Resize"): propose_resize,
    ("", "ReduceSum"): propose_reduce,
    ("", "ReduceMean"): propose_reduce,
    ("", "ReduceProd"): propose_reduce,
    ("", "ReduceMax"): propose_reduce,
    ("", "ReduceMin"): propose_reduce,
    ("", "ReduceSumSquare"): propose_reduce,
    ("", "ReduceL2"): propose_reduce,
    ("", "Softmax"): propose_softmax,
    ("", "LogSoftmax"): propose_softmax,
    ("", "Hardmax"): propose_softmax,
    ("", "LayerNormalization"): propose_layer_norm,
    ("", "RMSNormalization"): propose_layer_norm,
    ("", "BatchNormalization"): propose_batch_norm,
    ("com.microsoft", "BiasGelu"): propose_biased,
    ("com.microsoft", "FastGelu"): propose_biased,
    ("com.microsoft", "SkipLayerNormalization"): propose_skip_layer_norm,
}
