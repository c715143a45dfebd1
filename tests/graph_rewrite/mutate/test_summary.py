"""Programs in one line."""

import pytest

from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.summary import summary
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV, DILATED


def test_operators_that_compute_are_listed_with_what_they_read() -> None:
    shapes = ((2, 3, 8, 8), (4, 3, 3, 3))
    assert summary(CONV, shapes) == "conv [2,3,8,8] [4,3,3,3] pads 1x1x1x1"
    assert summary(BATCH_TO_WIDTH, shapes) == "conv [1,3,8,16] [4,3,3,3] pads 1x1x1x1"
    assert "dilations 2x2 pads 2x2x2x2" in summary(DILATED, shapes)


@pytest.mark.parametrize(("count", "shown"), [(8, "1x2x3x4x5x6x7x8"), (9, "1x2x3x4x5x6x7x8 and 1 more")])
def test_of_a_long_map_the_first_factors_are_shown(count: int, shown: str) -> None:
    numerators = tuple(range(1, count + 1))
    factors = step("constant", 0, numerators=numerators, denominator=9, shape=(1, count))
    made = program(1, [factors, step("mul", 0, 1)])
    assert f"numerators {shown} shape 1x{count}" in summary(made, ((2, count),))
