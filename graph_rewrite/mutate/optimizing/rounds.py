"""The rounds of one subprogram: mutants of it, and of those that cost least, as programs with their proofs (PET,
OSDI'21, algorithm 2)."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from graph_rewrite.mutate.canonical import Identity, identity_of
from graph_rewrite.mutate.equivalence import Disagreement
from graph_rewrite.mutate.generation.shared_sketches import SharedSketches
from graph_rewrite.mutate.optimizing.parts import parts_of, replaced
from graph_rewrite.mutate.optimizing.pricing import Prices, price_of_program
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import Kind, RepairMethod, choose
from graph_rewrite.mutate.search import Limits, Mutant, judged_seed, mutants_of_subprogram, repair_case
from graph_rewrite.mutate.thinning import MutantJudge
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal

_PROOFS = 4
"""For each program that is kept, so many are proved at the real shapes at most."""
_BOXES = 64
"""Boxes of an output that a certificate names."""
_TOLERANCE = 1.2
"""A repaired mutant may cost so many times its original and be mutated further."""
_FIRST_ROUND = 0.6
"""The part of a subprogram's time that goes to the mutants of the original itself."""


@dataclass(frozen=True, slots=True)
class PricedProgram:
    """A program that is equal to a subprogram everywhere, and the milliseconds that it costs."""

    program: TensorProgram
    ms: float
    rounds: tuple[dict[str, Any], ...] = ()
    """How it was made, round by round, as plain values: the repair, and the boxes in which the mutant had differed."""
    proof: Disagreement | None = None
    """The proof at the real shapes, where it was made."""


@dataclass(frozen=True, slots=True)
class PricedPrograms:
    """The cheapest programs that are equal to a subprogram, the cheapest first. `complete` is False where the search
    for them was cut short."""

    programs: list[PricedProgram]
    complete: bool


@dataclass(frozen=True, slots=True)
class Means:
    """The means by which subprograms are searched; as in `Optimizer`."""

    prices: Prices
    limits: Limits
    rounds: int
    top: int
    stop: Callable[[], bool]
    clock: Callable[[], float]
    repairs: Mapping[Kind, RepairMethod]
    shared: SharedSketches


class Rounds:
    """Searches one subprogram. Mutants are judged and priced before any is proved: the real shapes are evaluated for
    those alone that are kept.

    Args:
        sub: the subprogram.
        ms: what it costs.
        means: prices, limits, and the clock.
    """

    def __init__(self, sub: Subprogram, ms: float, means: Means) -> None:
        self._judge, self._ms, self._means = MutantJudge(sub), ms, means
        self._cut = False

    def run(self, until: float, seeds: Sequence[TensorProgram] = ()) -> PricedPrograms:
        """Return the cheapest programs that are equal to the subprogram and cost less, each proved at its real shapes.

        Args:
            until: the moment of the clock at which the search ends, but for the proofs of what was found.
            seeds: programs that are tried first.
        """
        means, sub = self._means, self._judge.real
        queue, kept = [PricedProgram(sub.program, self._ms)], self._seeded(seeds)
        for number in range(means.rounds):
            now = means.clock()
            end = now + _FIRST_ROUND * (until - now) if number == 0 and means.rounds > 1 else until
            new: dict[Identity, PricedProgram] = {}
            for place, base in enumerate(queue):
                last = means.clock() + (end - means.clock()) / (len(queue) - place)
                for made in self._mutated(base, last) if number else self._repaired(self._judge, self._ms, last):
                    identity = identity_of(made.program, sub.shapes)
                    if identity not in kept:
                        new[identity] = made
            kept |= new
            queue = heapq.nsmallest(means.top, new.values(), key=ms_of)
            if not queue or number + 1 == means.rounds or self._is_over(until):
                break
        return PricedPrograms(self._proved(kept.values()), not self._cut)

    def _proved(self, programs: Iterable[PricedProgram]) -> list[PricedProgram]:
        """Return the cheapest programs that cost less than the original and are equal to it at its real shapes."""
        found: list[PricedProgram] = []
        cheaper = sorted((made for made in programs if made.ms < self._ms), key=ms_of)
        for made in cheaper[: _PROOFS * self._means.top]:
            proof = self._judge.proof(made.program)
            if proof is not None:
                found.append(replace(made, proof=proof))
                if len(found) == self._means.top:
                    break
        return found

    def _seeded(self, seeds: Sequence[TensorProgram]) -> dict[Identity, PricedProgram]:
        """Return seeds with their repairs, by what they compute."""
        found: dict[Identity, PricedProgram] = {}
        real = self._judge.real
        for seed in seeds:
            if self._cost(real, seed, self._ms) < self._ms:
                # What has no form at the thin instance is judged at the real shapes.
                judge = self._judge if self._judge.at_thin(seed) is not None else MutantJudge(real, real)
                mutant = judged_seed(judge, seed, self._means.limits.keep)
                for made in () if mutant is None else self._with_repair(mutant, judge, self._ms):
                    found[identity_of(made.program, real.shapes)] = made
        return found

    def _mutated(self, base: PricedProgram, until: float) -> Iterator[PricedProgram]:
        """Yield a program with repaired mutants in the place of its parts, meant to be equal to the subprogram."""
        sub = self._judge.real
        parts = list(parts_of(base.program, sub.shapes, sub.constants, self._means.limits.largest))
        for place, (chosen, part) in enumerate(parts):
            now = self._means.clock()
            end = now + (until - now) / (len(parts) - place)
            if self._is_over(end):
                return
            for other in self._repaired(MutantJudge(part), self._cost(part, part.program), end):
                made = replaced(base.program, chosen, part.inputs, other.program)
                if self._judge.seems_equal(made):
                    yield PricedProgram(made, self._cost(sub, made), (*base.rounds, *other.rounds))

    def _repaired(self, judge: MutantJudge, ms: float, until: float) -> Iterator[PricedProgram]:
        """Yield the programs that repair the mutants of a subprogram. A mutant that costs more than the original before
        its repair is not looked at."""

        def is_over() -> bool:
            return self._is_over(until)

        def is_hopeful(program: TensorProgram) -> bool:
            return self._cost(judge.real, program, ms) < ms

        for mutant in mutants_of_subprogram(
            judge.real, self._means.limits, is_over, judge, is_hopeful, self._means.shared
        ):
            yield from self._with_repair(mutant, judge, ms)

    def _with_repair(self, mutant: Mutant, judge: MutantJudge, ms: float) -> Iterator[PricedProgram]:
        """Yield the program that repairs a mutant, if there is one that costs less than the original of so many
        milliseconds, or little more where it may be mutated again."""
        sub, made, kind = mutant.subprogram, mutant.program, "none"
        if not mutant.finding.exact:
            most = ms if self._means.rounds == 1 else _TOLERANCE * ms
            price = partial(judge.cost, of=lambda program: self._cost(sub, program, most))
            chosen = choose(repair_case(judge, mutant), price, self._means.repairs, most)
            repaired = None if isinstance(chosen, Refusal) else judge.at_real(chosen.program)
            if isinstance(chosen, Refusal) or repaired is None:
                return
            made, kind = repaired, chosen.kind
        yield PricedProgram(made, self._cost(sub, made), (_round(kind, mutant),))

    def _cost(self, sub: Subprogram, program: TensorProgram, most: float = math.inf) -> float:
        return price_of_program(program, sub.shapes, sub.constants, self._means.prices, most)

    def _is_over(self, until: float) -> bool:
        """Tell whether the time is over. Who asks has more to do: the search is cut short then."""
        over = self._means.stop() or self._means.clock() >= until
        self._cut = self._cut or over
        return over


def ms_of(made: PricedProgram) -> float:
    """Return the milliseconds of a program."""
    return made.ms


def _round(kind: str, mutant: Mutant) -> dict[str, Any]:
    """Return what a certificate says of a repair and of what was wrong before it, in outputs of which shapes."""
    sub, finding = mutant.subprogram, mutant.finding
    types = types_of(sub.program, sub.shapes)
    boxes = [each[:_BOXES] for each in finding.to_json()["boxes"]]
    shapes = [list(types[value].shape) for value in sub.program.outputs]
    return {"repair": kind, "share_wrong": list(finding.shares), "boxes": boxes, "shapes": shapes}
