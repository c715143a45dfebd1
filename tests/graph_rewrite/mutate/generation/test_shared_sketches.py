"""Sketches that subprograms with one small instance share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from graph_rewrite.mutate.generation import shared_sketches
from graph_rewrite.mutate.generation.generator import Generator
from graph_rewrite.mutate.generation.instance import small_instance
from graph_rewrite.mutate.generation.shared_sketches import SharedSketches
from graph_rewrite.mutate.generation.sketch import Sketch
from graph_rewrite.mutate.program import Subprogram
from graph_rewrite.mutate.search import Limits, mutants_of_subprogram
from tests.graph_rewrite.mutate.programs import CONV

SMALL = Subprogram(CONV, ((2, 2, 6, 6), (2, 2, 3, 3)))


def all_of(shared: SharedSketches, stop: Callable[[], bool] = lambda: False) -> list[Sketch]:
    return list(shared.of(SMALL, 2, 0.6, stop))


@pytest.fixture
def generators(monkeypatch: pytest.MonkeyPatch) -> list[Generator]:
    made: list[Generator] = []

    class Counted(Generator):
        def __init__(self, *given: Any, **more: Any) -> None:
            super().__init__(*given, **more)
            made.append(self)

    monkeypatch.setattr(shared_sketches, "Generator", Counted)
    return made


def test_an_instance_is_enumerated_once(generators: list[Generator]) -> None:
    shared = SharedSketches()
    first = all_of(shared)
    assert len(first) > 3
    tried = generators[0].tried
    assert all_of(shared) == first
    assert [generator.tried for generator in generators] == [tried]
    assert list(shared.of(SMALL, 1, 0.6, lambda: False)) != first, "another depth is another enumeration"
    assert len(generators) == 2


def test_an_enumeration_goes_on_where_its_time_ran_out(generators: list[Generator]) -> None:
    asked = count()
    whole = all_of(SharedSketches(), lambda: next(asked) < 0)
    half = next(asked) // 2
    shared, again = SharedSketches(), count()
    first = all_of(shared, lambda: next(again) >= half)
    assert 0 < len(first) < len(whole)
    assert all_of(shared, lambda: True) == first, "what was found costs no time"
    assert all_of(shared) == whole
    assert generators[1].tried == generators[0].tried, "nothing is enumerated twice"


def test_subprograms_that_share_find_what_they_find_alone(generators: list[Generator]) -> None:
    shapes = [((2, 8, side, side), (4, 8, 3, 3)) for side in (18, 22)]
    subs = [Subprogram(CONV, each) for each in shapes]
    assert small_instance(subs[0]).shapes == small_instance(subs[1]).shapes
    limits, shared = Limits(depth=2, keep=0.85), SharedSketches()
    alone = [[str(mutant.program) for mutant in mutants_of_subprogram(sub, limits)] for sub in subs]
    together = [[str(m.program) for m in mutants_of_subprogram(sub, limits, shared=shared)] for sub in subs]
    assert together == alone
    assert all(alone)
    assert len(generators) == 3
