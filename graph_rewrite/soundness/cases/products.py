"""Cases of the rules that cut products into blocks: Strassen's algorithm and tiling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model, named_in
from graph_rewrite.rules.helpers.blocks import BLOCK

_FUNCTIONS = ("Gelu", "Relu", 'Gelu<approximate="tanh">', "Gelu")


def _feed_forward(f: str) -> str:
    return f"p = MatMul(x, v) d = Add(p, a) h = {f}(d) q = MatMul(h, w) y = Add(q, b)"


def _strassen_feed_forward(number: int) -> str:
    return _feed_forward(_FUNCTIONS[number])


def _linear(number: int) -> str:
    return "p = MatMul(x, v) " + ("y = Add(p, a)", "y = Add(a, p)")[number // 2]


_BODIES = {
    "StrassenLinear": _linear,
    "StrassenMatMul": lambda number: "y = MatMul(x, v)",
    "StrassenFeedForward": _strassen_feed_forward,
    "StrassenFeedForwardTwice": _strassen_feed_forward,
}
"""Bodies of graphs from x to y, by the rule's name: a text per number of the case."""


def _large_products(rule: Any) -> Iterator[Graph]:
    width, least, rng = BLOCK << rule.levels, rule.least_rows, np.random.default_rng(0)
    for number, lead in enumerate(((least,), (1, least + 1), (2, least // 2 + 1), (1, 2, least // 2))):
        shape = ",".join(map(str, (*lead, width)))
        sizes = {"v": (width, width), "w": (width, width), "a": ((width,), (1,))[number % 2], "b": (width,)}
        text = _BODIES[rule.name](number)
        given: dict[str, Any] = {k: rng.standard_normal(v).astype(np.float32) for k, v in named_in(text, sizes).items()}
        yield model(f"(float[{shape}] x) => (y) {{ {text} }}", **given)


def _long_sums(rule: Any) -> Iterator[Graph]:
    rng, n = np.random.default_rng(0), rule.tiles
    for x, y, f in (
        ((1, n, 1, 3), (1, 1, 2, 3), "Tanh"), ((1, 1, 2, 3), (1, 2 * n, 1, 3), "Relu"),
        ((2, 1, 3), (1, n, 3), "Sigmoid"), ((n, 2, 1), (1, 2, 3), "Gelu"),
    ):  # fmt: skip
        shapes = (",".join(map(str, shape)) for shape in (x, y))
        yield model(
            "(float[{}] x, float[{}] y) => (z) {{ s = Add(x, y) t = {}(s) p = MatMul(t, w) z = Add(p, b) }}".format(
                *shapes, f
            ),
            w=rng.standard_normal((3, 2)).astype(np.float32), b=rng.standard_normal(2).astype(np.float32),
        )  # fmt: skip


def _feed_forwards(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    sizes: dict[str, tuple[int, ...]] = {"v": (3, 8), "a": (8,), "w": (8, 2), "b": (1,)}
    for shape, f in (("24,3", "Gelu"), ("1,9,2,3", "Relu"), ("4,5,3", "Tanh"), ("1,1,16,3", "Abs")):
        given: dict[str, Any] = {name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()}
        yield model(f"(float[{shape}] x) => (y) {{ {_feed_forward(f)} }}", **given)


CASES = {
    **dict.fromkeys(_BODIES, _large_products),
    "TileBroadcastLinear2": _long_sums,
    "TileBroadcastLinear8": _long_sums,
    "TileFeedForward": _feed_forwards,
}
"""Functions that give the cases, by the rule's name."""
