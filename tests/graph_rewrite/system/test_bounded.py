"""Dictionaries that do not grow without end."""

from __future__ import annotations

from graph_rewrite.system.bounded import BoundedDict


def test_the_oldest_entry_makes_room() -> None:
    found = BoundedDict[str, int](2)
    found["a"], found["b"] = 1, 2
    found["a"] = 3
    assert dict(found) == {"a": 3, "b": 2}
    found["c"] = 4
    assert dict(found) == {"b": 2, "c": 4}
    found.pop("b")
    found["b"] = 5
    assert dict(found) == {"c": 4, "b": 5}
