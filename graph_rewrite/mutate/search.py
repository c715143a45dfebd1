"""The search for mutants of a graph: subprograms, small instances, sketches, and the proof at the real shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from graph_rewrite.ir.graph import Graph
from graph_rewrite.layouts import LayoutError
from graph_rewrite.mutate.equivalence import Disagreement, RandomTrials, prove
from graph_rewrite.mutate.generation.finish import Target
from graph_rewrite.mutate.generation.generator import DEPTH, KEEP
from graph_rewrite.mutate.generation.instance import lifted, small_instance, work_of
from graph_rewrite.mutate.generation.shared_sketches import SharedSketches
from graph_rewrite.mutate.generation.sketch import Sketch, signature
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import Repair, RepairCase, choose
from graph_rewrite.mutate.subprograms import LARGEST, split
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal

LARGEST_WORK = 2 * 10**9
"""Multiplications of a subprogram beyond which it is refused: a proof takes seconds for each 10^9."""
_LARGEST_INSTANCE = 1 << 16
"""Elements of all values of a subprogram, beyond which its mutants are found at a smaller instance only."""
_FOR_FINDING = 0.6
"""The part of a subprogram's time in which mutants are found; in the rest they are repaired."""
_MOST_WORK = 4
"""A mutant may take so many times the multiplications of its original, before its repair."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a search.

    `seconds` for all of it; `depth` and `keep` as for `Generator`; `largest` operators of a subprogram; `work`
    multiplications of one that is proved.
    """

    seconds: float = 180.0
    depth: int = DEPTH
    keep: float = KEEP
    largest: int = LARGEST
    work: int = LARGEST_WORK


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program that may stand for a subprogram, and where it differs from it. `repair` makes it equal everywhere; None
    where it is, or where there was no time to look for one."""

    subprogram: Subprogram
    program: TensorProgram
    finding: Disagreement
    repair: Repair | Refusal | None = None

    @property
    def cost(self) -> float:
        """Multiplications of the mutant with its repair, over those of the original."""
        made = self.repair.program if isinstance(self.repair, Repair) else self.program
        sub = self.subprogram
        return work_of(made, sub.shapes) / max(work_of(sub.program, sub.shapes), 1)


@dataclass(slots=True)
class Mutants:
    """The result of a search: mutants as they were found, the nodes of the graph that belong to no subprogram, and the
    subprograms that were not searched. `complete` is False where the search was cut short."""

    found: list[Mutant] = field(default_factory=list)
    nodes: dict[int, Refusal] = field(default_factory=dict)
    subprograms: list[tuple[Subprogram, Refusal]] = field(default_factory=list)
    searched: list[tuple[Subprogram, int]] = field(default_factory=list)
    """Subprograms that were searched, and how many sites of the graph each stands for."""
    complete: bool = False
    interrupted: bool = False
    """Ctrl-C ended the search."""
    _places: dict[object, int] = field(default_factory=dict, repr=False)

    def add(self, mutant: Mutant) -> None:
        """Keep a mutant; of those of one subprogram with the same operators beside layouts, only the one that differs
        least."""
        sub = mutant.subprogram
        key = (sub.nodes, signature(mutant.program, sub.shapes))
        place = self._places.setdefault(key, len(self.found))
        if place == len(self.found):
            self.found.append(mutant)
        elif mutant.finding.share_wrong < self.found[place].finding.share_wrong:
            self.found[place] = mutant

    def repair(self, trials: RandomTrials, sub: Subprogram, stop: Callable[[], bool]) -> None:
        """Give the mutants of a subprogram the repair of fewest multiplications, those that differ least first."""
        places = [i for i, mutant in enumerate(self.found) if mutant.subprogram is sub and not mutant.finding.exact]
        for place in sorted(places, key=lambda place: self.found[place].finding.share_wrong):
            if stop():
                return
            mutant = self.found[place]
            case = RepairCase(trials, mutant.program, mutant.finding.wrong, sub.constants)
            chosen = choose(case, lambda program: float(work_of(program, sub.shapes)))
            self.found[place] = replace(mutant, repair=chosen)


def mutants_of(
    graph: Graph,
    limits: Limits = Limits(),
    on_found: Callable[[Mutant], None] = lambda mutant: None,
    clock: Callable[[], float] = time.monotonic,
) -> Mutants:
    """Return the mutants of all subprograms of a graph. Ctrl-C and the time limit end the search; what was found until
    then is kept.

    Args:
        graph: a graph with static shapes; nodes without them are refused.
        limits: of time and of size.
        on_found: called with each mutant.
        clock: seconds, for the time limit.
    """
    result = Mutants()
    end, shared = clock() + limits.seconds, SharedSketches()
    try:
        parts = split(graph, limits.largest)
        result.nodes.update(parts.refused)
        cut = False
        for number, (sub, places) in enumerate(zip(parts.subprograms, parts.places, strict=True)):
            share = (end - clock()) / (len(parts.subprograms) - number)
            if share <= 0:
                return result
            until, repaired = clock() + _FOR_FINDING * share, clock() + share
            if (refusal := too_large(sub, limits)) is not None:
                result.subprograms.append((sub, refusal))
                continue
            result.searched.append((sub, places))
            trials = RandomTrials(sub.program, sub.shapes, seed=2)
            stop = partial(_is_over, until, clock)
            for mutant in mutants_of_subprogram(sub, limits, stop, trials, shared=shared):
                result.add(mutant)
                on_found(mutant)
            cut = cut or stop()
            result.repair(trials, sub, partial(_is_over, repaired, clock))
        result.complete = not cut
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def too_large(sub: Subprogram, limits: Limits) -> Refusal | None:
    """Refuse a subprogram that cannot be proved or searched in a reasonable time."""
    if work_of(sub.program, sub.shapes) > limits.work:
        return Refusal("too large to be proved at its real shape")
    small = small_instance(sub)
    if small is sub and sum(value.size for value in types_of(sub.program, sub.shapes)) > _LARGEST_INSTANCE:
        return Refusal("no smaller instance of it is known, at which mutants could be found")
    return None


def _is_over(until: float, clock: Callable[[], float]) -> bool:
    return clock() >= until


def mutants_of_subprogram(
    sub: Subprogram,
    limits: Limits = Limits(),
    stop: Callable[[], bool] = lambda: False,
    trials: RandomTrials | None = None,
    is_hopeful: Callable[[TensorProgram], bool] = lambda program: True,
    shared: SharedSketches | None = None,
) -> Iterator[Mutant]:
    """Yield the mutants of one subprogram, each proved at its real shapes.

    Args:
        sub: the subprogram.
        limits: depth and the part that must be right; its seconds are not looked at.
        stop: asked now and then; the search ends when it returns True.
        trials: the outputs of the subprogram at its real shapes, where others share them.
        is_hopeful: asked of each mutant, first without the layouts of its outputs, before its proof; those that are not
            are left out.
        shared: sketches that the search has enumerated, for other subprograms too.
    """
    small = small_instance(sub)
    sketches = (shared or SharedSketches()).of(small, limits.depth, limits.keep, stop)
    real = RandomTrials(sub.program, sub.shapes, seed=2) if trials is None else trials
    # Windows are chosen by values of their own: those of the trials must not depend on the mutant that they prove.
    aim = RandomTrials(sub.program, sub.shapes, seed=3, trials=1)
    targets: list[Target] = []
    seen = {str(sub.program)}
    for sketch in sketches:
        for other in lifted(sketch, small, sub):
            if stop():
                return
            bare = other.without_layouts_of_outputs()
            if not _is_affordable(bare, sub) or not is_hopeful(bare):
                continue
            targets = targets or [Target(values) for values in aim.outputs(0)]
            program = _at(other, targets, aim, limits)
            if program is None or str(program) in seen:
                continue
            seen.add(str(program))
            if not is_hopeful(program):
                continue
            finding = prove(real, program, limits.keep)
            if finding is not None:
                yield Mutant(sub, program, finding)


def _is_affordable(program: TensorProgram, sub: Subprogram) -> bool:
    """Tell whether a program fits the inputs of a subprogram, and is not much more work."""
    try:
        return work_of(program, sub.shapes) <= _MOST_WORK * max(work_of(sub.program, sub.shapes), 1)
    except (DoesNotFit, LayoutError):
        return False


def _at(sketch: Sketch, targets: list[Target], aim: RandomTrials, limits: Limits) -> TensorProgram | None:
    """Return a sketch at the real shapes, if it fits them and enough is right there."""
    try:
        return sketch.at(targets, aim.inputs(0), limits.keep)
    except (DoesNotFit, LayoutError):
        return None
