"""Rules: equalities of two patterns with a condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from graph_rewrite.ir.hashing import digest
from graph_rewrite.rewriting.digests import code_digest
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Pattern, build_pattern
from graph_rewrite.rewriting.replacement import Replacement, ReplacementBuilder

SIGNED_ZERO = "the sign of zero"
"""In `Rule.lossy`: a zero of the other sign may come out, and after it the opposite infinity."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason why a rule did not apply where it nearly did."""

    reason: str
    rule: str = ""
    site: str = ""

    def __str__(self) -> str:
        return f"{self.rule} at {self.site}: {self.reason}" if self.rule else self.reason


class Rule:
    """A substitution. The docstring of a subclass is its equation.

    class DoubleTranspose(Rule):
        '''Transpose(Transpose(x, p), q) = Transpose(x, p after q)'''

        family = "transpose"

        def source(self, op, x):
            return op.Transpose(op.Transpose(x, perm=op.attr("p")), perm=op.attr("q"))

        def check(self, m, x):
            return None if m.attr("p") else Refusal("the inner permutation is not given")

        def target(self, op, m, x):
            return op.Transpose(x, perm=tuple(m.attr("p")[axis] for axis in m.attr("q")))

    `source(op, *variables)` builds the pattern, `check(m, *variables)` returns a Refusal or None, `target(op, m,
    *variables)` builds what replaces the roots: a value per root, or a Refusal. In both, variables are `Ref`s.

    `check` and `target` must not raise: an exception is a bug of the rule (`rewriting.faults`), but for an
    `InvalidRewriteError`, such as that of an operator that does not accept its inputs, which refuses the site. A rule
    outside this repository may have a method `cases(self)` that yields source graphs for the verifier; those of the
    registered rules stand in `graph_rewrite/soundness/cases`.
    """

    family: str = ""
    origin: str = "hand"
    """Origin of the rule: `hand`, `generated` or `taso`."""
    symmetric: bool = False
    """The roots are interchangeable: match them in one order only."""
    shared_interior: ClassVar[bool] = False
    """Interior values may be used elsewhere; their nodes then stay."""
    lossy: ClassVar[frozenset[str]] = frozenset()
    """Properties that the target does not keep: `SIGNED_ZERO`, or kinds of inputs (`soundness.floating.values`) on
    which it may differ. The certificate states them."""

    error_growth: ClassVar[float] = 0.0
    """Largest rounding error that one application adds, relative to the output's scale, where it is well above that of
    the operators replaced."""
    carried_by: ClassVar[tuple[str, ...]] = ()
    """Names of rules that move on, through the operators around it, what this rule begins, in a direction that comes to
    an end. A search may apply them as long as they match: the gain shows only where the last one stops."""
    followed_by: ClassVar[tuple[str, ...]] = ()
    """Names of rules that make this one pay, in the order in which they apply: a search by windows takes them too
    where they match, before it judges."""
    covers_parts: ClassVar[bool] = False
    """The rule takes in a part of the model, as large as it can be. A window of a few operators does not hold one, so
    searches by windows try the rule in the whole graph, on what they have put together."""

    by_structure: ClassVar[bool] = False
    """The target reads operators, attributes and types of the match, and which values are constants; neither elements
    of constants nor what surrounds the match. So what was built at one match serves at all of the same structure."""

    examples: ClassVar[Mapping[str, Sequence[float]]] = {}
    """Elements of constants at which the rule applies, by variable, for the verifier; needed where the usual ones do
    not do."""
    setting: Callable[..., Any] | None = None
    """A larger pattern in whose occurrences the rule applies, where `source` alone does not suffice for the verifier.
    It is written like `source`, for conditions that look at what surrounds a match."""

    @property
    def name(self) -> str:
        return type(self).__name__

    @property
    def at_any_size(self) -> Rule:
        """Return the rule without conditions that only keep it to sizes at which it may pay: what the verifier looks
        at, since it proves at small sizes."""
        return self

    def as_in(self, replacement: Replacement) -> Rule:
        """Return the rule that makes the choices by size which this one made in a replacement, such as a number of
        bands, whatever the size: for the same rewrite at other shapes."""
        return self

    @property
    def embedded(self) -> Mapping[str, Any] | None:
        """Return what a recording must hold of the rule for its rewrites to be found again, as plain values; None where
        RewriteGym has the rule."""
        return None

    @property
    def equation(self) -> str:
        """Return the docstring's first paragraph, on one line."""
        return " ".join((type(self).__doc__ or "").split("\n\n")[0].split())

    @cached_property
    def pattern(self) -> Pattern:
        return build_pattern(self.source)

    @cached_property
    def digest(self) -> str:
        """Return a digest of the rule's code, with that of its bases and of the helpers they use, so that a certificate
        can tell that it changed."""
        bases = tuple(kind for kind in type(self).__mro__[1:] if issubclass(kind, Rule) and kind is not Rule)
        return digest(self.name, code_digest(type(self), bases))

    def source(self, op: Any, *variables: Any) -> Any:
        raise TypeError(f"rule {self.name} has no source pattern: define source(self, op, ...)")

    def check(self, m: Match, *variables: Any) -> Refusal | None:
        return None

    def target(self, op: ReplacementBuilder, m: Match, *variables: Any) -> Any:
        raise TypeError(f"rule {self.name} has no target: define target(self, op, m, ...)")

    def __repr__(self) -> str:
        return f"<Rule {self.name}: {self.equation}>"
