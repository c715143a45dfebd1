"""Control of the garbage collector."""

import gc
from collections.abc import Iterator

import pytest

from graph_rewrite.system import garbage_collector
from graph_rewrite.system.garbage_collector import no_garbage_collection

OLDEST = 2
"""Generation of the collector's oldest objects."""


class Node:
    """An object that may be part of a cycle."""

    alive = 0

    def __init__(self) -> None:
        self.other: Node | None = None
        Node.alive += 1

    def __del__(self) -> None:
        Node.alive -= 1


def make_cycles(count: int) -> None:
    for _ in range(count):
        first, second = Node(), Node()
        first.other, second.other = second, first


@pytest.fixture(autouse=True)
def census(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin with a full collection and an empty count."""
    gc.collect()
    Node.alive = 0
    monkeypatch.setattr(garbage_collector._Census, "made", 0)
    monkeypatch.setattr(garbage_collector._Census, "most", 10_000)
    monkeypatch.setattr(garbage_collector, "LEAST", 10_000)
    yield
    gc.collect()


def test_objects_made_inside_are_old_afterwards() -> None:
    with no_garbage_collection():
        made = [[number] for number in range(100)]
    old = {id(each) for each in gc.get_objects(generation=OLDEST)}
    assert all(id(each) in old for each in made)
    assert gc.get_freeze_count() == 0


def test_the_few_objects_that_python_freezes_at_its_start_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)
    with no_garbage_collection():
        made = [[number] for number in range(100)]
    old = {id(each) for each in gc.get_objects(generation=OLDEST)}
    assert all(id(each) in old for each in made)


def test_cycles_made_inside_are_collected_before_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage_collector, "GROWTH", 0.0)
    most = 0
    for _ in range(50):
        with no_garbage_collection():
            make_cycles(500)
        most = max(most, Node.alive)
    # The collector runs again once 10,000 objects were made: a node and its dictionary are up to two.
    assert 5_000 <= most <= 11_000


def test_the_collector_is_off_inside_and_as_it_was_afterwards() -> None:
    with no_garbage_collection():
        assert not gc.isenabled()
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with no_garbage_collection():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_objects_that_somebody_froze_stay_frozen() -> None:
    frozen = [["frozen"]]
    gc.freeze()
    try:
        with no_garbage_collection():
            make_cycles(10)
        # The collector lists the objects of its generations; what is frozen is in none of them.
        assert not any(each is frozen for each in gc.get_objects())
    finally:
        gc.unfreeze()
    assert any(each is frozen for each in gc.get_objects())


def test_an_error_inside_turns_the_collector_on_again() -> None:
    with pytest.raises(KeyError), no_garbage_collection():
        raise KeyError
    assert gc.isenabled()
