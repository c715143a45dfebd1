"""Constant map: where the difference or the factor does not depend on what is fed at run time, one Add or Mul mends
it."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from graph_rewrite.mutate.field import outputs_of
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.repairs.draft import Draft, reduced
from graph_rewrite.mutate.repairs.repair import Cost, Repair, RepairCase, cheapest
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.soundness.domains.limbs import P, Residues

LARGEST_MAP = 1 << 16
"""Elements of a factor that varies."""
_NUMBERS = frozenset(("pool", "averaging", "constant", "add"))
_LARGEST_TERM = 1024
"""Terms of a factor at most: one residue in 1,600 is such a fraction, and no residue is two."""


def map_repair(case: RepairCase, cost: Cost) -> Repair | Refusal:
    """Return the mutant times a constant factor, or plus what depends on constants alone. The latter is folded where
    the program is built, since all its inputs are known then."""
    if not any(case.wrong):
        return Refusal("nothing is wrong")
    if len(case.mutant.outputs) > 1:
        return Refusal("a map is for a program of one output")
    programs: list[TensorProgram] = []
    scaled, shifted = _may_be_scaled(case), _may_be_shifted(case)
    if scaled or shifted:
        [made] = outputs_of(case.mutant, case.trials.inputs(0))
        programs += _scaled(case, made) if scaled else ()
        programs += _shifted(case, made) if shifted else ()
    return cheapest("map", programs, cost, "neither the difference nor the factor is constant")


def _may_be_scaled(case: RepairCase) -> bool:
    """Tell whether there is an operator that brings numbers in, or adds a value to itself: others give sums of products
    of inputs, each once."""
    return any(step.op in _NUMBERS for step in (*case.original.steps, *case.mutant.steps))


def _may_be_shifted(case: RepairCase) -> bool:
    """Tell whether either program has terms without anything that is fed: if not, both are zero where that is zero."""
    for program in (case.original, case.mutant):
        output = types_of(program, case.shapes)[program.outputs[0]]
        if any(case.constants.issuperset(monomial) for monomial in output.monomials):
            return True
    return False


def _scaled(case: RepairCase, made: Residues) -> Iterator[TensorProgram]:
    """Yield the mutant times the factors that it misses in one trial, where they are fractions of small terms."""
    if (made == 0).any():
        return
    numbers = reduced(case.trials.outputs(0)[0] * inverses(made) % P)
    if numbers.size > LARGEST_MAP:
        return
    residues, places = np.unique(numbers, return_inverse=True)
    fractions = [fraction_of(residue) for residue in residues.tolist()]
    if None in fractions:
        return
    draft = Draft(case.shapes)
    value = draft.include(case.mutant, range(case.mutant.count))[case.mutant.outputs[0]]
    entries = np.array(fractions, dtype=object)[places.reshape(-1)].reshape(numbers.shape)
    yield draft.finish([draft.add("mul", value, draft.constant(value, entries))])


def _shifted(case: RepairCase, made: Residues) -> Iterator[TensorProgram]:
    """Yield the mutant plus the difference that there is where all that is fed is zero, if that is the difference in
    one trial as well."""
    draft = Draft(case.shapes)
    mutant, original = case.mutant, case.original
    fed = [value for value in range(mutant.count) if value not in case.constants]
    like = min(case.constants, default=0)
    zeros = {value: draft.constant(like, np.zeros(case.shapes[value], dtype=np.int64)) for value in fed}
    at_zero = [zeros.get(value, value) for value in range(mutant.count)]
    wanted_at_zero = draft.include(original, at_zero)[original.outputs[0]]
    made_at_zero = draft.include(mutant, at_zero)[mutant.outputs[0]]
    minus = draft.add("mul", made_at_zero, draft.constant(like, np.array(-1)))
    difference = draft.add("add", wanted_at_zero, minus)
    [found] = outputs_of(draft.finish([difference]), case.trials.inputs(0))
    if np.array_equal((made + found) % P, case.trials.outputs(0)[0]):
        value = draft.include(mutant, range(mutant.count))[mutant.outputs[0]]
        yield draft.finish([draft.add("add", value, difference)])


def inverses(residues: Residues) -> Residues:
    """Return the inverses of residues that are not zero, by Fermat's little theorem."""
    result, power, exponent = np.ones_like(residues), residues, P - 2
    while exponent:
        result = result * power % P if exponent & 1 else result
        power, exponent = power * power % P, exponent >> 1
    return result


def fraction_of(residue: int) -> Fraction | None:
    """Return the fraction of small terms that a residue stands for (Wang 1981, by Euclid's algorithm); None where there
    is none."""
    a, b, x, y = P, residue, 0, 1
    while b > _LARGEST_TERM:
        quotient = a // b
        a, b, x, y = b, a - quotient * b, y, x - quotient * y
    return None if not 0 < abs(y) <= _LARGEST_TERM else Fraction(b, y)
