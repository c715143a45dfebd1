"""Searches at the single shapes that were asked for, each beginning with what the first of them found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.conclusion.recordings import actions_of
from agents.core.base import OptimizationResult
from agents.optimization.options import OptimizeOptions
from agents.searching.known_starts import Start
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.replay import Recording, replay
from graph_rewrite.symbolic.bindings import AUTO, DimensionBindings
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import Problem

BUNDLE_SHARE, BUNDLE_S = 0.25, 60.0
"""Share of the time limit for measuring the models of single shapes and checking the bundle, and most seconds of it per
shape."""
FIRST = 2
"""Times the seconds of the others that the search at the first shape has: they begin with its result."""


@dataclass(frozen=True, slots=True)
class ShapeResult:
    """The outcome of a search at a shape that was asked for; without a result, `reason` says why there is none."""

    values: Mapping[str, int]
    """The sizes of the symbolic dimensions."""
    problem: Problem | None = None
    result: OptimizationResult | None = None
    recording: Recording | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ShapeTimes:
    """Seconds of a time limit for single shapes, after the first search."""

    each: float
    """For the search at each further shape."""
    others: float
    """For these searches together."""
    bundle: float
    """For measuring the models of all shapes, and checking the bundle."""

    @property
    def after(self) -> float:
        """Return all seconds that the first search leaves."""
        return self.others + self.bundle

    def first(self, options: OptimizeOptions) -> OptimizeOptions:
        """Return the options of the first search, which leaves these seconds."""
        return replace(options, time_limit=f"{options.seconds - self.after:.3f}") if self.after else options


def times_for_single_shapes(count: int, limit: float, general: float) -> ShapeTimes:
    """Divide a time limit among `count` shapes, where a result for all shapes takes `general` seconds of it."""
    bundle = min(BUNDLE_S * count, BUNDLE_SHARE * limit)
    each = (limit - general - bundle) / (count - 1 + FIRST) if count > 1 else 0.0
    return ShapeTimes(each, each * (count - 1), bundle)


def check_specialise(options: OptimizeOptions, bindings: DimensionBindings) -> DimensionBindings:
    """Return the bindings of a model, each once, where models for single shapes can be made for them.

    Raises:
        UserError: fixed shapes, or no shapes that were asked for.
    """
    inputs = bindings.inputs
    if options.static:
        raise UserError("--specialise keeps the dimensions symbolic, and --static fixes them: leave one of them out")
    if inputs.is_static:
        raise UserError(
            "--specialise is for models with symbolic dimensions, and this one has fixed shapes: leave it out"
        )
    if inputs.open:
        raise UserError(f"--specialise: the number of dimensions of the input {sorted(inputs.open)[0]} is not known")
    if all(text.strip() == AUTO for text in options.shape):
        name, shape = next(iter(inputs.shapes(bindings.values[0]).items()))
        asked = ",".join(map(str, shape))
        raise UserError(f"--specialise makes models for shapes that you name: add --shape {name}:{asked}, or several")
    kept = [values for i, values in enumerate(bindings.values) if values not in bindings.values[:i]]
    return replace(bindings, values=tuple(kept))


Open = Callable[[OptimizeOptions, DimensionBindings], Problem]
Search = Callable[[Problem, OptimizeOptions, float, Sequence[Start]], tuple[OptimizationResult, Recording | None]]
"""Searches a problem until a moment of `time.monotonic`, beginning with known graphs."""


@dataclass(frozen=True, slots=True)
class ShapeSearches:
    """Searches at further shapes.

    Args:
        options: the options of the whole optimisation.
        open: opens the model at the first of some bindings.
        search: searches a problem.
        interrupted: says that the user has ended the searches.
    """

    options: OptimizeOptions
    open: Open
    search: Search
    interrupted: Callable[[], bool]

    def run(
        self, bindings: DimensionBindings, first: Recording | None, times: ShapeTimes, ends: float
    ) -> Iterator[ShapeResult]:
        """Yield what is found at each binding but the first; the seconds that one leaves go to those after it.

        Args:
            first: the recorded result at the first binding, with which the searches begin.
            ends: the moment of `time.monotonic` at which the last of them ends.
        """
        left = list(bindings.values[1:])
        # The search is said to take the same seconds every time, so that a remembered result is told to be enough.
        options = replace(self.options, time_limit=f"{max(1.0, times.each):.3f}", input_data=())
        while left:
            until = time.monotonic() + (ends - time.monotonic()) / len(left)
            values = left.pop(0)
            if self.interrupted():
                yield ShapeResult(values, reason="the search was ended before it came to this shape")
                continue
            yield self._at(options, replace(bindings, values=(values,)), first, until)

    def _at(
        self, options: OptimizeOptions, bindings: DimensionBindings, first: Recording | None, until: float
    ) -> ShapeResult:
        (values,) = bindings.values
        try:
            with ending_at(until):
                problem = self.open(options, bindings)
                starts = _starts(problem, first, options.strict)
            result, recording = self.search(problem, options, until, starts)
        except OutOfTime:
            return ShapeResult(values, reason="no time was left to search at this shape")
        except (MachineError, UserError) as error:  # the first shape was good, this one is not
            return ShapeResult(values, reason=f"the model cannot be searched at this shape: {error}")
        return ShapeResult(values, problem, result, recording)


def _starts(problem: Problem, recording: Recording | None, strict: bool) -> list[Start]:
    """Return the recorded result replayed on a problem, as far as it fits."""
    if recording is None or not recording.steps:
        return []
    found = replay(recording, problem.model.graph, problem.rewriter, partial=True, strict=strict)
    return [Start(found.graph, actions_of(found.applied))] if found.applied else []
