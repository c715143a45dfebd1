"""Elimination: operators that do nothing, or undo each other."""

from __future__ import annotations

from typing import Any

from graph_rewrite.matching import Match
from graph_rewrite.patterns import Const, PatternBuilder, Scalar, Values
from graph_rewrite.region import Ref, RegionBuilder
from graph_rewrite.rule import Refusal, Rule


class _Elimination(Rule):
    family = "elimination"


class DropIdentity(_Elimination):
    """Identity(x) = x"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Identity(x)

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        return x


class ComposeTransposes(_Elimination):
    """Transpose(Transpose(x, p), q) = Transpose(x, q after p)"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Transpose(op.Transpose(x, perm=op.attr("p")), perm=op.attr("q"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if m.attr("p") and m.attr("q") else Refusal("a permutation is not given")

    def target(self, op: RegionBuilder, m: Match, x: Ref) -> Any:
        perm = tuple(m.attr("p")[axis] for axis in m.attr("q"))
        return x if perm == tuple(range(x.rank)) else op.Transpose(x, perm=perm)


RULES = (DropIdentity, ComposeTransposes)
