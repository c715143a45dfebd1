"""The limits of a search."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.errors import UserError

CONCLUSION_RUNS = 80.0
"""Runs of the original that a conclusion takes at least, with its sessions: two measurements that confirm (25 each),
saving and comparing (20), and a look at the file in a fresh process (10). Timed on BERT-base, one thread of a Zen 4."""
MOST_CONCLUSION = 0.5
"""Largest part of all seconds that a slow model's conclusion takes."""
KEPT_SHARE = 0.8
"""Part of the conclusion's seconds that a measurement of the search never takes away."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of a search; whichever is reached first ends it.

    `measurements` are latencies of graphs that were not measured before in the search; `seconds` are wall-clock,
    where a latency that another search already measured is charged what it took then; `applications` are candidates
    applied to a graph (to an e-graph: rules applied at one match), None for no limit. `conclusion_s` are seconds that
    measuring and checking the result should take, beside `seconds`; None for as long as careful measuring takes.
    `deadline` is a moment of `time.monotonic` at which everything ends: measurements under way are broken off,
    waiting for other processes counts, and what is known already costs nothing. None for no such moment. `telling_s`
    are the last of the search's seconds; where the lead is small they go to the conclusion, which tells a small lead
    from none by more measurements. `overtime_s` is a hard limit for budgets without a deadline: the search is broken
    off when it has overrun its seconds by a fifth of that, and the conclusion when it has taken as long and what the
    search left of its seconds; waiting for other processes does not count. With `provisional` the caller confirms and
    checks what the search finds: the conclusion only chooses the most promising graph, and a result with rewrites has
    no file yet.

    Raises:
        UserError: a limit that is negative.
    """

    measurements: int = 100
    seconds: float = 60.0
    applications: int | None = None
    conclusion_s: float | None = None
    deadline: float | None = None
    telling_s: float = 0.0
    overtime_s: float | None = None
    provisional: bool = False

    @property
    def search_deadline(self) -> float | None:
        """The moment of `time.monotonic` at which the search is broken off: what it began may overrun into the
        conclusion by a part of that."""
        return None if self.deadline is None else self.deadline - KEPT_SHARE * (self.conclusion_s or 0.0)

    def lacking(self, run_s: float) -> float:
        """Return the seconds that the conclusion on a model that takes `run_s` needs beyond its own."""
        own = self.conclusion_s
        if own is None or self.provisional:
            return 0.0
        return max(0.0, min(CONCLUSION_RUNS * run_s, MOST_CONCLUSION * (self.seconds + own)) - own)

    def __post_init__(self) -> None:
        for name in ("measurements", "seconds", "applications", "conclusion_s", "telling_s", "overtime_s"):
            limit = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise UserError(f"a budget's {name} must be 0 or more, got {limit}")


def check_seed(seed: int) -> int:
    """Return the seed of a search, which NumPy and PyTorch take.

    Raises:
        UserError: a negative one, or one of more than 32 bits.
    """
    if not 0 <= seed < 2**32:
        raise UserError(f"--seed {seed}: seeds are from 0 to {2**32 - 1}")
    return seed
