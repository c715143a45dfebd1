"""Polynomial identity testing: two graphs over random elements of a prime field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.soundness.decision.degrees import Bound, error_bound
from graph_rewrite.soundness.domains.domain import DivisorIsZero, NeedsIntegers, Unsupported
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.domains.prime_field import P, PrimeField, key64
from graph_rewrite.soundness.semantics.call import Tensor
from graph_rewrite.soundness.semantics.evaluation import Evaluator, inputs_of

TRIALS = 3
"""Independent evaluations over random elements."""
_CASES = 24
"""Evaluations where truth values or integers are drawn at random: such equalities are tested, not proved."""
_RETRIES = 4
"""The number of times that a trial starts again because a divisor was zero."""


@dataclass(frozen=True, slots=True)
class FieldFinding:
    """The finding of all trials: whether they agreed, and what that shows, in words. `proved` is False where only cases
    were tested; `rational` says that no function was applied, so that a difference refutes the equality."""

    equal: bool
    rational: bool
    proved: bool = False
    shown: str = ""
    error_bound: float = 0.0
    """The error bound of what was shown, by Schwartz and Zippel; 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Two graphs and the interpretation of their constants: `ideal`, see `Interpretation`; `free` and `masks`, see
    `Evaluator`."""

    before: Graph
    after: Graph
    ideal: bool
    free: frozenset[str]
    masks: frozenset[str]

    def compare(self, seed: int) -> FieldFinding:
        """Raise Unsupported where the graphs have no semantics over the field."""
        try:
            return self._trials(seed, integers=False)
        except NeedsIntegers:
            return self._trials(seed, integers=True)

    def _trials(self, seed: int, integers: bool) -> FieldFinding:
        interpretation, trial, drew = Interpretation(self.ideal), 0, integers
        while trial < (_CASES if drew else TRIALS):
            same, field = self._trial(interpretation, key64(seed, trial), integers)
            if not same:
                return FieldFinding(False, field.rational)
            drew, trial = drew or field.drew, trial + 1
        bound = error_bound(self.before, self.after, Interpretation(self.ideal), self.free, self.masks, integers)
        return FieldFinding(
            True, field.rational, not drew, self._shown(bound, interpretation, trial, drew), bound.error(trial)
        )

    def _trial(self, interpretation: Interpretation, seed: int, integers: bool) -> tuple[bool, PrimeField]:
        for attempt in range(_RETRIES):
            field = PrimeField(key64(seed, attempt))
            evaluator = Evaluator(field, interpretation, self.free, self.masks)
            try:
                inputs = inputs_of(self.before, field, seed, integers)
                pairs = zip(evaluator.outputs(self.before, inputs), evaluator.outputs(self.after, inputs), strict=True)
                return all(_same(a, b) for a, b in pairs), field
            except DivisorIsZero:
                continue
        raise Unsupported("a divisor is zero whatever the inputs are")

    def _shown(self, bound: Bound, interpretation: Interpretation, trials: int, drew: bool) -> str:
        parts = [f"{trials} trials over random elements of the field of order {P}, {bound.text(trials)}"]
        if drew:
            parts.append("truth values and indices drawn at random, which tests their cases without covering them")
        if self.free:
            parts.append("for all values of the weights")
        if bound.functions:
            parts.append("functions uninterpreted")
        if interpretation.notes:
            parts.append(f"reading {', '.join(interpretation.notes)}")
        return "; ".join(parts)


def _same(a: Tensor, b: Tensor) -> bool:
    return a.array.shape == b.array.shape and bool(np.array_equal(a.array, b.array))
