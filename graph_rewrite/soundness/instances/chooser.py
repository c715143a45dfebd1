"""Choices made one after another, drawn without repetition from the tree of all their combinations.

A run makes choices with `pick`; what may be chosen can depend on what was chosen before. `finish` ends the run. No
sequence of choices comes twice, so a small space is enumerated exactly; of a large one, runs are spread: a value that
led to successes is drawn more often than one that never did, and the more often it did, the less often it is drawn.
Half of the runs are plain: they mostly take the first of the options, so that what many choices must agree on is found.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Sequence
from typing import TypeVar

_PLAIN = 1.5
"""In a plain run the first option is drawn so many times as often as all others together, to begin with."""

Value = TypeVar("Value", bound=Hashable)


class DeadEnd(Exception):
    """The choices made so far cannot be completed."""


class _Branch:
    """A branch of the tree of choices: the branches after it, and the options that lead to nothing new."""

    __slots__ = ("after", "done", "options")

    def __init__(self) -> None:
        self.after: dict[int, _Branch] = {}
        self.done: set[int] = set()
        self.options = 0


class Chooser:
    """Draws choices; deterministic for a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._root = _Branch()
        self._tried: dict[tuple[str, Hashable], int] = {}
        self._succeeded: dict[tuple[str, Hashable], int] = {}
        self._plain = True
        self.exhausted = False
        """True where every combination has been drawn."""
        self._begin()

    def _begin(self) -> None:
        self._plain = self._random.random() < 0.5
        self._at = self._root
        self._path: list[tuple[_Branch, int]] = []
        self.made: dict[str, Hashable] = {}
        """Choices of this run, by key."""

    def pick(self, key: str, options: Sequence[Value], weights: Sequence[float] | None = None) -> Value:
        """One of the options, which must be the same whenever the same choices were made before. `weights` say how
        much more often one is to be drawn than another.

        Raises:
            ValueError: there are no options.
            DeadEnd: all options that are left have weight 0.
        """
        if not options:
            raise ValueError(f"there is nothing to choose from for {key}")
        if len(options) == 1:
            return options[0]
        here = self._at
        here.options = len(options)
        open_options = [i for i in range(len(options)) if i not in here.done]
        drawn = [self._weight(key, options[i]) * (1.0 if weights is None else weights[i]) for i in open_options]
        if self._plain and open_options[0] == 0:
            drawn[0] *= _PLAIN * len(options)
        if not any(drawn):
            raise DeadEnd(f"none of the options of {key} that are left may be drawn")
        index = self._random.choices(open_options, drawn)[0]
        self._path.append((here, index))
        self.made[key] = options[index]
        self._at = here.after.setdefault(index, _Branch())
        return options[index]

    def finish(self, success: bool) -> None:
        """End the run; `success` tells whether it led to what is looked for."""
        for choice in self.made.items():
            self._tried[choice] = self._tried.get(choice, 0) + 1
            if success:
                self._succeeded[choice] = self._succeeded.get(choice, 0) + 1
        for branch, index in reversed(self._path):
            branch.done.add(index)
            branch.after.pop(index, None)
            if len(branch.done) < branch.options:
                break
        else:
            self.exhausted = True
        self._begin()

    def _weight(self, key: str, option: Hashable) -> float:
        choice = (key, option)
        succeeded = self._succeeded.get(choice, 0)
        rate = (succeeded + 1.0) / (self._tried.get(choice, 0) + 1.5)
        return float(rate**1.5 / (1.0 + succeeded) ** 0.5)
