"""Proofs by z3: two outputs differ nowhere, element by element, or where they do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import z3

from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.domains.effort import Effort
from graph_rewrite.soundness.domains.reals import axioms

_LARGEST_SHARED = 4000
"""Terms of up to so many nodes are compared with those proved before, up to the names of variables."""

_MARGIN = 8
"""A difference of at least the two elements' magnitude over this one stands out from rounding."""


@dataclass(frozen=True)
class ProofOutcome:
    """`proved`, or the `model` (values of variables by name) at which two elements differ, or neither: z3 gave up."""

    proved: bool
    model: Mapping[str, Fraction | bool] | None = None
    queries: int = 0
    reason: str = ""


def begin_anew() -> None:
    """Give z3 an empty context. How many steps a proof takes, and so whether it ends within its limit, depends on all
    terms that a context has seen: a certificate must not depend on what was proved before. No terms may be in use."""
    z3.z3._main_ctx = None


class Prover:
    """Proves equalities of terms as long as `effort` lasts."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._proved: set[str] = set()
        self.queries = 0

    def equal(self, first: Array, second: Array) -> ProofOutcome:
        """Prove that two arrays of elements of `Reals` are equal wherever no divisor is zero, or find where they
        differ."""
        for a, b in zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True):
            outcome = self._element(a, b)
            if not outcome.proved:
                return outcome
        return ProofOutcome(True, queries=self.queries)

    def _element(self, a: Any, b: Any) -> ProofOutcome:
        if not any(isinstance(x, z3.ExprRef) for x in (a, b)):
            return ProofOutcome(a == b, None if a == b else {}, self.queries, "two constants differ")
        if isinstance(a, float) or isinstance(b, float):
            return ProofOutcome(False, reason="one side is infinite")
        a, b = (z3.Q(x.numerator, x.denominator) if isinstance(x, Fraction) else x for x in (a, b))
        if not isinstance(a, bool) and not isinstance(b, bool) and a.eq(b):
            return ProofOutcome(True)
        claim = z3.simplify(a != b)
        if z3.is_false(claim):
            return ProofOutcome(True)
        facts, variables, size = _facts(claim)
        shared = _renamed(claim, variables).sexpr() if size <= _LARGEST_SHARED else ""
        if shared and shared in self._proved:
            return ProofOutcome(True)
        outcome = self._ask(claim, facts, variables)
        if outcome.model is not None and a.sort() == z3.RealSort():
            gap, size = z3.Abs(a - b), z3.Abs(a) + z3.Abs(b)
            clear = self._ask(z3.And(claim, _MARGIN * gap >= size), facts, variables)
            outcome = outcome if clear.model is None else clear
        if outcome.proved and shared:
            self._proved.add(shared)
        return outcome

    def _ask(self, claim: Any, facts: Sequence[Any], variables: Sequence[Any]) -> ProofOutcome:
        if self._effort.steps <= 0:
            return ProofOutcome(False, reason="z3 gave up: no steps are left")
        self.queries += 1
        solver = z3.Solver()
        solver.set("rlimit", self._effort.steps)
        solver.add(claim, *facts)
        before = _count(solver)
        answer = solver.check()
        self._effort.steps -= _count(solver) - before
        if answer == z3.unsat:
            return ProofOutcome(True)
        if answer == z3.unknown:
            return ProofOutcome(False, reason=f"z3 gave up: {solver.reason_unknown()}")
        model = solver.model()
        values = {str(v): _number(model.eval(v, model_completion=True)) for v in variables}
        return ProofOutcome(False, {name: value for name, value in values.items() if value is not None})


def _count(solver: z3.Solver) -> int:
    """Steps that z3 took so far, for all solvers."""
    return int(solver.statistics().get_key_value("rlimit count"))


def _nodes(term: Any) -> Iterator[Any]:
    """Every different node of a term, once."""
    seen, stack = set[int](), [term]
    while stack:
        node = stack.pop()
        if node.get_id() not in seen:
            seen.add(node.get_id())
            yield node
            stack.extend(reversed(node.children()))


def _facts(claim: Any) -> tuple[list[Any], list[Any], int]:
    """Return what holds for the functions, divisors and irrational numbers in a term; its variables; its number of
    nodes."""
    facts, variables, size = list[Any](), list[Any](), 0
    for node in _nodes(claim):
        size += 1
        kind, children = node.decl().kind(), node.children()
        if kind == z3.Z3_OP_DIV and not z3.is_rational_value(children[1]):
            facts.append(children[1] != 0)
        elif kind == z3.Z3_OP_UNINTERPRETED and children:
            facts.extend(axioms(node.decl().name(), node, *children))
        elif kind == z3.Z3_OP_UNINTERPRETED:
            facts.extend(_irrational(node))
            variables.append(node)
    return facts, variables, size


def _irrational(constant: Any) -> list[Any]:
    found = re.fullmatch(r"sqrt (\d+)", str(constant))
    if found:
        return [constant > 0, constant * constant == int(found[1])]
    return [constant > z3.Q(797884, 10**6), constant < z3.Q(797885, 10**6)] if str(constant) == "sqrt(2/pi)" else []


def _renamed(claim: Any, variables: Sequence[Any]) -> Any:
    """The term with its variables numbered, but for irrational numbers."""
    names = [v for v in variables if not str(v).startswith("sqrt")]
    return z3.substitute(claim, [(v, z3.Const(f"v{i}", v.sort())) for i, v in enumerate(names)])


def _number(value: Any) -> Fraction | bool | None:
    if z3.is_bool(value):
        return bool(z3.is_true(value))
    if z3.is_algebraic_value(value):
        value = value.approx(20)
    if not z3.is_rational_value(value):
        return None
    return Fraction(value.numerator_as_long(), value.denominator_as_long())


def feeds_of(
    model: Mapping[str, Fraction | bool], inputs: Mapping[str, tuple[tuple[int, ...], Any]]
) -> dict[str, Array]:
    """Inputs (by name: shape and numpy element type) at the point that a model names; 0 where it says nothing."""
    feeds = {name: np.zeros(shape, dtype=dtype) for name, (shape, dtype) in inputs.items()}
    for variable, value in model.items():
        name, bracket, indices = variable.rpartition("[")
        if bracket and name in feeds:
            place = tuple(int(part) for part in indices.rstrip("]").split(",") if part.strip())
            feeds[name][place] = float(value)
    return feeds
