"""The inputs that a measurement runs a model with, in turn.

In production each inference has another input. A model that runs again and again with one input finds the rows that it
looks up in large tables in the caches of the CPU, and a rewrite that replaces a product by a table looks better than it
is. So measurements rotate among different inputs, which are made before the clock starts.

Token ids cost next to nothing: as many inputs are made as look up more rows than caches hold. Other inputs are read
from one end to the other, whatever is in them: a few of them do. Inputs that are too large to be held several times
sweep the caches by themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np

from ..feeds import Feeds, FeedSpec, ModelInput, dtype_of, fits, integer_limits, is_tensor, load_npz, make_feeds
from .recipes import Recipes, as_recipes

FEWEST = 8
"""Different inputs that a measurement rotates among, where memory allows it."""
MOST_TOKENS = 256
"""Different inputs of token ids, at most: 128 ids each look up 32768 rows, more than a vocabulary has."""
TOKEN_BYTES = 1 << 20
"""Bytes of an input of token ids in all turns, beyond those of the first `FEWEST`."""
LARGE_TOKENS = 8 << 20
"""Bytes from which an input of indices is bounded as others are: it looks up a million rows, more than caches hold."""
BYTES = 32 << 20
"""Bytes of all other inputs of a model in all turns. An input that is larger is the only one."""

Accepts = Callable[[Feeds], bool]
"""Tells whether a model runs on some inputs."""
_INDICES = (np.int32, np.int64)


class Rotation:
    """The inputs of a model in turn, made in advance.

    A single recipe of random inputs gives several: the first is that of `make_feeds`, the others have the seeds that
    follow. Its field `rotated` says which inputs change; the others are the same in all turns. Several recipes, and one
    of a user's file, are taken as they are, as many as `BYTES` has room for.

    Args:
        inputs: those of the model.
        accepts: runs the model. Random integers that are not known to index a table may be lengths or divisors: those
            that the model fails on are left out. Without it the first ones are the only ones.

    Raises:
        ValueError: names the input that cannot be made, and why.
    """

    def __init__(self, inputs: Sequence[ModelInput], recipes: Recipes, accepts: Accepts | None = None) -> None:
        specs = as_recipes(recipes)
        self.inputs = tuple(inputs)
        is_random = len(specs) == 1 and specs[0].npz is None
        self.values = _random(self.inputs, specs[0], accepts) if is_random else _given(self.inputs, specs)

    @property
    def count(self) -> int:
        """Number of turns after which the inputs begin again."""
        return max(map(len, self.values.values()), default=1)

    def feeds(self, number: int, inputs: Sequence[ModelInput]) -> Feeds:
        """Return the values of a turn for the inputs of a model; the numbers of turns go on and on."""
        return {item.name: self.values[item.name][number % len(self.values[item.name])] for item in inputs}

    def lacks(self, inputs: Sequence[ModelInput]) -> list[ModelInput]:
        """Return the inputs that are none of these, in name, type and shape. One of two models may leave a dimension
        open that the other fixes."""
        types = {item.name: item.type for item in self.inputs}
        return [
            item
            for item in inputs
            if types.get(item.name) != item.type
            or (is_tensor(item) and not fits(self.values[item.name][0].shape, item.shape))
        ]

    def copy(self) -> Self:
        """Return equal values in memory of their own."""
        made = object.__new__(type(self))
        made.inputs = self.inputs
        made.values = {name: [_copied(value) for value in values] for name, values in self.values.items()}
        return made

    def nbytes(self) -> int:
        """Return the bytes of all values."""
        return sum(_size(value) for values in self.values.values() for value in values)


def _random(inputs: Sequence[ModelInput], spec: FeedSpec, accepts: Accepts | None) -> dict[str, list[Any]]:
    first = make_feeds(inputs, spec)
    sizes = {item.name: _size(first[item.name]) for item in inputs}
    counts = {item.name: _tokens_in_turn(item, spec, sizes[item.name]) for item in inputs}
    others = sum(sizes[name] for name, count in counts.items() if count is None)
    fitting = max(1, min(FEWEST, BYTES // max(1, others)))
    values = {
        item.name: [
            first[item.name] if number == 0 else make_feeds([item], replace(spec, seed=spec.seed + number))[item.name]
            for number in range(counts[item.name] or fitting)
        ]
        for item in inputs
    }
    unsure = [name for name, count in counts.items() if count and count > 1 and name not in spec.input_ranges]
    good = [0]
    if accepts is not None and unsure and accepts(first):
        tried = {number: {name: values[name][number] for name in unsure} for number in range(1, FEWEST)}
        good += [number for number, changed in tried.items() if accepts({**first, **changed})]
    return {**values, **{name: [values[name][number] for number in good] for name in unsure}}


def _tokens_in_turn(item: ModelInput, spec: FeedSpec, size: int) -> int | None:
    """Return the number of different values of an input that may be looked up in tables, and 1 for one that is always
    the same; None for others."""
    if item.name in spec.values or (spec.rotated is not None and item.name not in spec.rotated):
        return 1
    dtype = dtype_of(item) if is_tensor(item) else None
    if dtype is None or not np.issubdtype(dtype, np.integer):
        return None
    low, high = integer_limits(item, spec)
    if high - low <= 1:
        return 1
    is_known = item.name in spec.input_ranges
    if size > LARGE_TOKENS or (dtype not in _INDICES and not is_known):
        return None
    return FEWEST if not is_known else max(FEWEST, min(MOST_TOKENS, TOKEN_BYTES // max(1, size)))


def _given(inputs: Sequence[ModelInput], specs: Sequence[FeedSpec]) -> dict[str, list[Any]]:
    values: dict[str, list[Any]] = {item.name: [] for item in inputs}
    held, file, arrays = 0, None, None
    for spec in specs:
        if spec.npz != file:
            file, arrays = spec.npz, None if spec.npz is None else load_npz(spec.npz)
        feeds = make_feeds(inputs, spec, arrays)
        size = sum(map(_size, feeds.values()))
        if held and held + size > BYTES:
            break
        held += size
        for name, value in feeds.items():
            values[name].append(_copied(value))  # an item of a file would keep the whole array
    return values


def _copied(value: Any) -> Any:
    if isinstance(value, list):
        return [_copied(element) for element in value]
    return value.copy() if isinstance(value, np.ndarray) else value


def _size(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_size, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0
