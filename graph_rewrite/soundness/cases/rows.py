"""Cases of the rules of encoder layers on rows: attention layers and feed-forward networks of 4 channels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model

_SHAPES = ((1, 3, 4), (2, 2, 4), (1, 1, 4), (3, 2, 4), (2, 3, 4), (1, 5, 4), (2, 1, 4), (1, 2, 4))
"""Shapes of the operands; their numbers decide what else varies."""


def _attention_layers(rule: Any) -> Iterator[Graph]:
    for number, shape in enumerate(_SHAPES):
        yield _layers(shape, _attention_text(number))


def _feed_forward_networks(rule: Any) -> Iterator[Graph]:
    for number, shape in enumerate(_SHAPES):
        yield _layers(shape, "n = Neg(x) " + _feed_forward_text(number))


def _encoder_layers(rule: Any) -> Iterator[Graph]:
    for number, shape in enumerate(_SHAPES):
        yield _layers(shape, _attention_text(number) + _feed_forward_text(number))


def _attention_text(number: int) -> str:
    heads, mask = (1, 2, 4)[number % 3], (", mask", "")[number % 2]
    attrs = f"q_num_heads={heads}, kv_num_heads={heads}" + ("", ", scale=0.5", ", is_causal=1")[number // 2 % 3]
    total = ("Add(o, x)", "Add(x, o)", "Sum(o, x)", "Sum(x, o)")[number % 4]
    return f"""
        q0 = MatMul(x, wq) q = Add(q0, bq) k0 = MatMul(x, wk) k = Add(bk, k0) v0 = MatMul(x, wv) v = Add(v0, bv)
        c = Attention<{attrs}>(q, k, v{mask}) o0 = MatMul(c, wo) o = Add(o0, bo) m = {total}
        n = LayerNormalization<epsilon=1e-3{(", axis=2", "")[number // 4]}>(m, g{(", s", "")[number // 2 % 2]})
    """


def _feed_forward_text(number: int) -> str:
    f = ("Gelu", "Relu", "Gelu<approximate='tanh'>".replace("'", '"'))[number % 3]
    total = ("Add(n, e)", "Sum(e, n)", "Add(e, n)")[number % 3]
    return f"""
        d0 = MatMul(n, w1) d = Add(d0, {("b1", "bx")[number // 3 % 2]}) f = {f}(d) e0 = MatMul(f, w2) e = Add(e0, b2)
        z = {total} y = LayerNormalization<epsilon=1e-3{("", ", axis=-1")[number % 2]}>(z, h, t)
    """


def _layers(shape: tuple[int, int, int], body: str) -> Graph:
    """Layers of 4 channels with 6 hidden ones on x: float[shape]."""
    rng, length = np.random.default_rng(0), shape[1]
    sizes: dict[str, tuple[int, ...]] = {f"w{i}": (4, 4) for i in "qkvo"} | {f"b{i}": (4,) for i in "qkvo2"}
    sizes |= {"w1": (4, 6), "w2": (6, 4), "b1": (6,), "bx": (1,), "mask": (length, length)}
    sizes |= dict.fromkeys("gsht", (4,))
    words = set(re.findall(r"\w+", body))
    given: dict[str, Any] = {
        name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items() if name in words
    }
    result = "y" if "w1" in words else "n"
    return model(f"(float[{','.join(map(str, shape))}] x) => ({result}) {{ {body} }}", **given)


CASES = {
    "AttentionLayerAsRows": _attention_layers,
    "FeedForwardAsRows": _feed_forward_networks,
    "EncoderLayerAsRows": _encoder_layers,
}
"""Functions that give the cases, by the rule's name."""
