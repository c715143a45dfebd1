"""The start and the result of a repair: a mutant with its wrong boxes, and a program that is equal to the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.equivalence import RandomTrials
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.rewriting.rule import Refusal

Kind = Literal["map", "gap", "halo", "recompute"]
Cost = Callable[[TensorProgram], float]
"""The cost of a program at the shapes in use; less is better."""


@dataclass(frozen=True, slots=True)
class RepairCase:
    """A mutant that differs from its original.

    Args:
        trials: the program to be equal to, with its outputs at random inputs, shared by all its mutants.
        mutant: a program of the same inputs, and of outputs of the same shapes.
        wrong: per output, disjoint boxes that hold every position at which the two differ.
        constants: inputs that are known before run time, such as weights. What depends on them alone is folded.
    """

    trials: RandomTrials
    mutant: TensorProgram
    wrong: tuple[tuple[Box, ...], ...]
    constants: frozenset[int] = frozenset()

    @property
    def original(self) -> TensorProgram:
        return self.trials.original

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the inputs."""
        return self.trials.shapes


@dataclass(frozen=True, slots=True)
class Repair:
    """A program that is meant to be equal to the original; `cost` is that of all of it."""

    kind: Kind
    program: TensorProgram
    cost: float


def cheapest(kind: Kind, programs: Iterable[TensorProgram], cost: Cost, otherwise: str) -> Repair | Refusal:
    """Return the repair of least cost, the first of equal ones; a Refusal with the reason `otherwise` where there is
    none."""
    found = [Repair(kind, program, cost(program)) for program in dict.fromkeys(programs)]
    return min(found, key=lambda repair: repair.cost) if found else Refusal(otherwise)
