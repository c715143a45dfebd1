"""Searches at single shapes: the division of the time, interruptions, and what cannot be asked for."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Budget, Search
from agents.optimization.options import OptimizeOptions, shape_texts
from agents.optimization.run import WatchedSearch, optimize_model
from agents.optimization.single_shapes import ShapeSearches, check_specialise, times_for_single_shapes
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.symbolic.bindings import bind
from tests.agents.toys import chain_problem
from tests.envs.fakes import write_tower
from tests.graph_rewrite.symbolic.dynamic_models import transformer

SHAPES = ("ids:1,24", "ids:2,9", "ids:1,24")
OPTIONS = OptimizeOptions(shape=SHAPES, specialise=True, threads="1", agent="greedy")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return transformer(tmp_path_factory.mktemp("model") / "t.onnx", layers=1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_time_is_divided_among_the_shapes(count: int) -> None:
    times = times_for_single_shapes(count, 100.0, 20.0)
    first = 100.0 - 20.0 - times.after
    assert first > 0
    assert times.bundle > 0
    assert count == 1 or first == pytest.approx(2 * times.each)
    assert times.others == pytest.approx((count - 1) * times.each)
    assert times.first(replace(OPTIONS, time_limit="100s")).seconds == pytest.approx(100.0 - times.after, abs=1e-2)


def test_without_single_shapes_the_first_search_has_all_the_time() -> None:
    times = times_for_single_shapes(0, 100.0, 20.0)
    assert times.after == 0.0
    assert times.first(OPTIONS) is OPTIONS


def never(*_: Any) -> Any:
    raise AssertionError("a search began")


def test_after_an_interruption_no_further_shape_is_searched(model: Path, tmp_path: Path) -> None:
    watched, told = WatchedSearch(lambda search: told.append(search)), list[Search]()
    assert not watched.interrupted
    search = Search(chain_problem(tmp_path, 1), Budget())
    watched(search)
    assert told == [search]
    assert not watched.interrupted
    search.end()
    assert watched.interrupted
    searches = ShapeSearches(OPTIONS, never, never, lambda: watched.interrupted)
    (found,) = searches.run(bind(model, SHAPES[:2]), None, times_for_single_shapes(2, 100.0, 20.0), time.monotonic())
    assert found.values == {"batch": 2, "sequence": 9}
    assert found.reason == "the search was ended before it came to this shape"


@pytest.mark.parametrize("error", [UserError("too long"), MachineError("out of memory")])
def test_a_shape_that_cannot_be_searched_is_told(model: Path, error: Exception) -> None:
    def refused(*_: Any) -> Any:
        raise error

    searches = ShapeSearches(OPTIONS, refused, never, lambda: False)
    times = times_for_single_shapes(2, 100.0, 20.0)
    (found,) = searches.run(bind(model, SHAPES[:2]), None, times, time.monotonic() + 10.0)
    assert found.reason == f"the model cannot be searched at this shape: {error}"


def test_each_shape_counts_once(model: Path) -> None:
    bindings = check_specialise(OPTIONS, bind(model, SHAPES))
    assert [values["sequence"] for values in bindings.values] == [24, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shape": ()}, "makes models for shapes that you name: add --shape ids:1,24"),
        ({"shape": ("auto",)}, "makes models for shapes that you name"),
        ({"static": True}, "--static fixes them"),
    ],
)
def test_what_cannot_be_specialised_is_an_error(model: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_specialise(replace(OPTIONS, **options), bind(model, SHAPES[:1]))


def test_a_model_of_fixed_shapes_is_refused_before_the_search(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="this one has fixed shapes"):
        optimize_model(write_tower(tmp_path / "fixed.onnx", 1), replace(OPTIONS, shape=()))


def test_several_shapes_from_python() -> None:
    assert shape_texts([{"ids": (1, 64)}, {"ids": [1, 384]}]) == ("ids:1,64", "ids:1,384")
    assert shape_texts({"ids": (1, 64), "mask": (1, 64)}) == ("ids:1,64", "mask:1,64")
