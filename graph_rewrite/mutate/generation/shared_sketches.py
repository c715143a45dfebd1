"""Sketches that several subprograms share: those whose small instances are the same, such as the convolutions of a
network at several sizes of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.equivalence import RandomTrials, passes_filter
from graph_rewrite.mutate.generation.finish import Target
from graph_rewrite.mutate.generation.generator import Generator
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.program import Subprogram, TensorProgram

Stop = Callable[[], bool]
"""Tells whether the time is over."""


class SharedSketches:
    """Enumerates the mutants of small instances, each instance once, for all subprograms of a search.

    An enumeration that ran out of time goes on where it was when the next subprogram asks for it.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[TensorProgram, tuple[Shape, ...], int, float], _Enumeration] = {}

    def of(self, small: Subprogram, depth: int, keep: float, stop: Stop) -> Iterator[Sketch]:
        """Yield the sketches of a small instance that pass the filter, those of fewer steps first.

        Args:
            small: the instance.
            depth: as for `Generator`.
            keep: as for `Generator`.
            stop: asked now and then; the enumeration pauses when it returns True.
        """
        key = (small.program, small.shapes, depth, keep)
        if key not in self._known:
            self._known[key] = _Enumeration(small, depth, keep)
        return self._known[key].sketches(stop)


class _Enumeration:
    """The sketches of one small instance, as far as anybody asked for them."""

    def __init__(self, small: Subprogram, depth: int, keep: float) -> None:
        self._stop: Stop = lambda: False
        generator = Generator(small.program, small.shapes, depth, keep, lambda: self._stop())
        self._coming, self._passes = generator.with_pauses(), _SmallFilter(small, keep)
        self._found: list[Sketch] = []

    def sketches(self, stop: Stop) -> Iterator[Sketch]:
        place = 0
        while place < len(self._found) or self._finds_more(stop):
            yield self._found[place]
            place += 1

    def _finds_more(self, stop: Stop) -> bool:
        self._stop = stop
        for sketch in self._coming:
            if sketch is None:
                return False
            if self._passes(sketch):
                self._found.append(sketch)
                return True
        return False


class _SmallFilter:
    """Theorem 1 at the small instance, before a mutant is evaluated at the real shapes: the boxes in which m + 1
    positions agree hold a part of each output. Borders take more of a small image than of a large one, so the part is
    half of what must be right."""

    def __init__(self, small: Subprogram, keep: float) -> None:
        self._trials = RandomTrials(small.program, small.shapes, seed=5, trials=1)
        self._targets: list[Target] = []
        self._keep = keep / 2

    def __call__(self, sketch: Sketch) -> bool:
        self._targets = self._targets or [Target(values) for values in self._trials.outputs(0)]
        try:
            made = sketch.at(self._targets, self._trials.inputs(0), self._keep)
            return made is not None and passes_filter(self._trials, made, self._keep)
        except (DoesNotFit, LayoutError):
            return False
