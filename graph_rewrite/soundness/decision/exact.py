"""The decision whether two graphs compute the same function, exact, over the shapes that they have.

First over random elements of a prime field, functions uninterpreted; what needs the order of the reals or properties of
functions goes to z3. A refutation is confirmed by the float64 reference semantics, or by exact rational arithmetic.
"""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.soundness.decision.counterexample import search, signature_difference
from graph_rewrite.soundness.decision.identity_testing import FieldFinding, Setting
from graph_rewrite.soundness.decision.real_arithmetic import prove, search_exactly
from graph_rewrite.soundness.decision.verdict import Decision
from graph_rewrite.soundness.domains.domain import Unsupported
from graph_rewrite.soundness.domains.effort import Effort
from graph_rewrite.soundness.semantics.weights import masks, weights

__all__ = ["Decision", "decide"]

_CASES = 5
"""So many times fewer terms may be built to prove what the field has tested at random truth values."""
_ROUNDED = (
    "the two differ as exact functions, but by less than the rounding of constants explains: a literal was rounded to "
    "float32, so this is left to floating point"
)


def decide(before: Graph, after: Graph, *, seed: int = 0, effort: Effort | None = None) -> Decision:
    """Decide whether `before` and `after`, graphs of the same inputs, compute the same outputs at every input.

    Floating-point elements are real numbers here and integers have no bounds, so that rounding and overflow are left
    aside, as are NaN and inputs at which a divisor is zero. "equal" holds for these shapes and, where the detail says
    so, for all values of the weights; the detail of a proof over the field bounds its error (Schwartz-Zippel).
    "unequal" comes with a counterexample, or with the difference of types in the detail. "unknown" says why.
    `effort` bounds the proof by z3; it is used up.
    """
    effort = Effort() if effort is None else effort
    difference = signature_difference(before, after)
    if difference is not None:
        return Decision("unequal", "", difference)
    hidden = masks(before, after)
    finding, unsupported = _over_field(before, after, hidden, seed)
    if finding is not None and finding.equal:
        return _accepted(before, after, finding, Effort(effort.terms // _CASES, effort.steps), hidden)
    rational = finding is not None and finding.rational
    found = search(before, after, seed)
    if found is not None:
        by = "the field, and by the reference semantics at small inputs" if rational else "the reference semantics"
        return Decision("unequal", "prime-field" if rational else "", f"refuted by {by}", found)
    if rational:
        found = search_exactly(before, after, seed)
        if found is None:
            return Decision("unknown", "", _ROUNDED)
        text = "refuted by the field, and by exact rational arithmetic at small inputs"
        return Decision("unequal", "prime-field", text, found)
    return Decision("unknown", "", unsupported) if finding is None else prove(before, after, effort, hidden)


def _over_field(before: Graph, after: Graph, hidden: frozenset[str], seed: int) -> tuple[FieldFinding | None, str]:
    """Return the finding over the field under the first interpretation of constants by which the graphs are equal, else
    under the last;
    None, and why, where the graphs have no meaning over the field."""
    free, none = weights(before), frozenset[str]()
    found, unsupported = None, ""
    for ideal, variables in dict.fromkeys([(False, free), (False, none), (True, free), (True, none)]):
        try:
            found = Setting(before, after, ideal, variables, hidden).compare(seed)
        except Unsupported as reason:
            unsupported = unsupported or str(reason)
            continue
        if found.equal:
            break
    return found, unsupported


def _accepted(before: Graph, after: Graph, finding: FieldFinding, effort: Effort, hidden: frozenset[str]) -> Decision:
    if not finding.proved:
        proof = prove(before, after, effort, hidden)
        if proof.verdict != "unknown":
            return proof
    return Decision("equal", "prime-field", finding.shown, error_bound=finding.error_bound)
