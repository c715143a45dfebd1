"""The search for mutants of a graph: subprograms, small instances, sketches, their judgement at a thin instance, and
the proof of what is equal at the real shapes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from graph_rewrite.ir.graph import Graph
from graph_rewrite.layouts import LayoutError
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.canonical import identity_of
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
from graph_rewrite.mutate.thinning import MutantJudge
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
    """A program that may stand for a subprogram, and where it differs from it, as found at the thin instance. `judged`
    is its form there, with the boxes that are wrong. `repair` makes it equal everywhere; None where it is, or where
    there was no time to look for one."""

    subprogram: Subprogram
    program: TensorProgram
    finding: Disagreement
    judged: tuple[TensorProgram, tuple[tuple[Box, ...], ...]]
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
    cut: list[Subprogram] = field(default_factory=list)
    """Those of them whose time was over before all of their mutants were built."""
    complete: bool = False
    interrupted: bool = False
    """Ctrl-C ended the search."""
    _places: dict[object, int] = field(default_factory=dict, repr=False)

    def was_cut(self, sub: Subprogram) -> bool:
        """Tell whether the time was over before all mutants of a subprogram that was searched were built."""
        return any(each is sub for each in self.cut)

    def wants(self, mutant: Mutant) -> bool:
        """Tell whether a mutant is new: of those of one subprogram with the same operators beside layouts, only the one
        that differs least is kept."""
        place = self._places.get(_key(mutant))
        return place is None or mutant.finding.share_wrong < self.found[place].finding.share_wrong

    def add(self, mutant: Mutant) -> None:
        """Keep a mutant, in the place of one that differs more."""
        place = self._places.setdefault(_key(mutant), len(self.found))
        self.found[place : place + 1] = [mutant]

    def repair(self, judge: MutantJudge, stop: Callable[[], bool]) -> None:
        """Give the mutants of a subprogram the repair of fewest multiplications, those that differ least first."""
        sub = judge.real
        places = [i for i, mutant in enumerate(self.found) if mutant.subprogram is sub and not mutant.finding.exact]
        for place in sorted(places, key=lambda place: self.found[place].finding.share_wrong):
            if stop():
                return
            mutant = self.found[place]
            self.found[place] = replace(mutant, repair=proved_repair(judge, mutant))


def _key(mutant: Mutant) -> object:
    return mutant.subprogram.nodes, signature(mutant.program, mutant.subprogram.shapes)


def repair_case(judge: MutantJudge, mutant: Mutant) -> RepairCase:
    """Return what a repair of a mutant starts from, at the thin instance."""
    return RepairCase(judge.trials, *mutant.judged, judge.thin.constants)


def proved_repair(judge: MutantJudge, mutant: Mutant) -> Repair | Refusal:
    """Return the repair of fewest multiplications, at the real shapes and proved there."""
    case = repair_case(judge, mutant)
    chosen = choose(case, partial(judge.cost, of=lambda made: float(work_of(made, judge.real.shapes))))
    if isinstance(chosen, Refusal):
        return chosen
    made = judge.at_real(chosen.program)
    if made is None or judge.proof(made) is None:
        return Refusal(f"{chosen.kind}: the repaired program is not equal everywhere at the real shapes")
    return replace(chosen, program=made)


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
        for number, (sub, places) in enumerate(zip(parts.subprograms, parts.places, strict=True)):
            share = (end - clock()) / (len(parts.subprograms) - number)
            if share <= 0:
                return result
            until, repaired = clock() + _FOR_FINDING * share, clock() + share
            if (refusal := too_large(sub, limits)) is not None:
                result.subprograms.append((sub, refusal))
                continue
            result.searched.append((sub, places))
            judge = MutantJudge(sub)
            stop = partial(_is_over, until, clock)
            for mutant in mutants_of_subprogram(sub, limits, stop, judge, shared=shared):
                kept = _proved_if_equal(judge, mutant) if result.wants(mutant) else None
                if kept is not None:
                    result.add(kept)
                    on_found(kept)
            if stop():
                result.cut.append(sub)
            result.repair(judge, partial(_is_over, repaired, clock))
        result.complete = not result.cut
    except KeyboardInterrupt:
        result.interrupted = True
    return result


def _proved_if_equal(judge: MutantJudge, mutant: Mutant) -> Mutant | None:
    """Return a mutant that seems to be equal everywhere with its proof at the real shapes, None where that fails;
    others as they are."""
    if not mutant.finding.exact:
        return mutant
    proof = judge.proof(mutant.program)
    return None if proof is None else replace(mutant, finding=proof)


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
    judge: MutantJudge | None = None,
    is_hopeful: Callable[[TensorProgram], bool] = lambda program: True,
    shared: SharedSketches | None = None,
) -> Iterator[Mutant]:
    """Yield the mutants of one subprogram, with their boxes as found at the thin instance. None of them is proved at
    the real shapes.

    Args:
        sub: the subprogram.
        limits: depth and the part that must be right; its seconds are not looked at.
        stop: asked now and then; the search ends when it returns True.
        judge: of the subprogram, where it is asked for more afterwards.
        is_hopeful: asked of each mutant at the real shapes, first without the layouts of its outputs, before it is
            evaluated; those that are not are left out.
        shared: sketches that the search has enumerated, for other subprograms too.
    """
    judge = judge or MutantJudge(sub)
    small, thin = small_instance(sub), judge.thin
    targets: list[Target] = []
    seen = {identity_of(sub.program, sub.shapes)}
    for sketch in (shared or SharedSketches()).of(small, limits.depth, limits.keep, stop):
        for other in lifted(sketch, small, thin):
            if stop():
                return
            bare = judge.steps_at_real(other.without_layouts_of_outputs())
            if bare is None or not _is_affordable(bare, sub) or not is_hopeful(bare):
                continue
            targets = targets or [Target(values) for values in judge.aim.outputs(0)]
            judged = _at(other, targets, judge.aim, limits)
            program = None if judged is None else judge.at_real(judged)
            if judged is None or program is None or (identity := identity_of(program, sub.shapes)) in seen:
                continue
            seen.add(identity)
            mutant = _judged(judge, judged, program, limits.keep) if is_hopeful(program) else None
            if mutant is not None:
                yield mutant


def judged_seed(judge: MutantJudge, seed: TensorProgram, keep: float) -> Mutant | None:
    """Return a program of the real shapes as a mutant; None where it has no form at the thin instance, or too little of
    it is right."""
    judged = judge.at_thin(seed)
    return None if judged is None else _judged(judge, judged, seed, keep)


def _judged(judge: MutantJudge, judged: TensorProgram, program: TensorProgram, keep: float) -> Mutant | None:
    """Return a program that has one form at the thin instance and one at the real shapes as a mutant."""
    finding = prove(judge.trials, judged, keep)
    meant = None if finding is None else judge.finding_at_real(finding)
    if finding is None or meant is None:
        return None
    return Mutant(judge.real, program, meant, (judged, finding.wrong))


def _is_affordable(program: TensorProgram, sub: Subprogram) -> bool:
    """Tell whether a program fits the inputs of a subprogram, and is not much more work."""
    try:
        return work_of(program, sub.shapes) <= _MOST_WORK * max(work_of(sub.program, sub.shapes), 1)
    except (DoesNotFit, LayoutError):
        return False


def _at(sketch: Sketch, targets: list[Target], aim: RandomTrials, limits: Limits) -> TensorProgram | None:
    """Return a sketch at the shapes of an instance, if it fits them and enough is right there."""
    try:
        return sketch.at(targets, aim.inputs(0), limits.keep)
    except (DoesNotFit, LayoutError):
        return None
