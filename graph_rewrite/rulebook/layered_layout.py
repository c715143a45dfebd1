"""Placement of a diagram's operators in layers, operands above what reads them, after Sugiyama, Tagawa and Toda,
"Methods for visual understanding of hierarchical system structures" (IEEE SMC, 1981)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

GAP_X, GAP_Y = 18.0, 30.0
"""Pixels between neighbours of a layer, and between layers."""
_SWEEPS = 6
_BEND = 8.0
"""Width of the place that a line takes where it passes a layer."""


@dataclass(slots=True)
class PlacedBox:
    """A vertex: a box of `width` by `height` pixels, or a bend of a line. Placing it sets the rest."""

    width: float = _BEND
    height: float = 0.0
    layer: int = 0
    x: float = 0.0
    """The middle of the box."""
    y: float = 0.0
    """The top of its layer."""
    above: list[PlacedBox] = field(default_factory=list, repr=False)
    below: list[PlacedBox] = field(default_factory=list, repr=False)


@dataclass(frozen=True, slots=True)
class Line:
    """A line from the bottom of a box to the top of another: the boxes and the bends between them."""

    places: tuple[PlacedBox, ...]


def lay_out(boxes: Sequence[PlacedBox], edges: Sequence[tuple[int, int]]) -> tuple[list[Line], float, float]:
    """PlacedBox boxes, whose layers are set, so that lines are short and cross little.

    Args:
        edges: pairs of indices of boxes, from a higher layer to a lower one; the layer of the second is greater.

    Returns:
        A line per edge, and the width and height of the drawing in pixels.
    """
    count = max((box.layer for box in boxes), default=0) + 1
    layers: list[list[PlacedBox]] = [[] for _ in range(count)]
    for box in boxes:
        layers[box.layer].append(box)
    lines = [_line(boxes[first], boxes[second], layers) for first, second in edges]
    for sweep in range(_SWEEPS):
        _order(layers if sweep % 2 == 0 else layers[::-1], from_above=sweep % 2 == 0)
    for layer in layers:
        _pack(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        _align(layers if sweep % 2 == 0 else layers[::-1], from_above=sweep % 2 == 0)
    left = min((p.x - p.width / 2 for layer in layers for p in layer), default=0.0)
    y = 0.0
    for layer in layers:
        height = max((place.height for place in layer), default=0.0)
        for place in layer:
            place.x, place.y = place.x - left, y + (height - place.height) / 2
        y += height + GAP_Y
    width = max((p.x + p.width / 2 for layer in layers for p in layer), default=0.0)
    return lines, width, max(0.0, y - GAP_Y)


def _line(first: PlacedBox, last: PlacedBox, layers: list[list[PlacedBox]]) -> Line:
    """Return an edge with a bend in every layer that it passes."""
    places = [first]
    for layer in range(first.layer + 1, last.layer):
        places.append(PlacedBox(layer=layer))
        layers[layer].append(places[-1])
    places.append(last)
    for upper, lower in itertools.pairwise(places):
        upper.below.append(lower)
        lower.above.append(upper)
    return Line(tuple(places))


def _order(layers: Sequence[list[PlacedBox]], from_above: bool) -> None:
    """Order each layer by the mean place of its neighbours in the layer before."""
    for before, layer in itertools.pairwise(layers):
        number = {id(place): float(i) for i, place in enumerate(before)}
        key = {}
        for i, place in enumerate(layer):
            near = [number[id(p)] for p in (place.above if from_above else place.below) if id(p) in number]
            key[id(place)] = sum(near) / len(near) if near else float(i)
        layer.sort(key=lambda place: key[id(place)])


def _align(layers: Sequence[list[PlacedBox]], from_above: bool) -> None:
    """Move the places of each layer towards their neighbours."""
    for layer in layers:
        wanted = []
        for place in layer:
            near = (place.above if from_above else place.below) or place.above or place.below
            wanted.append(sum(p.x for p in near) / len(near) if near else place.x)
        _pack(layer, wanted)


def _pack(layer: Sequence[PlacedBox], wanted: Sequence[float]) -> None:
    """Set x as near to what is wanted as order and gaps allow: the mean of packing from the left and from the right,
    both of which keep them."""
    if not layer:
        return
    gaps = [(a.width + b.width) / 2 + GAP_X for a, b in itertools.pairwise(layer)]
    left, right = list(wanted), list(wanted)
    for i, gap in enumerate(gaps):
        left[i + 1] = max(left[i + 1], left[i] + gap)
    for i, gap in reversed(list(enumerate(gaps))):
        right[i] = min(right[i], right[i + 1] - gap)
    for place, low, high in zip(layer, left, right, strict=True):
        place.x = (low + high) / 2
