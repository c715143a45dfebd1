"""Cases of the rule of bands of rows: chains that are narrow at both ends and wide in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model

_CHAINS = (
    # Two convolutions and a pool, as a network begins.
    ("1,1,8,4", "a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a) c = Conv<pads=[1,1,1,1]>(r, v) s = Relu(c)"
     " y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s)", {"w": (4, 1, 3, 3), "b": (4,), "v": (4, 4, 3, 3)}),
    # Uneven paddings and strides, and a pool with padding.
    ("2,1,9,7", "a = Conv<pads=[2,0,0,1]>(x, w) r = Clip(a, l, h)"
     " y = MaxPool<kernel_shape=[3,3], strides=[2,3], pads=[1,0,1,1]>(r)",
     {"w": (5, 1, 3, 2), "l": (), "h": ()}),
    # Depthwise with dilations, between pointwise ones; bands that are not even.
    ("1,1,7,9", "a = Conv(x, w, b) r = HardSwish(a)"
     " c = Conv<pads=[2,1,2,1], dilations=[2,1], strides=[1,2], group=4>(r, v) y = Conv(c, u)",
     {"w": (4, 1, 1, 1), "b": (4,), "v": (4, 1, 3, 3), "u": (1, 4, 1, 1)}),
    # A mean at the end, and padding asked for by name.
    ("1,1,10,5", 'a = Conv<auto_pad="SAME_UPPER">(x, w) r = LeakyRelu<alpha=0.25>(a)'
     " y = AveragePool<kernel_shape=[3,2], strides=[3,2]>(r)", {"w": (4, 1, 5, 4)}),
)  # fmt: skip
"""Shape of the image, operators, and shapes of the constants."""


def _chains(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for image, body, constants in _CHAINS:
        given: dict[str, Any] = {name: rng.standard_normal(shape) for name, shape in constants.items()}
        if "l" in given:
            given |= {"l": np.array(-0.5), "h": np.array(1.5)}
        yield model(f"(float[{image}] x) => (y) {{ {body} }}", **given)


CASES = {"ChainInBands": _chains}
"""Functions that give the cases, by the rule's name."""
