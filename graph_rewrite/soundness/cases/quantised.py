"""Cases of the rules of quantisation: scales, zero points of either type, and bounds that saturate or do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model

_ZEROS = (np.int8(0), np.int8(-3), np.int8(127), np.uint8(128), np.uint8(7))


def _of(body: str, shapes: tuple[str, ...] = ("3", "2,3"), **constants: Any) -> Callable[[Any], Iterator[Graph]]:
    def cases(rule: Any) -> Iterator[Graph]:
        for shape, scale, zero in product(shapes, (0.5, 0.1, 0.02), _ZEROS):
            if not (rule.name == "QuantizeAroundRelu" and zero.dtype == np.uint8):
                given = {"s": np.float32(scale), "z": zero, **constants}
                yield model(f"(float[{shape}] x) => (y) {{ {body}  y = QuantizeLinear(t, s, z) }}", **given)

    return cases


def _clips(rule: Any) -> Iterator[Graph]:
    for bounds in ({"l": 0.0, "h": 6.0}, {"l": -0.72}, {"h": 1.0}, {"l": -1e6, "h": 1e6}, {"l": 0.22, "h": 0.22}):
        names = f"{'l' if 'l' in bounds else chr(34) * 2}, {'h' if 'h' in bounds else ''}".rstrip(", ")
        given = {name: np.float32(value) for name, value in bounds.items()}
        yield from _of(f"t = Clip(x, {names})", ("3",), **given)(rule)


def _moves(rule: Any) -> Iterator[Graph]:
    yield from _of("t = Flatten(x)", ("2,3", "1,2,2"))(rule)
    yield from _of("t = Flatten<axis = 0>(x)", ("2,3",))(rule)
    yield from _of("t = DepthToSpace<blocksize = 2>(x)", ("1,4,1,2",))(rule)


CASES = {
    "QuantizeBeforeRelu": _of("t = Relu(x)"),
    "QuantizeAroundRelu": _of("t = Relu(x)"),
    "QuantizeBeforeClip": _clips,
    "QuantizeBeforeConcat": _of("u = Neg(x)  t = Concat<axis = 0>(x, u, x)"),
    "QuantizeBeforeMove": _moves,
}
"""Functions that give the cases, by the rule's name."""
