"""Boxes of any program are computed again from slices of its inputs, and put in place."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box
from graph_rewrite.mutate.equivalence import RandomTrials
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.program import TensorProgram, program, step
from graph_rewrite.mutate.repairs import Repair, RepairCase, recompute_repair
from graph_rewrite.mutate.repairs.draft import Draft
from graph_rewrite.mutate.repairs.recompute import MOST_BOXES, by_adding, by_joining, recomputed
from graph_rewrite.mutate.repairs.regions import CannotSlice, Regions
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.rewriting.rule import Refusal
from tests.graph_rewrite.mutate.repairs.cases import conv, is_equal, is_proved, layout, merged_batch, strided

SAME, NONE = (1, 1, 1, 1), (0, 0, 0, 0)
X, W, V = (2, 4, 5, 6), (6, 4, 3, 3), (3, 6, 3, 3)


def pool(value: int, counted: int) -> Any:
    return step("pool", value, kernel=(3, 2), strides=(1, 2), pads=(1, 0, 1, 1), counted=counted)


PROGRAMS: dict[str, tuple[TensorProgram, tuple[Shape, ...]]] = {
    "conv": (program(3, [conv(0, 1, 2, pads=(1, 0, 2, 1))]), (X, W, (6,))),
    "strided": (program(2, [conv(0, 1, pads=SAME, strides=(2, 1))]), (X, W)),
    "dilated": (program(2, [conv(0, 1, pads=(2, 3, 2, 3), dilations=(2, 3))]), (X, W)),
    "groups": (program(3, [conv(0, 1, 2, pads=SAME)]), (X, (6, 2, 3, 3), (6,))),
    "chain": (program(3, [conv(0, 1, pads=SAME), conv(3, 2, pads=(1, 1, 0, 1))]), (X, W, V)),
    "residual": (
        program(3, [conv(0, 1, pads=SAME), step("add", 3, 2), conv(4, 1, pads=SAME)]),
        ((2, 4, 5, 6), (4, 4, 3, 3), (2, 4, 5, 6)),
    ),
    "scaled": (program(3, [conv(0, 1, pads=SAME), step("mul", 2, 3)]), (X, W, (6, 1, 1))),
    "counted average": (program(1, [pool(0, 1)]), (X,)),
    "average": (program(1, [pool(0, 0)]), (X,)),
    "average of a convolution": (program(2, [conv(0, 1, pads=SAME), pool(2, 0)]), (X, W)),
    "product": (program(2, [step("matmul", 0, 1)]), ((4, 5), (5, 6))),
    "products": (program(2, [step("matmul", 0, 1)]), ((3, 4, 5), (3, 5, 2))),
    "shared product": (program(3, [step("matmul", 0, 1), step("add", 3, 2)]), ((3, 4, 5), (5, 4), (4,))),
    "joined channels": (program(2, [conv(0, 1, pads=SAME), step("concat", 2, 0, 2, axis=1)]), (X, W)),
    "joined batch": (program(2, [conv(0, 1, pads=SAME), step("concat", 2, 2, axis=0)]), (X, W)),
    "rearranged": (program(2, [layout(0, Move(0, "outer", 3, "inner", 2)), conv(2, 1, pads=SAME)]), (X, W)),
}


def disjoint(a: Box, b: Box) -> bool:
    return any(p[1] <= q[0] or q[1] <= p[0] for p, q in zip(a, b, strict=True))


@st.composite
def boxes(draw: Any, shape: Shape) -> tuple[Box, ...]:
    """Draw one to three disjoint boxes of a tensor."""
    found: list[Box] = []
    for _ in range(draw(st.integers(1, 3))):
        starts = [draw(st.integers(0, size - 1)) for size in shape]
        box = tuple((a, draw(st.integers(a + 1, size))) for a, size in zip(starts, shape, strict=True))
        if all(disjoint(box, other) for other in found):
            found.append(box)
    return tuple(sorted(found))


def zeroed(original: TensorProgram, shapes: tuple[Shape, ...], wrong: tuple[Box, ...]) -> RepairCase:
    """Return a mutant whose output is zero in some boxes."""
    draft = Draft(shapes)
    value = draft.include(original, range(original.count))[original.outputs[0]]
    kept = np.ones(draft.shape(value), dtype=np.int64)
    for box in wrong:
        kept[tuple(slice(*side) for side in box)] = 0
    mutant = draft.finish([draft.add("mul", value, draft.constant(value, kept))])
    return RepairCase(RandomTrials(original, shapes), mutant, (wrong,))


@pytest.mark.parametrize("name", PROGRAMS)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_any_boxes_of_any_operators_become_right(name: str, data: st.DataObject) -> None:
    original, shapes = PROGRAMS[name]
    case = zeroed(original, shapes, data.draw(boxes(types_of(original, shapes)[original.outputs[0]].shape)))
    assert not is_proved(case, case.mutant)
    together, place = data.draw(st.booleans()), data.draw(st.sampled_from((by_joining, by_adding)))
    try:
        made = recomputed(case, together, place)
    except CannotSlice:
        made = recomputed(case, False, by_adding)
    assert is_proved(case, made)


@pytest.mark.parametrize("name", PROGRAMS)
def test_onnx_operators_agree(name: str) -> None:
    original, shapes = PROGRAMS[name]
    shape = types_of(original, shapes)[original.outputs[0]].shape
    corner = tuple((0, -(-size // 2)) for size in shape)
    repair = recompute_repair(zeroed(original, shapes, (corner,)), lambda each: len(each.steps))
    assert isinstance(repair, Repair)
    assert is_equal(zeroed(original, shapes, (corner,)), repair.program)


class TestFusion:
    def test_boxes_of_one_shape_are_computed_by_one_operator(self) -> None:
        case = merged_batch(3)
        made = recomputed(case, True, by_joining)
        assert [each.op for each in made.steps].count("conv") == 2
        assert is_equal(case, made)
        assert [each.op for each in recomputed(case, False, by_joining).steps].count("conv") == 3

    def test_cost_decides(self) -> None:
        def few(wanted: str, sign: int) -> Any:
            return lambda each: sign * sum(step.op == wanted for step in each.steps)

        case = merged_batch(3)
        fused, alone = recompute_repair(case, few("conv", 1)), recompute_repair(case, few("conv", -1))
        assert isinstance(fused, Repair)
        assert isinstance(alone, Repair)
        assert (fused.cost, alone.cost) == (2, -3)
        joined, added = recompute_repair(case, few("add", 1)), recompute_repair(case, few("concat", 1))
        assert isinstance(joined, Repair)
        assert isinstance(added, Repair)
        assert "mul" not in str(joined.program)
        assert "mul" in str(added.program)

    def test_other_filters_are_not_shared(self) -> None:
        original, shapes = PROGRAMS["conv"]
        whole = ((0, 2), (0, 5), (0, 6))
        wrong = tuple((whole[0], (i, i + 1), *types_box(original, shapes)[2:]) for i in (0, 3))
        case = zeroed(original, shapes, wrong)
        with pytest.raises(CannotSlice, match="different filters"):
            Regions(Draft(shapes), original, shapes).boxes(original.outputs[0], wrong)
        made = recomputed(case, True, by_joining)
        assert [each.op for each in made.steps].count("conv") == 3
        assert is_proved(case, made)


def types_box(original: TensorProgram, shapes: tuple[Shape, ...]) -> Box:
    """Return the box that is all of the output."""
    return tuple((0, size) for size in types_of(original, shapes)[original.outputs[0]].shape)


class TestWork:
    def test_only_slices_are_computed_again(self) -> None:
        case = strided()
        made = recomputed(case, True, by_joining)
        types = types_of(made, case.shapes)
        again = [types[made.count + i].shape for i, each in enumerate(made.steps) if each.op == "conv"]
        [boxes] = case.wrong
        assert sorted(map(prod, again[1:])) == sorted(prod(b - a for a, b in box) for box in boxes)


class TestRefusals:
    def test_boxes_that_interlock_are_added(self) -> None:
        """Four boxes around a fifth place leave no straight cut."""
        original, shapes = program(2, [step("matmul", 0, 1)]), ((3, 4), (4, 3))
        wheel = (((0, 1), (0, 2)), ((0, 2), (2, 3)), ((2, 3), (1, 3)), ((1, 3), (0, 1)))
        case = zeroed(original, shapes, wheel)
        with pytest.raises(CannotSlice, match="no straight cut"):
            recomputed(case, False, by_joining)
        repair = recompute_repair(case, lambda each: len(each.steps))
        assert isinstance(repair, Repair)
        assert is_equal(case, repair.program)

    def test_too_many_boxes(self) -> None:
        original, shapes = program(2, [step("matmul", 0, 1)]), ((2 * MOST_BOXES + 2, 2), (2, 2))
        wrong = tuple(((2 * i, 2 * i + 1), (0, 2)) for i in range(MOST_BOXES + 1))
        found = recompute_repair(zeroed(original, shapes, wrong), lambda each: len(each.steps))
        assert isinstance(found, Refusal)
        assert found.reason == "more than 64 boxes are wrong"

    def test_a_box_that_reads_nothing_but_a_border(self) -> None:
        original, shapes = program(2, [conv(0, 1, pads=(2, 2, 2, 2))]), ((1, 2, 3, 3), (2, 2, 1, 1))
        found = recompute_repair(zeroed(original, shapes, (((0, 1), (0, 2), (0, 1), (0, 1)),)), lambda each: 0.0)
        assert isinstance(found, Refusal)
        assert found.reason == "a box needs nothing but zeros of a border"
        inside = zeroed(original, shapes, (((0, 1), (0, 2), (0, 3), (0, 7)),))
        repair = recompute_repair(inside, lambda each: 0.0)
        assert isinstance(repair, Repair)
        assert is_equal(inside, repair.program)
