"""The limit of the work that a proof takes, counted and not timed: a certificate says the same on any machine."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.soundness.domains.domain import Unsupported


@dataclass(slots=True)
class Effort:
    """The terms that may still be built, and the steps that z3 may still take, in units of its `rlimit`.

    A million steps take z3 about a second; building a hundred thousand terms takes about as long. With more steps a
    few proofs over irrational numbers come to computations of minutes that z3 counts as one step.
    """

    terms: int = 500_000
    steps: int = 1_000_000

    def build(self, terms: int) -> None:
        """Count terms that are about to be built.

        Raises:
            Unsupported: more than were left.
        """
        self.terms -= terms
        if self.terms < 0:
            raise Unsupported("the graph is too large to be written out as terms")
