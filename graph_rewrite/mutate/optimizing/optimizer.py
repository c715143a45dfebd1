"""The optimizer: mutants of mutants, of which the cheapest ones become rules (PET, OSDI'21, algorithm 2)."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.generation.shared_sketches import SharedSketches
from graph_rewrite.mutate.mutant_rules import MutantRule, mutant_rule
from graph_rewrite.mutate.optimizing.parts import parts_of, replaced
from graph_rewrite.mutate.optimizing.pricing import PriceOfOperator, price_of_program
from graph_rewrite.mutate.optimizing.seeds import seeds_of
from graph_rewrite.mutate.optimizing.store import MutantStore, StoredPrograms
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import REPAIRS, Kind, Repair, RepairCase, RepairMethod, choose
from graph_rewrite.mutate.search import Limits, Mutant, mutants_of_subprogram, too_large
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal, Rule

ROUNDS = 4
"""How often mutants are mutated, PET's r."""
TOP = 3
"""Programs of a subprogram that go on, PET's K."""
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


@dataclass(frozen=True, slots=True)
class FoundRule:
    """A mutant as a rule, what it costs and what the original costs, in milliseconds, and the number of its sites."""

    rule: MutantRule
    ms: float
    original_ms: float
    sites: int

    @property
    def saved_ms(self) -> float:
        """Milliseconds that it saves at all its sites together, by the prices of operators."""
        return (self.original_ms - self.ms) * self.sites


@dataclass(slots=True)
class FoundRules:
    """The result of a search: rules as they were found, and subprograms that were not searched, with the reason.
    `complete` is False where the search was cut short."""

    rules: list[FoundRule] = field(default_factory=list)
    refused: list[tuple[Subprogram, Refusal]] = field(default_factory=list)
    searched: int = 0
    complete: bool = False

    def best_first(self) -> list[MutantRule]:
        """Return the rules, those that save most first."""
        return [found.rule for found in sorted(self.rules, key=lambda found: -found.saved_ms)]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Searches the subprograms of a graph for mutants that cost less, the dearest first.

    Args:
        price: milliseconds of an operator alone.
        limits: of time and of size.
        rounds: how often mutants are mutated.
        top: programs of a subprogram that are kept, and mutated in the next round.
        stop: asked now and then; the search ends when it returns True, and keeps what it has found.
        clock: seconds, for the time limit.
        store: where mutants are kept from search to search; nowhere by default.
        rules: rules whose targets are tried where they are refused for a border.
        repairs: the kinds of repairs that mutants may have.
        wanted: tells which subprograms are searched; all by default.
        shared: sketches that subprograms have in common.
    """

    price: PriceOfOperator
    limits: Limits = field(default_factory=Limits)
    rounds: int = ROUNDS
    top: int = TOP
    stop: Callable[[], bool] = lambda: False
    clock: Callable[[], float] = time.monotonic
    store: MutantStore | None = None
    rules: Sequence[Rule] = ()
    repairs: Mapping[Kind, RepairMethod] = field(default_factory=lambda: REPAIRS)
    wanted: Callable[[Subprogram], bool] = lambda sub: True
    shared: SharedSketches = field(default_factory=SharedSketches)

    def rules_of(self, graph: Graph, found: FoundRules | None = None) -> FoundRules:
        """Return the mutants of a graph that cost less than what they stand for.

        Args:
            graph: a graph with static shapes.
            found: where rules are kept as they are found; what raises an exception then loses none.
        """
        found = FoundRules() if found is None else found
        end = self.clock() + self.limits.seconds
        seeds = seeds_of(graph, self.rules)
        waiting = list(self._by_worth(graph, found))
        for number, (sub, sites, ms) in enumerate(waiting):
            share = (end - self.clock()) * max(1.0 / (len(waiting) - number), ms * sites / _worth(waiting[number:]))
            if share <= 0 or self.stop():
                return found
            found.searched += 1
            for made in self._kept(sub, ms, share, seeds.get((sub.program, sub.shapes), ())):
                rule = mutant_rule(graph, sub, made.program, {"rounds": list(made.rounds)})
                if isinstance(rule, MutantRule):
                    found.rules.append(FoundRule(rule, made.ms, ms, sites))
        found.complete = self.clock() < end and not self.stop()
        return found

    def _kept(self, sub: Subprogram, ms: float, seconds: float, seeds: Sequence[TensorProgram]) -> list[PricedProgram]:
        """Return the mutants that a search of so many seconds gives: those of an earlier one that took as long, or
        came to its end, where there was one."""
        known = None if self.store is None else self.store.get(sub)
        if known is not None and known.seconds >= seconds:
            priced = [PricedProgram(made, self._cost(sub, made, ms), rounds) for made, rounds in known.programs]
            return sorted((made for made in priced if made.ms < ms), key=_ms)
        until = self.clock() + seconds
        found = self.mutants(sub, ms, until, seeds)
        if self.store is not None and not self.stop():
            took = seconds if self.clock() >= until else math.inf
            self.store.put(sub, StoredPrograms(tuple((made.program, made.rounds) for made in found), took))
        return found

    def _by_worth(self, graph: Graph, found: FoundRules) -> list[tuple[Subprogram, int, float]]:
        """Return subprograms with the number of their sites and their price, those that cost most in all first."""
        parts = split(graph, self.limits.largest)
        priced: list[tuple[Subprogram, int, float]] = []
        for sub, sites in zip(parts.subprograms, parts.places, strict=True):
            if self.stop():
                break
            if not self.wanted(sub):
                continue
            if (refusal := too_large(sub, self.limits)) is not None:
                found.refused.append((sub, refusal))
            elif math.isfinite(ms := self._cost(sub, sub.program)):
                priced.append((sub, sites, ms))
            else:
                found.refused.append((sub, Refusal("an operator of it cannot be timed alone")))
        return sorted(priced, key=lambda entry: -entry[1] * entry[2])

    def mutants(
        self, sub: Subprogram, ms: float, until: float, seeds: Sequence[TensorProgram] = ()
    ) -> list[PricedProgram]:
        """Return the cheapest programs that are equal to a subprogram and cost less, the cheapest first.

        Args:
            sub: the subprogram.
            ms: what it costs.
            until: the moment of the clock at which the search ends.
            seeds: programs that are tried first.
        """
        trials = RandomTrials(sub.program, sub.shapes, seed=2)
        queue, kept = [PricedProgram(sub.program, ms)], self._seeded(sub, trials, ms, seeds)
        for number in range(self.rounds):
            now = self.clock()
            end = now + _FIRST_ROUND * (until - now) if number == 0 and self.rounds > 1 else until
            new: dict[TensorProgram, PricedProgram] = {}
            for place, base in enumerate(queue):
                last = self.clock() + (end - self.clock()) / (len(queue) - place)
                for made in self._mutated(base, sub, trials, ms, last, whole=number == 0):
                    if made.program not in kept:
                        new[made.program] = made
            kept |= new
            queue = heapq.nsmallest(self.top, new.values(), key=_ms)
            if not queue or self._is_over(until):
                break
        return [made for made in heapq.nsmallest(self.top, kept.values(), key=_ms) if made.ms < ms]

    def _seeded(
        self, sub: Subprogram, trials: RandomTrials, ms: float, seeds: Sequence[TensorProgram]
    ) -> dict[TensorProgram, PricedProgram]:
        """Return seeds with their repairs, by their programs."""
        found: dict[TensorProgram, PricedProgram] = {}
        for seed in seeds:
            finding = prove(trials, seed, self.limits.keep) if self._cost(sub, seed, ms) < ms else None
            if finding is not None:
                for mutant, made, kind in self._with_repair(Mutant(sub, seed, finding), trials, ms):
                    found[made] = PricedProgram(made, self._cost(sub, made), (_round(kind, mutant),))
        return found

    def _mutated(
        self, base: PricedProgram, sub: Subprogram, trials: RandomTrials, ms: float, until: float, whole: bool
    ) -> Iterator[PricedProgram]:
        """Yield the repaired mutants of a program, or of parts of it, as programs equal to the subprogram."""
        if whole:
            for mutant, program, kind in self._repaired(sub, trials, ms, until):
                yield PricedProgram(program, self._cost(sub, program), (_round(kind, mutant),))
            return
        parts = list(parts_of(base.program, sub.shapes, sub.constants, self.limits.largest))
        for place, (chosen, part) in enumerate(parts):
            end = self.clock() + (until - self.clock()) / (len(parts) - place)
            if self._is_over(end):
                return
            own = RandomTrials(part.program, part.shapes, seed=4)
            for mutant, program, kind in self._repaired(part, own, self._cost(part, part.program), end):
                made = replaced(base.program, chosen, part.inputs, program)
                finding = prove(trials, made)
                if finding is not None and finding.exact:
                    yield PricedProgram(made, self._cost(sub, made), (*base.rounds, _round(kind, mutant)))

    def _repaired(
        self, sub: Subprogram, trials: RandomTrials, ms: float, until: float
    ) -> Iterator[tuple[Mutant, TensorProgram, str]]:
        """Yield the mutants of a subprogram with the programs that repair them. A mutant that costs more than the
        original before its repair is not looked at."""

        def is_over() -> bool:
            return self._is_over(until)

        def is_hopeful(program: TensorProgram) -> bool:
            return self._cost(sub, program, ms) < ms

        for mutant in mutants_of_subprogram(sub, self.limits, is_over, trials, is_hopeful, self.shared):
            yield from self._with_repair(mutant, trials, ms)

    def _with_repair(
        self, mutant: Mutant, trials: RandomTrials, ms: float
    ) -> Iterator[tuple[Mutant, TensorProgram, str]]:
        """Yield a mutant with the program that repairs it, if there is one that costs less than the original of so many
        milliseconds, or little more where it may be mutated again."""
        sub = mutant.subprogram
        if mutant.finding.exact:
            yield mutant, mutant.program, "none"
            return
        case = RepairCase(trials, mutant.program, mutant.finding.wrong, sub.constants)
        most = ms if self.rounds == 1 else _TOLERANCE * ms
        chosen = choose(case, lambda program: self._cost(sub, program, most), self.repairs, most)
        if isinstance(chosen, Repair):
            yield mutant, chosen.program, chosen.kind

    def _cost(self, sub: Subprogram, program: TensorProgram, most: float = math.inf) -> float:
        return price_of_program(program, sub.shapes, sub.constants, self.price, most)

    def _is_over(self, until: float) -> bool:
        return self.stop() or self.clock() >= until


def _ms(made: PricedProgram) -> float:
    return made.ms


def _worth(waiting: list[tuple[Subprogram, int, float]]) -> float:
    return sum(ms * sites for _, sites, ms in waiting) or 1.0


def _round(kind: str, mutant: Mutant) -> dict[str, Any]:
    """Return what a certificate says of a repair and of what was wrong before it, in outputs of which shapes."""
    sub, finding = mutant.subprogram, mutant.finding
    types = types_of(sub.program, sub.shapes)
    boxes = [each[:_BOXES] for each in finding.to_json()["boxes"]]
    shapes = [list(types[value].shape) for value in sub.program.outputs]
    return {"repair": kind, "share_wrong": list(finding.shares), "boxes": boxes, "shapes": shapes}
