"""Verification of one rule: at every instance equal types, an exact method where there is one, and floating point."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.evaluation import run_values
from graph_rewrite.operators.standard_semantics import EvaluationError, UnknownOperatorError
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.certification import Certificate
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.soundness.decision.exact import Decision, decide
from graph_rewrite.soundness.floating.comparison import FloatResult, compare
from graph_rewrite.soundness.floating.inputs import KINDS, InputKind, feeds
from graph_rewrite.soundness.instances.coverage import InstanceCoverage
from graph_rewrite.soundness.instances.enumeration import Instance, instances
from graph_rewrite.soundness.verification.refutation import Refutation, decision_lines, describe, refutation_at
from graph_rewrite.terms.conditions import FieldCounterexample, condition_holds, differs
from graph_rewrite.terms.small_shapes import small_shapes
from graph_rewrite.terms.substitution import Substitution
from graph_rewrite.terms.term_types import TermType

INSTANCES = 128
"""So many instances of a rule are looked at, unless it has fewer. Of twenty planted rules the most elusive shows at
the 69th, three quarters at the first or second."""

FLOATING = "floating-point"
SMALL_SHAPES = "prime-field, small shapes"
"""The method for rules that are data: both sides of the substitution itself at all shapes up to `LARGEST_DIM`, or at a
sample where there are more than 20,000."""
LARGEST_DIM = 4
_ON_ALL_KINDS, _AT_A_TIME = 48, 3


@dataclass(slots=True)
class _Findings:
    """The findings at the instances of a rule so far."""

    count: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    undecided: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    worst: float = 0.0
    bound: float = 0.0
    coverage: InstanceCoverage = field(default_factory=InstanceCoverage)

    def add(self, instance: Instance, decision: Decision, result: FloatResult) -> None:
        self.count += 1
        if decision.verdict == "equal":
            self.methods[decision.method] += 1
            self.bound = max(self.bound, decision.error_bound)
        else:
            self.undecided[decision.detail] += 1
        self.methods[FLOATING] += 1
        self.kinds.update(result.compared)
        self.lost |= result.lost
        self.worst = max(self.worst, result.worst_error)
        self.coverage.add(instance.graph)


def verify(rule: Rule, *, fast: bool, seed: int = 0, limit: int = INSTANCES) -> Certificate | Refutation:
    """Certify a rule, or find out why it can't be certified.

    The rule is checked at instances that `soundness.instances` finds for it: a covering few of them with `fast`, else
    the first `limit`. It is refuted where one side has other types or values than the other.

    Raises:
        UnknownOperatorError: an operator without reference semantics.
    """
    with warnings.catch_warnings():
        # Of the reference evaluator, about values that are not finite.
        warnings.simplefilter("ignore", RuntimeWarning)
        return _verify(rule, fast, seed, limit)


def _verify(rule: Rule, fast: bool, seed: int, limit: int) -> Certificate | Refutation:
    findings = _Findings()
    found = (
        instance for instance in instances(rule.at_any_size, full=not fast, seed=seed) if _is_valid(instance.graph)
    )
    for instance in islice(found, limit):
        before, after = instance.graph, instance.candidate.apply()
        types = _type_difference(before, after)
        if types:
            return refutation_at(rule, instance, after, types)
        decision = decide(before, after, seed=seed)
        if decision.verdict == "unequal":
            reason = f"refuted by {decision.method or 'evaluation'}"
            return refutation_at(rule, instance, after, reason, decision_lines(decision))
        result = compare(before, after, seed=seed, kinds=_kinds(findings.count), lossy=rule.lossy)
        if result.counterexample is not None:
            difference = result.counterexample
            return refutation_at(rule, instance, after, f"refuted by {difference.engine}", describe(difference))
        findings.add(instance, decision, result)
    if isinstance(rule, SubstitutionRule) and not fast:
        equal, found_unequal = _over_small_shapes(rule.substitution, seed)
        findings.methods[SMALL_SHAPES] = equal
        if found_unequal is not None:
            return Refutation(rule.name, rule.equation, f"refuted by {SMALL_SHAPES}", evidence=[str(found_unequal)])
    if not findings.count:
        return Refutation(rule.name, rule.equation, "no instance at which it applies: define cases(self)")
    if not findings.kinds:
        reason = "at no instance and on no kind of inputs is everything finite that the source computes"
        return Refutation(rule.name, rule.equation, f"{reason}: nothing was compared")
    return _certificate(rule, findings, seed)


def _over_small_shapes(substitution: Substitution, seed: int) -> tuple[int, FieldCounterexample | None]:
    """The number of shapes at which both sides are equal at a random point, before the first at which they are not."""
    equal = 0
    for number, shapes in enumerate(small_shapes(substitution, LARGEST_DIM, seed)):
        types = {i: TermType(shape) for i, shape in shapes.items()}
        if condition_holds(substitution, types, substitution.conditions):
            different = differs(substitution, shapes, seed=seed + number)
            if different is not None:
                return equal, different
            equal += 1
    return equal, None


def _is_valid(graph: Graph) -> bool:
    """Return whether a source graph can be run and gives elements at all: onnx's inference lets some pass that cannot,
    as where channels do not fit a number of groups or no window fits into an image."""
    try:
        with np.errstate(all="ignore"):
            values = run_values(graph, feeds(graph, KINDS[0], 0))
    except UnknownOperatorError:
        raise
    except EvaluationError:
        return False
    declared = (graph.types.get(value) for value in values)
    return all(t is None or (a.shape == t.shape and a.size > 0) for a, t in zip(values.values(), declared, strict=True))


def _kinds(number: int) -> Sequence[InputKind]:
    """Kinds of inputs for an instance: all of them for the first ones, then three at a time in turn."""
    if number < _ON_ALL_KINDS:
        return KINDS
    return [KINDS[(_AT_A_TIME * number + i) % len(KINDS)] for i in range(_AT_A_TIME)]


def _certificate(rule: Rule, findings: _Findings, seed: int) -> Certificate:
    reasons = [f"{reason} ({count} of {findings.count} instances)" for reason, count in findings.undecided.items()]
    return Certificate(
        rule=rule.name,
        digest=rule.digest,
        origin=rule.origin,
        verdict="tested" if reasons else "proved",
        reason="; ".join(sorted(reasons)),
        seed=seed,
        instances=findings.count,
        methods=dict(sorted(findings.methods.items())),
        error_bound=decade(findings.bound) if findings.bound else "",
        worst_error=decade(findings.worst),
        kinds=dict(findings.kinds),
        lost=tuple(sorted(findings.lost | rule.lossy)),
        shapes=findings.coverage.shapes(),
        parameters=findings.coverage.parameters(),
    )


def decade(error: float) -> str:
    """An error rounded up to a power of ten: what machines may agree on."""
    return f"1e{math.ceil(math.log10(error)):+03d}" if error > 0 else "0"


def _type_difference(before: Graph, after: Graph) -> str:
    """Return what is wrong with the types of the outputs; empty where they agree."""
    for name, a, b in zip(before.output_names, before.outputs, after.outputs, strict=True):
        if before.types[a] != after.types[b]:
            return f"output {name} is {after.types[b]} instead of {before.types[a]}"
    return ""
