"""Cases of the rules of embeddings: rows that are looked up, in sums of all forms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model, named_in

_OF_ROWS = {
    "MatMulOfLookup": ("MatMul(r, w)",) * 4,
    "NormOfLookup": (
        "LayerNormalization<axis=2, epsilon=1e-3>(r, g)", "LayerNormalization<epsilon=1e-2>(r, g, s)",
        "LayerNormalization<axis=1>(r, g, s)", "RMSNormalization<epsilon=1e-3>(r, g)",
    ),
    "ArithmeticOfLookup": ("Add(r, d)", "Sub(c, r)", "Mul(c, r)", "Div(r, c)"),
}  # fmt: skip
"""Functions of the rows r, by the rule's name."""
_LAYERS = {"LinearOfEmbedding": ("q",), "ThreeLinearsOfEmbedding": ("q", "k", "v")}
"""Results of the linear layers, by the rule's name."""


def _eighths(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, Any]:
    """Numbers whose sums and products are exact."""
    return (np.round(8 * rng.standard_normal(shape)) / 8).astype(np.float32)


def _lookups(rule: Any) -> Iterator[Graph]:
    rng = np.random.default_rng(0)
    for text, tokens in zip(_OF_ROWS[rule.name], ("1,3", "2", "3", "2,1,2"), strict=True):
        sizes = {"t": (5, 4), "w": (4, 3), "g": (4,), "s": (4,), "c": (4,), "d": (1,)}
        body = f"r = Gather(t, i) y = {text}"
        given: dict[str, Any] = {k: _eighths(rng, *size) for k, size in named_in(body, sizes).items()}
        yield model(f"(int64[{tokens}] i) => (y) {{ {body} }}", **given)


def _embeddings(rule: Any) -> Iterator[Graph]:
    rng, results = np.random.default_rng(0), _LAYERS[rule.name]
    shapes = {"t": (5, 4), "u": (2, 4), "c": (3, 4), "d": (1, 3, 4), "r": (4,), "g": (4,), "s": (4,)}
    for number, total in enumerate((
        "i0 = Gather(t, i) e = Add(i0, d)", "i0 = Gather(t, i) i1 = Add(c, i0) e = Add(i1, d)",
        "i0 = Gather(t, i) j0 = Gather(u, i) i1 = Add(i0, j0) e = Add(i1, d)",
        "i0 = Gather(t, i) j0 = Gather(u, i) e = Sum(i0, c, j0)", "i0 = Gather(t, i) e = Add(r, i0)",
        "e = Gather(t, i)",
    )):  # fmt: skip
        norm = "x = LayerNormalization<{}>(e, g{})".format(*(("epsilon=1e-3", ", s"), ("axis=2", ""))[number % 2])
        text = f"{total} {norm} {_linear_layers(results, number)}"
        sizes = shapes | {name: (4, 2 + k) for k, name in enumerate(("wq", "wk", "wv"))}
        sizes |= {"bq": (2,), "bk": ((3,), (1, 1))[number % 2], "bv": (1, 4)}
        given: dict[str, Any] = {k: _eighths(rng, *size) for k, size in named_in(text, sizes).items()}
        yield model(f"(int64[1,3] i) => (x, {', '.join(results)}) {{ {text} }}", **given)


def _linear_layers(results: tuple[str, ...], number: int) -> str:
    """Linear layers of x, as text."""
    total = "Add({0}m, b{0})" if number % 3 else "Add(b{0}, {0}m)"
    return " ".join(f"{n}m = MatMul(x, w{n}) {n} = {total.format(n)}" for n in results)


CASES = {**dict.fromkeys(_OF_ROWS, _lookups), **dict.fromkeys(_LAYERS, _embeddings)}
"""Functions that give the cases, by the rule's name."""
