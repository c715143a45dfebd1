"""Inputs for a model that fails on random ones: they are looked for once, unless time runs out over it."""

import pytest

from graph_rewrite.latency.measured_inputs import MeasuredInputs
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.system.deadline import OutOfTime

FOUND = FeedSpec(values={"axis": 0})


def test_a_search_that_ran_out_of_time_is_made_again() -> None:
    """Meters are shared: the next search in the process may have more time."""
    asked = []

    def find() -> FeedSpec:
        asked.append("")
        if len(asked) == 1:
            raise OutOfTime("no time")
        return FOUND

    inputs = MeasuredInputs(FeedSpec(rotated=()), find)
    with pytest.raises(OutOfTime):
        inputs.fall_back(search=True)
    assert inputs.fall_back(search=True)
    assert inputs.recipes[0].values == FOUND.values
    assert (len(asked), inputs.fall_back(search=True)) == (2, True), "many inputs of these values become one"
    assert not inputs.fall_back(search=True)
    assert len(asked) == 2


def test_what_was_not_found_is_not_looked_for_again() -> None:
    asked: list[str] = []
    inputs = MeasuredInputs(FeedSpec(rotated=()), lambda: asked.append(""))  # type: ignore[func-returns-value]
    assert not inputs.fall_back(search=True)
    assert not inputs.fall_back(search=True)
    assert asked == [""]
