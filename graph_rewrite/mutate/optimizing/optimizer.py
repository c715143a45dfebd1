"""The optimizer: mutants of mutants, of which the cheapest ones become rules (PET, OSDI'21, algorithm 2)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.ir.graph import Graph
from graph_rewrite.mutate.generation.shared_sketches import SharedSketches
from graph_rewrite.mutate.mutant_rules import MutantRule, mutant_rule
from graph_rewrite.mutate.optimizing.pricing import Prices, price_of_program
from graph_rewrite.mutate.optimizing.rounds import Means, PricedProgram, PricedPrograms, Rounds, ms_of
from graph_rewrite.mutate.optimizing.seeds import seeds_of
from graph_rewrite.mutate.optimizing.store import MutantStore, StoredPrograms
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import REPAIRS, Kind, RepairMethod
from graph_rewrite.mutate.search import Limits, too_large
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.rewriting.rule import Refusal, Rule

ROUNDS = 4
"""How often mutants are mutated, PET's r."""
TOP = 3
"""Programs of a subprogram that go on, PET's K."""


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
    `cut` of those that were searched were cut short. `complete` is False where one was, or where the search ended
    before it came to all."""

    rules: list[FoundRule] = field(default_factory=list)
    refused: list[tuple[Subprogram, Refusal]] = field(default_factory=list)
    searched: int = 0
    cut: int = 0
    complete: bool = False

    def __str__(self) -> str:
        cut = f" ({self.cut} of them cut short)" if self.cut else ""
        more = "" if self.complete else "; more time may find more"
        return f"subprograms searched: {self.searched}{cut}, mutants that cost less: {len(self.rules)}{more}"

    def best_first(self) -> list[MutantRule]:
        """Return the rules, those that save most first."""
        return [found.rule for found in sorted(self.rules, key=lambda found: -found.saved_ms)]


@dataclass(frozen=True, slots=True)
class Optimizer:
    """Searches the subprograms of a graph for mutants that cost less, the dearest first.

    Args:
        prices: milliseconds of operators alone.
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

    prices: Prices
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
            made = self._kept(sub, ms, share, seeds.get((sub.program, sub.shapes), ()))
            found.cut += not made.complete
            for each in made.programs:
                rule = mutant_rule(graph, sub, each.program, {"rounds": list(each.rounds)}, each.proof)
                if isinstance(rule, MutantRule):
                    found.rules.append(FoundRule(rule, each.ms, ms, sites))
        found.complete = not found.cut and not self.stop()
        return found

    def _kept(self, sub: Subprogram, ms: float, seconds: float, seeds: Sequence[TensorProgram]) -> PricedPrograms:
        """Return the mutants that a search of so many seconds gives: those of an earlier one that took as long, or
        came to its end, where there was one."""
        known = None if self.store is None else self.store.get(sub)
        if known is not None and known.seconds >= seconds:
            priced = [PricedProgram(made, self._cost(sub, made, ms), rounds) for made, rounds in known.programs]
            return PricedPrograms(
                sorted((made for made in priced if made.ms < ms), key=ms_of), known.seconds == math.inf
            )
        found = self.mutants(sub, self.clock() + seconds, seeds)
        if self.store is not None and not self.stop():
            programs = tuple((made.program, made.rounds) for made in found.programs)
            self.store.put(sub, StoredPrograms(programs, math.inf if found.complete else seconds))
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

    def mutants(self, sub: Subprogram, until: float, seeds: Sequence[TensorProgram] = ()) -> PricedPrograms:
        """Return the cheapest programs that are equal to a subprogram and cost less, each proved at its real shapes.

        Args:
            sub: the subprogram.
            until: the moment of the clock at which the search ends, but for the proofs of what was found.
            seeds: programs that are tried first.
        """
        means = Means(
            self.prices, self.limits, self.rounds, self.top, self.stop, self.clock, self.repairs, self.shared
        )  # fmt: skip
        return Rounds(sub, self._cost(sub, sub.program), means).run(until, seeds)

    def _cost(self, sub: Subprogram, program: TensorProgram, most: float = math.inf) -> float:
        return price_of_program(program, sub.shapes, sub.constants, self.prices, most)


def _worth(waiting: list[tuple[Subprogram, int, float]]) -> float:
    return sum(ms * sites for _, sites, ms in waiting) or 1.0
