"""Cases of the rule that puts moves of rows together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model

_MOVES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    # Windows of an image that is rolled, as in Swin.
    ("1,4,6,3", "a, b = Split<axis=1>(x, s) r = Concat<axis=1>(b, a) c, d = Split<axis=2>(r, t)"
     " q = Concat<axis=2>(d, c) w = Reshape(q, i) p = Transpose<perm=[0,1,3,2,4,5]>(w) y = Reshape(p, j)",
     {"s": [1, 3], "t": [2, 4], "i": [1, 2, 2, 2, 3, 3], "j": [4, 6, 3]}),
    # And back.
    ("4,6,3", "w = Reshape(x, i) p = Transpose<perm=[0,1,3,2,4,5]>(w) q = Reshape(p, j) a = Slice(q, e, f, o)"
     " b = Slice(q, z, e, o) r = Concat<axis=1>(a, b) y = Flatten<axis=3>(r)",
     {"i": [1, 2, 2, 2, 3, 3], "j": [1, 4, 6, 3], "z": [0], "e": [3], "f": [9], "o": [1]}),
    # Every second pixel, as patches are merged: each is sliced along two axes.
    ("2,4,2,2", "a = Slice(x, z, f, o, t) b = Slice(x, o, f, o, t) c = Slice(a, z, f, t, t) d = Slice(b, z, f, t, t)"
     " e = Slice(a, o, f, t, t) g = Slice(b, o, f, t, t) y = Concat<axis=-1>(c, d, e, g)",
     {"z": [0], "o": [1], "t": [2], "f": [9]}),
    # Backwards, with something left out, and single elements.
    ("3,5", "a = Slice(x, f, l, o, n) p = Transpose(a) q = Unsqueeze(p, z) y = Slice(q, z, t, o)",
     {"f": [4], "l": [-9], "o": [1], "n": [-1], "z": [0], "t": [3]}),
    # Lookups by constants, also from the end and more than once; one part of a Split is not used.
    ("4,2,2", "a = Gather(x, i) b = Gather<axis=1>(a, j) c, d = Split<axis=0>(b, s) y = Squeeze(c, o)",
     {"i": [3, 0, 0, 2, -1], "j": [[1], [-2]], "s": [2, 3], "o": [2]}),
    # Moves that cancel.
    ("2,3,2", "p = Transpose<perm=[1,0,2]>(x) q = Reshape(p, i) r = Transpose<perm=[1,0,2,3]>(q) y = Reshape(r, j)",
     {"i": [3, 2, 1, 2], "j": [6, 2]}),
)  # fmt: skip
"""Shape of what is moved, moves, and their constants."""


def _moves(rule: Any) -> Iterator[Graph]:
    for shape, body, constants in _MOVES:
        given: dict[str, Any] = {name: np.array(value) for name, value in constants.items()}
        yield model(f"(float[{shape}] x) => (y) {{ {body} }}", **given)


CASES = {"MovesAsGather": _moves}
"""Functions that give the cases, by the rule's name."""
