"""Results that are computed from a graph once and kept with it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from graph_rewrite.ir.node import Node

T = TypeVar("T")


class MemoKey(Generic[T]):
    """A key under which a package attaches values of type T to graphs. Keys are told apart by identity, and what a key
    was used for goes when the key goes."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"MemoKey({self.name!r})"


@dataclass(slots=True)
class GraphMemo:
    """Results that a graph keeps; each is None until it is first asked for."""

    order: list[Node] | None = None
    roots: frozenset[int] | None = None
    is_typed: bool | None = None
    captured: frozenset[int] | None = None
    value_hashes: dict[int, str] | None = None
    hash: str | None = None
    _attached: WeakKeyDictionary[MemoKey[Any], Any] = field(default_factory=WeakKeyDictionary)

    def get(self, key: MemoKey[T]) -> T | None:
        """Return what was attached under a key; None where nothing was."""
        found: T | None = self._attached.get(key)
        return found

    def put(self, key: MemoKey[T], value: T) -> T:
        """Attach a value under a key, and return it."""
        self._attached[key] = value
        return value

    def drop(self, key: MemoKey[Any]) -> None:
        """Forget what was attached under a key."""
        self._attached.pop(key, None)
