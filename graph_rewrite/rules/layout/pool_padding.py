"""Padding as an attribute of the pool behind it, which then stays in ONNX Runtime's blocked layout."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.element_types import is_float


class _Padding(Rule):
    family = "channel_padding"


class PadIntoPool(_Padding):
    """AveragePool(Pad(x, zeros around spatial axes)) = AveragePool(x, pads, zeros counted)"""

    def source(self, op: PatternBuilder, x: Any, pads: Const, value: MaybeConst, axes: MaybeConst) -> Any:
        padded = op.Pad(x, pads, value, axes, mode="constant", _label="pad")
        return op.AveragePool(padded, kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Refusal | None:
        if value is not None and (not is_float(value) or value.scalar() != 0.0):
            return Refusal("the padding is not zero")
        amounts, attrs = _spatial_pads(x, pads, axes), m.attrs("pool")
        if amounts is None or min(amounts) < 0:
            return Refusal("the padding is not of the spatial axes alone, or is negative")
        if any(attrs.get("pads", ())) or attrs.get("auto_pad", "NOTSET") != "NOTSET" or attrs.get("ceil_mode", 0):
            return Refusal("the pool pads or rounds up itself")
        if any(d != 1 for d in attrs.get("dilations", ())):
            return Refusal("the pool has dilations")
        kernel = (*m.attr("kernel"), *m.attr("kernel"))
        if any(amount >= k for amount, k in zip(amounts, kernel, strict=True)):
            return Refusal("the padding is as large as the window")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Any:
        return op.AveragePool(x, **{**m.attrs("pool"), "pads": _spatial_pads(x, pads, axes), "count_include_pad": 1})


def _spatial_pads(x: Ref, pads: Ref, axes: Ref | None) -> tuple[int, ...] | None:
    """Return the amounts of a Pad as attribute `pads` of a pool; None where unknown, or where other axes are padded."""
    amounts, named = ints(pads), range(x.rank) if axes is None else ints(axes)
    if amounts is None or named is None or x.rank < 3 or len(amounts) != 2 * len(named):
        return None
    found = [[0] * x.rank, [0] * x.rank]
    for i, axis in enumerate(named):
        found[0][axis % x.rank], found[1][axis % x.rank] = amounts[i], amounts[len(named) + i]
    return None if any((*found[0][:2], *found[1][:2])) else (*found[0][2:], *found[1][2:])


RULES = (PadIntoPool,)
