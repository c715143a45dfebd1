"""Cases of the rules of channel padding: slices have to keep the first channels, and filters must not fill blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules.layout.channel_padding import SAFE_BINARY


def _convs(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for filters, spatial, bias in ((8, 2, True), (15, 1, False), (17, 2, False), (24, 3, True), (31, 2, True)):
        given: dict[str, Any] = {"w": rng.standard_normal((filters, 3, *(2,) * spatial))}
        if bias:
            given["b"] = rng.standard_normal(filters)
        conv = f"Conv<pads={[0, 1] * spatial}>(x, w{', b' if bias else ''})"
        yield model(f"(float[2,3{',4' * spatial}] x) => (y) {{ y = {conv} }}", **given)


def _slices_of_both_operands(rule: Any) -> Iterator[Graph]:
    bounds: dict[str, Any] = {"s": np.array([0]), "e": np.array([2]), "a": np.array([1])}
    for f in sorted(SAFE_BINARY):
        for shape, more in (("2,3,4", ""), ("1,4,2,3", "  n = Neg(t)")):
            outputs = "(y, n)" if more else "(y)"
            text = f"t = Slice(x, s, e, a)  u = Slice(z, s, e, a)  y = {f}(t, u){more}"
            yield model(f"(float[{shape}] x, float[{shape}] z) => {outputs} {{ {text} }}", **bounds)


def _depthwise_convs(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for spatial, bias, attrs in ((2, True, "pads=[1,0,1,0]"), (1, False, "strides=[2]"), (2, True, "pads=[0,0,1,1]")):
        given: dict[str, Any] = {"s": np.array([0]), "e": np.array([2]), "a": np.array([1])}
        given["w"] = rng.standard_normal((5, 1, *(2,) * spatial))
        if bias:
            given["b"] = rng.standard_normal(5)
        image = ",".join("43"[:spatial])
        conv = f"Conv<group=5, {attrs}>(c, w{', b' if bias else ''})"
        text = f"t = Slice(x, s, e, a) c = Concat<axis=1>(t, z) y = {conv}"
        yield model(f"(float[2,4,{image}] x, float[2,3,{image}] z) => (y) {{ {text} }}", **given)


CASES = {
    "PadConvChannels": _convs,
    "ChannelSlicesAfterBinary": _slices_of_both_operands,
    "DepthwiseConvOfConcatOfChannelSlices": _depthwise_convs,
}
"""Functions that give the cases, by the rule's name."""
