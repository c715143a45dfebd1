"""Programs and boxes that are carried over to more channels: what is equal with few of them is equal with many."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from graph_rewrite.layouts import Crop, Fuse, Pad, Shape, Split, Unfold
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.moves import DoesNotFit, Window
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.repairs import REPAIRS, Repair, RepairCase
from graph_rewrite.mutate.thinning.carrying import carried, carried_box
from graph_rewrite.mutate.value_types import types_of
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, conv, layout
from tests.graph_rewrite.mutate.repairs import cases

CASES: dict[str, tuple[Callable[[], RepairCase], tuple[Shape, ...]]] = {
    "width": (lambda: cases.merged_batch(3), ((2, 6, 4, 5), (12, 6, 3, 3))),
    "chain": (cases.merged_chain, ((4, 6, 3, 6), (6, 6, 3, 3), (6,), (12, 6, 3, 3), (12,))),
    "residual": (cases.merged_residual, ((2, 6, 3, 6), (6, 6, 3, 3), (2, 6, 3, 6), (6, 1, 1))),
    "dilated": (cases.dilated, ((1, 6, 6, 8), (10, 6, 3, 3))),
    "odd dilated": (cases.dilated_odd, ((1, 6, 5, 7), (10, 6, 3, 3))),
    "strided": (cases.strided, ((2, 6, 8, 10), (9, 6, 3, 3))),
    "split": (cases.split, ((1, 6, 7, 10), (9, 6, 5, 5))),
    "pool": (cases.pooled, ((2, 6, 4, 6),)),
    "shifted": (cases.shifted_input, ((2, 6, 4, 5), (9, 6, 3, 3), (1, 6, 1, 1))),
}


@pytest.mark.parametrize("name", CASES)
def test_boxes_and_repairs_are_those_of_more_channels(name: str) -> None:
    make, shapes = CASES[name]
    case = make()
    original, mutant = (carried(made, case.shapes, shapes) for made in (case.original, case.mutant))
    trials = RandomTrials(original, shapes)
    finding = prove(trials, mutant)
    assert finding is not None
    before = [type.shape for type in case.trials.output_types]
    after = [type.shape for type in trials.output_types]
    assert before != after
    assert finding.wrong == tuple(
        tuple(carried_box(box, *each) for box in boxes)
        for boxes, each in zip(case.wrong, zip(before, after, strict=True), strict=True)
    )
    repaired = 0
    for method in REPAIRS.values() if any(case.wrong) else ():
        repair = method(case, lambda made: float(len(made.steps)))
        if isinstance(repair, Repair):
            again = carried(repair.program, case.shapes, shapes)
            assert prove(trials, again, keep=1.0) is not None
            assert carried(again, shapes, case.shapes) == repair.program, "there and back"
            repaired += 1
    assert repaired > 0 or not any(case.wrong)


def test_the_same_sizes_change_nothing() -> None:
    shapes = ((2, 3, 4, 4), (2, 3, 3, 3))
    assert carried(BATCH_TO_WIDTH, shapes, shapes) is BATCH_TO_WIDTH


def test_a_mask_of_channels_gets_a_number_for_each_of_them() -> None:
    mask = step("constant", 0, shape=(2, 1, 1), numerators=(1, 0), denominator=1)
    made = carried(program(1, [mask, step("mul", 0, 1)]), [(1, 2, 4, 4)], [(1, 6, 4, 4)])
    assert made.steps[0].param("numerators") == (1, 1, 1, 0, 0, 0)
    assert made.steps[0].param("shape") == (6, 1, 1)


@pytest.mark.parametrize(
    ("move", "other"),
    [
        (Window((0, 1, 0, 0), (1, 2, 4, 4)), Window((0, 3, 0, 0), (1, 6, 4, 4))),
        (Window((0, -1, 0, 0), (1, 5, 4, 4)), Window((0, -3, 0, 0), (1, 15, 4, 4))),
        (Crop(1, 1, 2), Crop(1, 3, 6)),
        (Pad(1, 0, 2), Pad(1, 0, 6)),
        (Pad(2, 1, 1), Pad(2, 1, 1)),
        (Fuse(1, (4, 4)), Fuse(1, (12, 4))),
        (Split(2, (2, 2)), Split(2, (2, 2))),
    ],
)
def test_sizes_along_channels_are_in_proportion(move: object, other: object) -> None:
    made = carried(program(1, [layout(0, move)]), [(1, 4, 4, 4)], [(1, 12, 4, 4)])  # type: ignore[arg-type]
    assert made.steps[0].chain == (other,)


@pytest.mark.parametrize("move", [Window((0, 1, 0, 0), (1, 2, 4, 4)), Split(1, (2, 2)), Unfold(1, 2, 1), Crop(1, 1, 0)])
def test_what_has_no_form_at_other_sizes_does_not_fit(move: object) -> None:
    made = program(1, [layout(0, move)])  # type: ignore[arg-type]
    with pytest.raises(DoesNotFit):
        carried(made, [(1, 4, 4, 4)], [(1, 6, 4, 4)])


def test_a_box_that_is_no_whole_number_of_channels_does_not_fit() -> None:
    with pytest.raises(DoesNotFit):
        carried_box(((0, 1), (1, 2)), (1, 2), (1, 3))
    assert carried_box(((0, 1), (1, 2)), (1, 2), (1, 6)) == ((0, 1), (3, 6))


def test_a_constant_whose_part_is_not_known_does_not_fit() -> None:
    """It may stand for either input."""
    zeros = step("constant", 0, shape=(1, 2, 4, 4), numerators=(0,), denominator=1)
    made = program(3, [zeros, conv(3, 1)])
    shapes = [(1, 2, 4, 4), (2, 2, 3, 3), (1, 2, 4, 4)]
    with pytest.raises(DoesNotFit):
        carried(made, shapes, [(1, 4, 4, 4), (2, 4, 3, 3), (1, 6, 4, 4)])
    found = carried(made, shapes, [(1, 4, 4, 4), (2, 4, 3, 3), (1, 4, 4, 4)])
    assert types_of(found, [(1, 4, 4, 4), (2, 4, 3, 3), (1, 4, 4, 4)])[-1].shape == (1, 2, 4, 4)
