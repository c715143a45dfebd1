"""Values of inputs that say how a node works, such as the shape of a Reshape: random ones seldom make sense there."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType

Values = list[Any] | int | float | bool
"""The elements of an array, as nested lists; a number stands for all elements."""
MOST_ATTEMPTS = 64
_MOST_COMBINED = 5
"""Inputs whose values are combined in all ways; of more, all take their first values, then all their second ones."""
_INTEGERS = frozenset({2, 3, 4, 5, 6, 7, 12, 13})
_FLOATS = frozenset({1, 10, 11, 16})
_SHORT = 16
_PASSED_ON = frozenset({"Cast", "Identity"})


def settled_values(graph: Graph) -> dict[str, Values]:
    """Return the values of inputs that say how a node works, by name, as the declared types ask for them. Random ones
    would make shapes of any size."""
    found = {}
    for value in graph.inputs:
        type = graph.types[value]
        if type is not None and value not in graph.stored and (guesses := _of_readers(graph, value, type)):
            found[graph.names[value]] = guesses[0]
    return found


def attempts(graph: Graph, known: Mapping[str, Any]) -> list[dict[str, Values]]:
    """Return values to try for a model that refuses random inputs, those that are most likely to be right first.

    Args:
        known: inputs whose values need not be found, by name: the ranges of indices.
    """
    choices: dict[str, list[Values | None]] = {}
    for value in graph.inputs:
        name, type = graph.names[value], graph.types[value]
        if type is None or name in known or value in graph.stored:
            continue
        found: list[Values | None] = [*_of_readers(graph, value, type), None]
        if type.dtype in _INTEGERS:
            found += [1, 0]
            found += [_reshaped(np.arange(type.size), type)] if 1 < type.size <= _SHORT else []
        elif type.dtype in _FLOATS and type.size == 1:
            found.append(0.5)
        if len(found) > 1:
            choices[name] = [entry for i, entry in enumerate(found) if entry not in found[:i]]
    combined = itertools.islice(_combinations(choices), MOST_ATTEMPTS)
    settled = ({name: value for name, value in values.items() if value is not None} for values in combined)
    return [values for values in settled if values]


def _combinations(choices: Mapping[str, list[Values | None]]) -> Iterator[dict[str, Values | None]]:
    """Yield one value per input, those that are first in their lists first; None for a random one."""
    if len(choices) > _MOST_COMBINED:
        for number in range(max(map(len, choices.values()))):
            yield {name: found[min(number, len(found) - 1)] for name, found in choices.items()}
        return
    places = itertools.product(*(range(len(found)) for found in choices.values()))
    for chosen in sorted(places, key=sum):
        yield {name: found[place] for (name, found), place in zip(choices.items(), chosen, strict=True)}


def _of_readers(graph: Graph, value: int, type: TensorType) -> list[Values]:
    """Return what the nodes that read a value would take for it, by the declared types of their other values."""
    found: list[Values] = []
    for node_id in dict.fromkeys(graph.consumers.get(value, ())):
        node = graph.nodes[node_id]
        if node.op in _PASSED_ON and not node.domain:
            found += _of_readers(graph, node.outputs[0], type)
            continue
        for position, read in enumerate(node.inputs):
            guess = _GUESSES.get((node.op, position)) if read == value and not node.domain else None
            if guess is not None:
                found += [
                    _reshaped(np.asarray(made), type)
                    for made in guess(_Place(graph, node), type.size)
                    if np.size(made) == type.size
                ]
    return found


class _Place:
    """A node, with the shapes of what it reads and gives; an unknown shape is empty."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.node = node
        self.inputs = [_shape(graph, value) for value in node.inputs]
        self.outputs = [_shape(graph, value) for value in node.outputs]
        self.constants = [None if value is None else graph.constants.get(value) for value in node.inputs]

    @property
    def given(self) -> tuple[int, ...]:
        return self.inputs[0] if self.inputs else ()

    @property
    def made(self) -> tuple[int, ...]:
        return self.outputs[0]

    def axis(self, default: int = -1) -> int:
        """Return the axis that an attribute names, counted from the front."""
        axis = int(self.node.attrs.get("axis", default))
        return axis + len(self.given) if axis < 0 else axis

    def size_along_axis(self, default: int = -1) -> int:
        axis = self.axis(default)
        return self.made[axis] if -len(self.made) <= axis < len(self.made) else 1


_Guess = Callable[[_Place, int], Sequence[Any]]


def _made_shape(place: _Place, size: int) -> Sequence[Any]:
    return [place.made, place.made[-size:] if size else ()]


def _grid_size(place: _Place, size: int) -> Sequence[Any]:
    return [(place.made[0], 1, *place.made[1:-1])] if place.made else []


def _ratios(place: _Place, size: int) -> Sequence[Any]:
    ratios = [after / max(before, 1) for before, after in zip(place.given, place.made, strict=False)]
    return [ratios, ratios[len(ratios) - size :]]


def _repeats(place: _Place, size: int) -> Sequence[Any]:
    return [[after // max(before, 1) for before, after in zip(place.given, place.made, strict=False)]]


def _paddings(place: _Place, size: int) -> Sequence[Any]:
    grown = [after - before for before, after in zip(place.given, place.made, strict=False)]
    half = [(more // 2, more - more // 2) for more in grown]
    changed = [pair for pair, more in zip(half, grown, strict=True) if more]
    return [
        [*(a for a, _ in pairs), *(b for _, b in pairs)] for pairs in (half, changed, half[len(half) - size // 2 :])
    ]


def _parts(place: _Place, size: int) -> Sequence[Any]:
    axis = place.axis(0)
    return [[shape[axis] for shape in place.outputs if axis < len(shape)]]


def _even_parts(place: _Place, size: int) -> Sequence[Any]:
    whole = place.given[place.axis(0)] if place.given else 0
    return [[1], [*[whole // size] * (size - 1), whole - whole // size * (size - 1)]] if size else []


def _reduced_axes(place: _Place, size: int) -> Sequence[Any]:
    return [axes for axes in itertools.combinations(range(len(place.given)), size) if _keeps(place, axes)]


def _keeps(place: _Place, axes: tuple[int, ...]) -> bool:
    given = place.given
    if len(given) == len(place.made):
        return tuple(1 if i in axes else dim for i, dim in enumerate(given)) == place.made
    return tuple(dim for i, dim in enumerate(given) if i not in axes) == place.made


def _new_axes(place: _Place, size: int) -> Sequence[Any]:
    made = place.made
    return [
        axes for axes in itertools.combinations(range(len(made)), size)
        if tuple(dim for i, dim in enumerate(made) if i not in axes) == place.given
    ]  # fmt: skip


def _largest_ends(place: _Place, size: int) -> Sequence[Any]:
    return [place.made[:size], place.given[:size]]


def _last_axes(place: _Place, size: int) -> Sequence[Any]:
    return [range(size)]


def _along_axis(place: _Place, size: int) -> Sequence[Any]:
    return [[place.size_along_axis()]]


def _length(place: _Place, size: int) -> Sequence[Any]:
    """The number of steps that a recurrent operator takes, or of entries that attention reads."""
    return [[place.given[1 if place.node.attrs.get("layout") else 0]] * size] if place.given else []


def _entries(place: _Place, size: int) -> Sequence[Any]:
    keys = place.inputs[1] if len(place.inputs) > 1 else ()
    return [[keys[-2]] * size] if len(keys) > 1 else []


def _blocks(place: _Place, size: int) -> Sequence[Any]:
    """The block of a Col2Im: its elements are those of an input's channel per channel of the output."""
    if len(place.given) < 2 or len(place.made) < 2 or not place.made[1]:
        return []
    elements = place.given[1] // place.made[1]
    sizes = [size for size in range(1, elements + 1) if elements % size == 0]
    return [block for block in itertools.product(sizes, repeat=size) if np.prod(block) == elements]


def _always(*values: float) -> _Guess:
    return lambda place, size: [[value] * size for value in values]


def _made_length(place: _Place, size: int) -> Sequence[Any]:
    return [[place.made[0]]] if place.made else []


def _mel_bins(place: _Place, size: int) -> Sequence[Any]:
    return [[place.made[1]]] if len(place.made) == 2 else []


def _mel_length(place: _Place, size: int) -> Sequence[Any]:
    return [[2 * (place.made[0] - 1)]] if len(place.made) == 2 else []


def _frame_length(place: _Place, size: int) -> Sequence[Any]:
    bins = place.made[2] if len(place.made) == 4 else 0
    return [[2 * (bins - 1)], [bins]]


def _frame_step(place: _Place, size: int) -> Sequence[Any]:
    if len(place.made) != 4 or place.made[1] < 2 or len(place.given) < 2:
        return []
    window = place.inputs[2] if len(place.inputs) > 2 else ()
    lengths = window or tuple(made[0] for made in _frame_length(place, 1))
    return [[max(1, (place.given[1] - length) // (place.made[1] - 1))] for length in lengths]


def _trips(place: _Place, size: int) -> Sequence[Any]:
    scanned = place.outputs[-1] if place.outputs else ()
    return [[scanned[0]] if scanned else [1]]


_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_GUESSES: Mapping[tuple[str, int], _Guess] = {
    ("Reshape", 1): _made_shape, ("Expand", 1): _made_shape, ("ConstantOfShape", 0): _made_shape,
    ("MaxUnpool", 2): _made_shape, ("CenterCropPad", 1): _made_shape, ("Col2Im", 1): _made_shape,
    ("Col2Im", 2): _blocks,
    ("Resize", 3): _made_shape, ("Resize", 2): _ratios, ("Upsample", 1): _ratios, ("Resize", 1): _always(0.0),
    ("AffineGrid", 1): _grid_size, ("Tile", 1): _repeats, ("Pad", 1): _paddings, ("Split", 1): _parts,
    ("SplitToSequence", 1): _even_parts, ("TopK", 1): _along_axis, ("OneHot", 1): _along_axis,
    **{(f"Reduce{name}", 1): _reduced_axes for name in _REDUCTIONS},
    ("Squeeze", 1): _reduced_axes, ("Unsqueeze", 1): _new_axes,
    ("Slice", 1): _always(0.0), ("Slice", 2): _largest_ends, ("Slice", 3): _last_axes, ("Slice", 4): _always(1.0),
    ("Pad", 3): _last_axes, ("RNN", 4): _length, ("GRU", 4): _length, ("LSTM", 4): _length,
    ("ReverseSequence", 1): _length, ("Attention", 6): _entries,
    ("Range", 0): _always(0.0), ("Range", 1): _made_length, ("Range", 2): _always(1.0),
    ("Dropout", 1): _always(0.5), ("NonMaxSuppression", 2): _always(3.0), ("NonMaxSuppression", 3): _always(0.5),
    ("MelWeightMatrix", 0): _mel_bins, ("MelWeightMatrix", 1): _mel_length, ("MelWeightMatrix", 2): _always(8192.0),
    ("MelWeightMatrix", 3): _always(0.0), ("MelWeightMatrix", 4): _always(4096.0),
    ("Loop", 0): _trips, ("STFT", 1): _frame_step, ("STFT", 3): _frame_length,
    ("CumSum", 1): _always(0.0), ("CumProd", 1): _always(0.0),
    ("BlackmanWindow", 0): _made_length, ("HammingWindow", 0): _made_length, ("HannWindow", 0): _made_length,
}  # fmt: skip
"""By operator and position of the input."""


def _shape(graph: Graph, value: int | None) -> tuple[int, ...]:
    type = None if value is None else graph.types.get(value)
    return () if type is None else type.shape


def _reshaped(values: np.ndarray[Any, Any], type: TensorType) -> Values:
    listed: Values = values.reshape(type.shape).tolist()
    return listed
