"""Queries, keys and values that come out of one product: cut apart before their heads become an axis, where the product
can be cut too (`graph_rewrite.rules.matmul.parallel`).

Exports of timm's and Swin's transformers reshape the product to [batch, length, 3, heads, size], move the 3 to the
front and take its three indices. ONNX Runtime moves that cut back through the Transpose, and copies everything twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.algebra.elimination_shape import RESHAPES
from graph_rewrite.rules.helpers.axes import permutation, reshape, split, transpose
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.slices import slice_ranges

PARTS = 3
"""Number of parts of the product."""
FOLLOWING = (
    "SeparateThreeBiasedMatMuls", "SeparateThreeMatMuls", "FuseShiftedWindowAttention", "FuseMaskedAttention",
    "FuseAttention", "FuseDividedMaskedAttention", "FuseDividedAttention", "FuseRootScaledMaskedAttention",
    "FuseRootScaledAttention", "FuseUnscaledMaskedAttention", "FuseUnscaledAttention", "ScaleOfQueryIntoAttention",
    "PackAttention",
)  # fmt: skip
"""What may follow: the product is cut apart, and attention takes the parts without another copy."""


class _HeadsOfParts(Rule):
    family = "attention"
    symmetric = True
    followed_by = FOLLOWING

    @staticmethod
    def heads(op: PatternBuilder, x: Any, shape: Any) -> Any:
        return op.Transpose(op.Reshape(x, shape, _label="reshaped"), perm=op.attr("perm"), _label="heads")

    @staticmethod
    def indices(m: Match, variables: Sequence[Any]) -> list[int] | Refusal:
        """Return which index along the first axis each of the roots takes; by default they come in order."""
        return list(range(PARTS))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: Ref, *variables: Any) -> Any:
        packed, heads, last = m.value("reshaped"), m.value("heads"), x.rank - 1
        perm, indices = permutation(m.attr("perm"), packed.rank), self.indices(m, variables)
        if isinstance(indices, Refusal):
            return indices
        if last < 0 or packed.shape[: last + 1] != (*x.shape[:last], PARTS) or perm[0] != last:
            return Refusal("the Reshape does not cut the last axis into three parts that come first then")
        if sorted(indices) != list(range(PARTS)) or any(m.root(i).shape != heads.shape[1:] for i in range(PARTS)):
            return Refusal("the parts are not the three indices along the first axis")
        own = (*packed.shape[:last], *packed.shape[last + 1 :])
        order = [axis - (axis > last) for axis in perm[1:]]
        parts = split(op, x, [x.shape[last] // PARTS] * PARTS, axis=last)
        return tuple(transpose(op, reshape(op, parts[i], own), order) for i in indices)


class HeadsOfSlices(_HeadsOfParts):
    """Squeeze(Slice(y, i)) for i = 0, 1, 2 and y = Transpose(Reshape(x, [b, t, 3, h, d]), [2, 0, 3, 1, 4]) =
    Transpose(Reshape(p, [b, t, h, d]), [0, 2, 1, 3]) for p of Split(x)"""

    def source(
        self, op: PatternBuilder, x: Any, shape: Any, s0: Any, e0: Any, a0: Maybe, k0: Maybe, s1: Any, e1: Any,
        a1: Maybe, k1: Maybe, s2: Any, e2: Any, a2: Maybe, k2: Maybe, r0: Values, r1: Values, r2: Values,
    ) -> Any:  # fmt: skip
        y = self.heads(op, x, shape)
        bounds = ((s0, e0, a0, k0), (s1, e1, a1, k1), (s2, e2, a2, k2))
        return tuple(
            op.any_of(RESHAPES)(op.Slice(y, *bound), rest) for bound, rest in zip(bounds, (r0, r1, r2), strict=True)
        )

    @staticmethod
    def indices(m: Match, variables: Sequence[Any]) -> list[int] | Refusal:
        found, heads = list[int](), m.value("heads")
        for i in range(PARTS):
            ranges = slice_ranges(heads, *variables[4 * i : 4 * i + 4])
            if isinstance(ranges, Refusal):
                return ranges
            taken = ranges.pop(0, range(0))
            if len(taken) != 1 or any(other != range(heads.shape[axis]) for axis, other in ranges.items()):
                return Refusal("a slice takes more than one index along the first axis, or cuts another one")
            found.append(taken[0])
        return found


class HeadsOfGathers(_HeadsOfParts):
    """Gather(y, i) for i = 0, 1, 2 and y = Transpose(Reshape(x, [b, t, 3, h, d]), [2, 0, 3, 1, 4]) =
    Transpose(Reshape(p, [b, t, h, d]), [0, 2, 1, 3]) for p of Split(x)"""

    def source(self, op: PatternBuilder, x: Any, shape: Any, i0: Any, i1: Any, i2: Any) -> Any:
        y = self.heads(op, x, shape)
        return tuple(op.Gather(y, i, axis=op.attr(f"axis{number}", 0)) for number, i in enumerate((i0, i1, i2)))

    @staticmethod
    def indices(m: Match, variables: Sequence[Any]) -> list[int] | Refusal:
        rank, found = m.value("heads").rank, [ints(i) for i in variables]
        if any(i is None or len(i) != 1 for i in found) or any(m.attr(f"axis{i}") % rank for i in range(PARTS)):
            return Refusal("the indices are not constants along the first axis")
        return [i[0] % PARTS for i in found if i is not None]


class HeadsOfSplit(_HeadsOfParts):
    """Squeeze(p) for p of Split(Transpose(Reshape(x, [b, t, 3, h, d]), [2, 0, 3, 1, 4])) =
    Transpose(Reshape(p, [b, t, h, d]), [0, 2, 1, 3]) for p of Split(x)"""

    symmetric = False

    def source(
        self, op: PatternBuilder, x: Any, shape: Any, sizes: Maybe, r0: Values, r1: Values, r2: Values
    ) -> Any:  # fmt: skip
        parts = op.Split(self.heads(op, x, shape), sizes, axis=op.attr("axis", 0), _outputs=PARTS)
        return tuple(op.any_of(RESHAPES)(part, rest) for part, rest in zip(parts, (r0, r1, r2), strict=True))

    def check(self, m: Match, x: Ref, shape: Ref, *others: Any) -> Refusal | None:
        along_first = m.attr("axis") % m.value("heads").rank == 0
        return None if along_first else Refusal("the Split is not along the first axis")


RULES = (HeadsOfSlices, HeadsOfGathers, HeadsOfSplit)
