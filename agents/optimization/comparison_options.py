"""The options that say how a result is compared with its original: the same for every command that compares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tyro

from graph_rewrite.task.limits import ResultLimits


# Without slots: a class of options may inherit from this one and from others.
@dataclass(frozen=True)
class ComparisonOptions:
    """Options of the comparison: how far outputs may differ, on which inputs, and which values must be kept."""

    error_budget: float | None = None
    """Largest difference of any output on several inputs, relative to its scale (default 1e-4 in float32)."""
    rtol: float | None = None
    """With --atol, a further limit for every element of an output, as in numpy.allclose."""
    atol: float | None = None
    """See --rtol; where one of the two is given alone, the other is 0."""
    strict: bool = False
    """No rules or settings that do not keep NaN, infinities, denormals or the sign of zero."""
    input_data: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """An .npz file (or a glob) with an array per input, to measure and to compare with; may be repeated."""

    def limits_with(self, **further: Any) -> ResultLimits:
        """Return these limits with further ones, by the fields of `ResultLimits`.

        Raises:
            UserError: a limit that makes no sense.
        """
        return ResultLimits(error_budget=self.error_budget, rtol=self.rtol, atol=self.atol, **further)
