"""Cases of the rules of fast, three-dimensional and dilated convolutions: channels have to fill blocks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules.convolution import dilation, spatial3d, winograd
from graph_rewrite.rules.helpers.blocks import BLOCK

_IMAGES = (
    (3, 1, (4, 4), (1, 1, 1, 1), True), (3, 2, (5, 6), (0, 0, 0, 0), False), (3, 1, (7, 5), (2, 0, 1, 3), True),
    (5, 1, (6, 9), (2, 2, 2, 2), False), (3, 1, (6, 7), (0, 1, 1, 0), True),
)  # fmt: skip
"""Taps along transformed axes, batch, height and width, pads, and whether there is a bias."""
_CLIPS = (
    (1, 4, (3, 1, 1), "pads=[1,0,0,1,0,0]", True), (2, 5, (3, 3, 3), "pads=[1,1,1,1,1,1]", False),
    (1, 6, (3, 2, 1), "pads=[0,1,0,2,0,0], strides=[1,2,1]", True),
    (2, 5, (3, 1, 3), "pads=[1,0,1,0,0,1], strides=[2,1,2]", True),
    (1, 5, (2, 3, 1), "pads=[2,1,0,0,1,0], dilations=[2,1,1]", True),
)  # fmt: skip
"""Batch, frames, kernel, attributes, and whether there is a bias."""


def _images(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for taps, batch, sizes, pads, bias in _IMAGES:
        kernel = [taps if outputs > 1 else taps - 2 for outputs in rule.tiles]
        given: dict[str, Any] = {"w": rng.standard_normal((BLOCK, BLOCK, *kernel)), "b": rng.standard_normal(BLOCK)}
        image = ",".join(str(n) for n in (batch, BLOCK, *sizes))
        conv = f"Conv<pads={list(pads)}>(x, w{', b' if bias else ''})"
        body = f"t = {conv}  y = Relu(t)" if rule.relu else f"y = {conv}"
        yield model(f"(float[{image}] x) => (y) {{ {body} }}", **given if bias else {"w": given["w"]})


def _clips(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for count, frames, kernel, attrs, bias in _CLIPS:
        given: dict[str, Any] = {"w": rng.standard_normal((BLOCK, BLOCK, *kernel))}
        if bias:
            given["b"] = rng.standard_normal(BLOCK)
        conv = f"Conv<{attrs}>(x, w{', b' if bias else ''})"
        body = f"t = {conv}  y = Relu(t)" if rule.relu else f"y = {conv}"
        yield model(f"(float[{count},{BLOCK},{frames},3,4] x) => (y) {{ {body} }}", **given)
    body = "t = Transpose<perm=[0,2,1,3,4]>(x)  u = Conv<pads=[1,0,0,1,0,0]>(t, w)"
    body += "  y = Relu(u)" if rule.relu else "  y = Identity(u)"
    yield model(f"(float[2,4,{BLOCK},2,2] x) => (y) {{ {body} }}", w=rng.standard_normal((BLOCK, BLOCK, 3, 1, 1)))


def _space_and_batch(rule: Any) -> Iterator[Graph]:
    for d, e, n, c, h, w in ((2, 2, 1, 3, 2, 1), (3, 1, 2, 1, 1, 4), (1, 2, 1, 2, 3, 3)):
        whole, space = [d * e * n, c, h, w], [n, c, h * d, w * e]
        yield model(
            f"(float[{','.join(map(str, whole))}] x) => (y) {{ r = Relu(x) a = Reshape(r, s)"
            f" b = Transpose<perm={list(dilation.FROM_BATCH)}>(a) c = Reshape(b, t) d = Reshape(c, u)"
            f" e = Transpose<perm={list(dilation.TO_BATCH)}>(d) f = Reshape(e, v) y = Neg(f) }}",
            s=[d, e, n, c, h, w], t=space, u=[n, c, h, d, w, e], v=whole,
        )  # fmt: skip


CASES = {
    **{rule.__name__: _images for rule in winograd.RULES},
    **{rule.__name__: _clips for rule in spatial3d.RULES},
    "BatchOfSpace": _space_and_batch,
}
"""Functions that give the cases, by the rule's name."""
