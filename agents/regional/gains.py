"""What is known of rewrites from the windows they were tried in, and what is hoped of the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

OPTIMISM = (0.3, 0.1, 0.05)
"""Share of a window's time that a rule is expected to save, as the first, second or later step of a chain, before
anything is known of it: other first steps are tried before longer chains."""
FADING = (0.6, 0.3)
"""What each further window leaves of that hope, for first steps and for later ones: which first step is best changes
with the shapes."""
FURTHER = "..."
"""Stands for the steps that a chain makes possible, before they are listed."""

Key = tuple[str, ...]


@dataclass
class Effects:
    """What rewrites gained so far, as shares of their windows' time, under keys from special to general."""

    _gains: dict[Key, list[float]] = field(default_factory=dict)
    _ends: set[str] = field(default_factory=set)
    """The last parts of keys: of chains the last rule."""

    def record(self, keys: Iterable[Key], gain: float) -> None:
        """A rewrite that goes by these keys gained so much."""
        for key in keys:
            self._gains.setdefault(key, []).append(gain)
            self._ends.add(key[-1])

    def knows(self, rule: str) -> bool:
        """Whether a rule was tried anywhere, in whatever chain."""
        return rule in self._ends

    def expected(self, keys: Sequence[Key], before: float, hope: float, fading: float) -> float:
        """What a chain may save in another window, where it saves `before` without its last rewrite: the mean gain
        under the first key of which something is known. Added is `hope`, and a loss before is forgiven, of both the
        part `fading` for every window that is known under the key; the third key is another's, and counts as one."""
        level = next((i for i, key in enumerate(keys) if key in self._gains), None)
        known = [] if level is None else self._gains[keys[level]]
        trust = fading ** (1 if level is not None and level >= 2 else len(known))
        mean = sum(known) / len(known) if known else 0.0
        return mean + hope * trust + (before if before > 0.0 else before * (1.0 - trust))
