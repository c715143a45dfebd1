"""The last step of a mutant: the layout that brings a value to the place of an output.

It is solved for, not enumerated: elements of the value that occur in the output tell where they must go.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.moves import Chain, DoesNotFit, Window, layout_of
from graph_rewrite.soundness.domains.limbs import Residues

Places = npt.NDArray[np.int64]
"""Where the elements of a value occur in an output: a flat position, counted from 1; 0 for nowhere."""
_SAMPLE = 32
"""Elements whose places tell where a window begins."""
_AGREED = 0.125
"""The part of them that must tell the same."""


class Target:
    """An output of the original at one random input, indexed by its elements."""

    def __init__(self, values: Residues) -> None:
        self.values, self.shape, self.size = values, values.shape, values.size
        self._order: Any = None
        self._sorted: Any = None

    def places(self, made: Residues) -> Places:
        """Return where the elements of a value occur here. Zeros occur nowhere: padding has them too."""
        if self._order is None:
            flat = self.values.reshape(-1)
            self._order = np.argsort(flat, kind="stable")
            self._sorted = flat[self._order]
        at = np.minimum(np.searchsorted(self._sorted, made), self.size - 1)
        return np.where((self._sorted[at] == made) & (made != 0), self._order[at] + 1, 0)

    def share(self, places: Places) -> float:
        """Return the largest part of the output that a layout of the value can give."""
        return float(np.count_nonzero(np.bincount(places.reshape(-1), minlength=self.size + 1)[1:])) / self.size

    def window(self, places: Places) -> tuple[Window | None, float]:
        """Return the window that brings places where they belong, None for no change, and the part of the output that
        is right then; 0 where no window helps."""
        if places.ndim != len(self.shape):
            return None, 0.0
        start = self._start(places)
        if start is None:
            return None, 0.0
        window = Window(start, self.shape)
        try:
            moved = places if _changes_nothing(window, places.shape) else _moved((window,), places)
        except DoesNotFit:
            return None, 0.0
        right = np.count_nonzero(moved.reshape(-1) == np.arange(1, self.size + 1))
        return (None if moved is places else window), right / self.size

    def _start(self, places: Places) -> tuple[int, ...] | None:
        flat, hits = places.reshape(-1), _sample(places)
        if not len(hits):
            return None
        own = np.array(np.unravel_index(hits, places.shape))
        wanted = np.array(np.unravel_index(flat[hits] - 1, self.shape))
        offset, count = Counter(map(tuple, (own - wanted).T.tolist())).most_common(1)[0]
        return offset if count >= _AGREED * len(hits) else None


class Destinations:
    """The places to which chains of moves bring the elements of a value; they tell which chains are worth a try.

    Args:
        shape: the shape of the value.
        chains: the chains; those that do not apply are left out.
    """

    def __init__(self, shape: Shape, chains: Iterable[Chain]) -> None:
        self._chains: list[Chain] = []
        flat: list[npt.NDArray[np.int32]] = []
        shapes: list[Shape] = []
        places = np.arange(1, prod(shape) + 1, dtype=np.int32).reshape(shape)
        for chain in chains:
            try:
                index = layout_of(chain, shape).numpy(places)
            except (DoesNotFit, LayoutError):
                continue
            if index.ndim == len(shape):
                where = np.zeros(1 + prod(shape), dtype=np.int32)
                where[index.reshape(-1)] = np.arange(index.size)
                self._chains.append(chain)
                flat.append(where[1:])
                shapes.append(index.shape)
        self._flat = np.array(flat).reshape(len(flat), prod(shape))
        self._sizes = np.array(shapes).reshape(len(shapes), len(shape), 1)
        self._strides = np.cumprod(np.concatenate([self._sizes[:, 1:], self._sizes[:, :1] * 0 + 1], 1)[:, ::-1], 1)[
            :, ::-1
        ]

    def likely(self, target: Target, places: Places) -> Iterator[Chain]:
        """Yield the chains after which enough of some elements are at the same distance from their places."""
        hits = _sample(places)
        if not len(hits) or len(target.shape) != places.ndim:
            return
        wanted = np.array(np.unravel_index(places.reshape(-1)[hits] - 1, target.shape))
        own = self._flat[:, None, hits] // self._strides % self._sizes  # [chains, axes, hits]
        radix = 2 * max(int(self._sizes.max(initial=1)), *target.shape) + 1
        codes = np.zeros((len(self._chains), len(hits)), dtype=np.int64)
        for axis in range(places.ndim):
            codes = codes * radix + (own[:, axis] - wanted[axis])
        codes.sort(axis=1)
        least = max(1, ceil(_AGREED * len(hits)))
        agree = (codes[:, least - 1 :] == codes[:, : len(hits) - least + 1]).any(axis=1)
        yield from (self._chains[place] for place in np.flatnonzero(agree))


def _sample(places: Places) -> npt.NDArray[np.int64]:
    """Return some of the elements that occur in the output."""
    hits = np.flatnonzero(places)
    return hits[:: max(1, len(hits) // _SAMPLE)]


def _changes_nothing(window: Window, shape: Shape) -> bool:
    return not any(window.start) and window.size == shape


def _moved(chain: Chain, places: Places) -> Places:
    return layout_of(chain, places.shape).numpy(places)


def solve(
    target: Target,
    made: Residues,
    options: Iterable[Chain],
    keep: float,
    more: Callable[[], Destinations] | None = None,
) -> tuple[Chain, Chain, float] | None:
    """Return the chain of moves, of some options, that brings most of a value to its place in the output.

    Args:
        target: the output.
        made: the value that a mutant computes.
        options: chains of moves; the first of the best ones is taken.
        keep: the part of the output that must be right.
        more: returns further chains, of which those are tried that are likely; asked where it takes them.

    Returns:
        The chain, the same with the window that follows it, and the part that is right; None where no chain will do.
    """
    places = target.places(made)
    possible = target.share(places)
    if possible < keep:
        return None
    best: tuple[Chain, Chain, float] | None = None
    for chain in itertools.chain(options, _likely(more, target, places)):
        try:
            window, right = target.window(_moved(chain, places))
        except (DoesNotFit, LayoutError):
            continue
        if right >= keep and (best is None or right > best[2]):
            best = chain, chain if window is None else (*chain, window), right
            if right >= possible:
                break
    return best


def _likely(more: Callable[[], Destinations] | None, target: Target, places: Places) -> Iterator[Chain]:
    if more is not None:
        yield from more().likely(target, places)
