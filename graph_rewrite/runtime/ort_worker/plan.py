"""Plans: limits on the work of one measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Plan:
    """Limits of one measurement. It ends when the 95% interval of the speed-up is narrow enough, or on a limit.

    A block is one session instance of each side, timed in turn. Blocks repeat because identical sessions of one
    model differ by up to 1.3% (memory placement), which no number of runs inside one block can show.
    """

    instances: int = 1
    """Most session instances per side."""
    min_instances: int = 1
    """Session instances per side that are timed whatever the budget says."""
    min_pairs: int = 5
    """Fewest pairs (one run of each side) per block."""
    max_pairs: int = 40
    """Most pairs per block."""
    warmup: int = 1
    """Untimed runs of each side before the pairs of a block; one, on the CPU, where a run takes long, but two in a new
    session."""
    target_ci_width: float = 0.07
    """Stop once the interval is at most this wide, relative to the speed-up (0.02 is plus or minus 1%)."""
    budget_s: float = 0.3
    """Seconds after which no further pair or block is begun, once the minimum is reached."""
    patience_s: float = 0.0
    """Seconds for which the pairs of a block go on beyond its budget, as long as they tell the ratio less well than
    sessions differ: on a machine that runs other work."""

    def __post_init__(self) -> None:
        if not 1 <= self.min_instances <= self.instances:
            raise ValueError(
                f"Plan: min_instances must lie in 1..instances ({self.instances}), got {self.min_instances}"
            )
        if not 1 <= self.min_pairs <= self.max_pairs:
            raise ValueError(f"Plan: min_pairs must lie in 1..max_pairs ({self.max_pairs}), got {self.min_pairs}")
        if min(self.warmup, self.budget_s, self.patience_s, self.target_ci_width) < 0:
            raise ValueError(f"Plan: warmup, budget_s, patience_s and target_ci_width must not be negative, got {self}")

    @property
    def key(self) -> str:
        """Stable text that tells two plans apart."""
        return json.dumps(self.to_json(), sort_keys=True)

    def without_patience(self) -> Self:
        """Return the plan for a graph and itself, whose ratio is known to be 1."""
        return replace(self, patience_s=0.0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        return cls(**values)


# 0.4 s for a model of 20 ms and 1.5 s for one of 110 ms, with one session a side, of which the baseline's is kept open.
# A model of 1 ms has time for several: one pair of sessions can't tell a gain of 3% from none.
# Where other work runs, five pairs of a model of 70 ms tell its ratio within 8%, and twice as many take little beside
# building and opening it.
SCREEN = Plan(instances=4, target_ci_width=0.025, patience_s=1.5)

# 4 to 8 fresh sessions a side: 5 to 8 s for a model of 110 ms, session builds included.
FULL = Plan(instances=8, min_instances=4, min_pairs=3, max_pairs=40, target_ci_width=0.015, budget_s=6.0)

JUDGE = Plan(instances=16, min_instances=6, min_pairs=5, max_pairs=40, target_ci_width=0.015, budget_s=45.0)
"""The plan of the measurement that a result is reported with. A model whose run takes half a second gets 30 pairs,
where `FULL` takes 12: sessions of large models differ by several percent, and bursts of other load last for seconds."""
