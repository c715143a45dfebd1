"""Mutants in the catalogue: the boxes in which they were wrong, their repairs, costs and proofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import prod
from typing import Any

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.mutant_rules import MutantRule

MOST_PARTS = 12
"""Rows and columns that a drawing of boxes has at most."""
Box = Sequence[Sequence[int]]


def mutant_facts(rule: MutantRule) -> Iterator[str]:
    """Yield lines on the shapes of a mutant, its repairs, its cost and its proof."""
    shapes = ", ".join(f"x{number} {list(shape)}" for number, shape in enumerate(rule.shapes))
    yield f"proved for {shapes}"
    if rule.constants:
        yield f"{', '.join(f'x{number}' for number in sorted(rule.constants))}: constant"
    for each in rule.certificate.get("rounds", []):
        share = max(each["share_wrong"], default=0.0)
        boxes = sum(map(len, each["boxes"]))
        if boxes:
            yield f"repair: {each['repair']}, of {share:.1%} of an output, in {boxes} boxes"
        else:
            yield "repair: none, as nothing was wrong"
    yield f"cost: {_cost(rule)}"
    proof = rule.certificate.get("proof", {})
    yield (
        f"certificate: proved at {proof.get('positions')} positions, {proof.get('trials')} times each, but for an error"
        f" of at most {proof.get('error_bound', 1.0):.1e}"
    )


def _cost(rule: MutantRule) -> str:
    before, after = (work_of(side, rule.shapes) for side in (rule.original, rule.mutant))
    text = f"{after / max(before, 1):.2f} times the multiplications of the original"
    known = rule.certificate.get("evidence")
    if known is None:
        return text
    (bytes_before, bytes_after), (ms_before, ms_after) = known["bytes"], known["operators_ms"]
    saved = known["saved_ms"][0]
    return (
        f"{text}, and {bytes_after / max(bytes_before, 1):.2f} times the bytes; {ms_after:.2f} ms as single operators"
        f" and not {ms_before:.2f} ms; it saved {saved:.2f} ms of {known['window_ms']:.2f} ms in a window of"
        f" {known['model'].removeprefix('zoo://')} ({known['machine']}, {known['threads']} thread(s))"
    )


def boxes_drawings(rule: MutantRule) -> list[str]:
    """Return drawings of what was wrong with a mutant before its repairs, one for each round and output that had wrong
    boxes."""
    found = []
    for number, each in enumerate(rule.certificate.get("rounds", []), start=1):
        shapes = each.get("shapes", [None] * len(each["boxes"]))
        for shape, boxes in zip(shapes, each["boxes"], strict=True):
            drawn = None if shape is None or not boxes else drawing_of_boxes(boxes, tuple(shape))
            if drawn is not None:
                rounds = f"round {number}: " if len(rule.certificate["rounds"]) > 1 else ""
                found.append(f"{rounds}{drawn}")
    return found


def drawing_of_boxes(boxes: Sequence[Box], shape: Shape) -> str | None:
    """Return boxes of a tensor as a table over its last two axes: `#` is wrong, `+` is wrong in a part of the other
    axes, `.` is right. None where it would be large, or the tensor has one axis alone."""
    if len(shape) < 2:
        return None
    rows, columns = (_parts([box[axis] for box in boxes], shape[axis]) for axis in (-2, -1))
    if max(len(rows), len(columns)) > MOST_PARTS:
        return None
    heads = [f"{start}:{stop}" for start, stop in columns]
    labels = [f"{start}:{stop}" for start, stop in rows]
    left = max(map(len, labels))
    lines = [" ".join([" " * left, *heads])]
    for label, row in zip(labels, rows, strict=True):
        marks = [_mark(boxes, shape[:-2], row, column) for column in columns]
        cells = [mark.center(len(head)) for mark, head in zip(marks, heads, strict=True)]
        lines.append(" ".join([label.rjust(left), *cells]).rstrip())
    axes = f"axes {len(shape) - 2} and {len(shape) - 1} of {list(shape)}"
    return "\n".join([f"wrong before the repair, by {axes}", *lines])


def _parts(sides: Sequence[Sequence[int]], size: int) -> list[tuple[int, int]]:
    """Return the parts of an axis between the ends of boxes."""
    return list(pairwise(sorted({0, size, *(end for side in sides for end in side)})))


def _mark(boxes: Sequence[Box], others: Shape, row: tuple[int, int], column: tuple[int, int]) -> str:
    covering = [box for box in boxes if _holds(box[-2], row) and _holds(box[-1], column)]
    wrong = sum(prod(stop - start for start, stop in box[:-2]) for box in covering)
    return "." if not wrong else "#" if wrong == prod(others) else "+"


def _holds(side: Sequence[int], part: tuple[int, int]) -> bool:
    return side[0] <= part[0] and part[1] <= side[1]


def certificate_entry(rule: MutantRule) -> Mapping[str, Any]:
    """Return what `rules list --json` tells of a mutant's certificate."""
    return {"verdict": rule.certificate.get("verdict"), "method": "prime-field", "instances": 1}
