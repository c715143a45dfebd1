"""Dictionaries that do not grow without end."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedDict(dict[K, V], Generic[K, V]):
    """A dictionary of at most `limit` entries: when it is full, a new entry takes the place of the oldest.

    Reading is that of a plain dictionary, which `functools.lru_cache` is no substitute for where the key is not what
    the value is computed from.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, value)
