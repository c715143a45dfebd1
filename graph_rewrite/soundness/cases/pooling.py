"""Cases of the rules of subsampling: slices have to fit the windows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model


def _one_slice(rule: Any) -> Iterator[Graph]:
    for pool, shape, bounds in (
        ("AveragePool<kernel_shape=[1,1], strides=[2,2]>", "1,2,5,4", ((1, 1), (9, 9), (2, 3))),
        ("MaxPool<kernel_shape=[1,1], strides=[3,2]>", "2,1,7,5", ((2, 1), (7, 5), (2, 3))),
        ("AveragePool<kernel_shape=[1], strides=[2]>", "1,3,6", ((1,), (6,), (-1,))),
        ("AveragePool<kernel_shape=[1,1], strides=[1,2]>", "1,1,3,6", ((1,), (6,), (3,))),
    ):
        given: dict[str, Any] = dict(zip(("s", "e", "a"), map(np.array, bounds), strict=True))
        yield model(f"(float[{shape}] x) => (y) {{ t = Slice(x, s, e, a) y = {pool}(t) }}", **given)


def _two_slices(rule: Any) -> Iterator[Graph]:
    for pool, shape, axes in (
        ("AveragePool<kernel_shape=[1,1], strides=[2,2]>", "1,2,5,4", (2, 3)),
        ("MaxPool<kernel_shape=[1,1], strides=[2,3]>", "2,1,4,7", (-1, 2)),
    ):
        given: dict[str, Any] = {"s": np.array([1]), "e": np.array([9]), "a": np.array([axes[0]])}
        text = f"t = Slice(x, s, e, a) u = Slice(t, s, e, c) y = {pool}(u)"
        yield model(f"(float[{shape}] x) => (y) {{ {text} }}", c=np.array([axes[1]]), **given)


CASES = {"SubsamplingOfSliceAsConv": _one_slice, "SubsamplingOfTwoSlicesAsConv": _two_slices}
"""Functions that give the cases, by the rule's name."""
