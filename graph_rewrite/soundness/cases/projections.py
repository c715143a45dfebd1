"""Cases of the rules that cut queries, keys and values apart: the axis of the three must come first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model

_CUTS = {
    "HeadsOfSlices": "p{1} = Slice(h, i{0}, i{1}, i0) {2} = {3}(p{1}, {4})",
    "HeadsOfGathers": "{2} = Gather<axis=0>(h, g{0})",
    "HeadsOfSplit": "{2} = {3}(p{1}, {4})",
}
"""What takes an index of `h` as the output {2}, by the rule's name; a Split has cut it off already."""
_HEADS = (
    ("2,2,18", (2, 2, 3, 2, 3), (2, 0, 3, 1, 4)),
    ("1,3,6", (1, 3, 3, 2, 1), (2, 0, 3, 4, 1)),
    ("2,18", (2, 3, 3, 2), (1, 2, 0, 3)),
    ("2,6", (2, 3, 2), (1, 0, 2)),
    ("1,2,1,12", (1, 2, 1, 3, 2, 2), (3, 0, 4, 1, 2, 5)),
)
"""Shapes of the product, with the three as an axis, and the order of axes with that in front."""


def _heads(rule: Any) -> Iterator[Graph]:
    splits = rule.name == "HeadsOfSplit"
    for number, (shape, sizes, perm) in enumerate(_HEADS):
        drop = (("Reshape", "s"), ("Squeeze", "i0"))[number % 2]
        order = (0, 1, 2) if splits else ((0, 1, 2), (1, 2, 0), (2, 1, 0))[number % 3]
        parts = (_CUTS[rule.name].format(i, i + 1, name, *drop) for i, name in zip(order, "qkv", strict=True))
        split = "p1, p2, p3 = Split<axis=0, num_outputs=3>(h)" if splits else ""
        text = f"r = Reshape(x, c) h = Transpose<perm={list(perm)}>(r) {split} {' '.join(parts)}"
        given: dict[str, Any] = {"c": sizes, "s": [sizes[axis] for axis in perm[1:]]}
        given |= {f"i{i}": [i] for i in range(4)} | {f"g{i}": i for i in range(3)}
        yield model(f"(float[{shape}] x) => (q, k, v) {{ {text} }}", **given)


CASES = dict.fromkeys(_CUTS, _heads)
"""Functions that give the cases, by the rule's name."""
