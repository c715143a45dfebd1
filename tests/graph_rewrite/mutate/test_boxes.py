"""Boxes: those of PET's figures, and that no box holds elements of two sums."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.boxes import Box, box_at, boxes_of, cuts_of, merged, volume
from graph_rewrite.mutate.program import TensorProgram, program, step
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV, conv, layout, random_chain, random_program
from tests.graph_rewrite.mutate.provenance import Elements, provenance


def brute_force(elements: Elements) -> int:
    """The number of summation intervals."""
    return len({frozenset(terms) for terms in elements.reshape(-1)})


def assert_linear(elements: Elements, box: Box) -> None:
    """All elements of a box have the same terms, and what each reads moves with the position linearly."""
    start = tuple(first for first, _ in box)
    terms = elements[start]
    steps = {}
    for axis, (first, last) in enumerate(box):
        if last - first > 1:
            after = elements[(*start[:axis], first + 1, *start[axis + 1 :])]
            assert after.keys() == terms.keys()
            steps[axis] = {index: np.subtract(after[index], terms[index]) for index in terms}
    for place in itertools.product(*(range(first, last) for first, last in box)):
        here = elements[place]
        assert here.keys() == terms.keys()
        for index, read in terms.items():
            moved = sum(((place[axis] - start[axis]) * step[index] for axis, step in steps.items()), np.array(read))
            assert tuple(moved) == here[index]


def assert_refines(made: TensorProgram, shapes: tuple[Shape, ...]) -> None:
    for elements, cuts in zip(provenance(made, shapes), cuts_of(made, shapes), strict=True):
        for box in boxes_of(cuts, elements.shape):
            assert_linear(elements, box)


def test_the_nine_boxes_of_figure_4() -> None:
    shapes = ((1, 2, 6, 7), (3, 2, 3, 3))
    (cuts,) = cuts_of(CONV, shapes)
    assert cuts == ((), (), (1, 5), (1, 6))
    boxes = list(boxes_of(cuts, (1, 3, 6, 7)))
    assert len(boxes) == 9 == brute_force(provenance(CONV, shapes)[0])
    assert sum(map(volume, boxes)) == 3 * 6 * 7
    assert_refines(CONV, shapes)


def test_the_split_points_of_figure_5() -> None:
    shapes = ((2, 1, 4, 5), (1, 1, 3, 3))
    wide = TensorProgram(2, BATCH_TO_WIDTH.steps, (3,))
    assert cuts_of(wide, shapes) == [((), (), (1, 3), (1, 4, 5, 6, 9))]
    assert cuts_of(BATCH_TO_WIDTH, shapes) == [((1,), (), (1, 3), (1, 4))]
    assert_refines(BATCH_TO_WIDTH, shapes)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_boxes_refine_the_partition_by_summation_intervals(seed: int) -> None:
    made, shapes = random_program(np.random.default_rng(seed), largest=250)
    assume(made.steps[-1].op != "averaging")
    assert_refines(made, shapes)


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_boxes_of_layouts_around_a_convolution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = ((2, 2, 4, 6), (2, 2, 2, 3))
    first = layout(0, *random_chain(rng, shapes[0]))
    made = program(2, [first, conv(0, 1), layout(3, *random_chain(rng, (2, 2, 5, 6)))])
    assert_refines(made, shapes)


def test_convolutions_of_groups_have_boxes_of_their_own() -> None:
    assert_refines(CONV, ((1, 4, 3, 3), (6, 2, 3, 3)))
    assert cuts_of(CONV, ((1, 4, 3, 3), (6, 2, 3, 3)))[0][1] == (3,)


def test_a_pool_that_does_not_count_its_border() -> None:
    pool = program(1, [step("pool", 0, kernel=(3, 2), strides=(2, 1), pads=(1, 1, 1, 0), counted=0)])
    assert_refines(pool, ((1, 2, 7, 6),))


@given(st.integers(0, 2**32))
def test_merged_boxes_cover_the_same_positions_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = (3, 4, 5)
    cuts = tuple(tuple(sorted({int(c) for c in rng.integers(1, size, 3)})) for size in shape)
    boxes = [box for box in boxes_of(cuts, shape) if rng.integers(0, 2)]
    before, after = np.zeros(shape, dtype=int), np.zeros(shape, dtype=int)
    for found, mask in ((boxes, before), (merged(boxes), after)):
        for box in found:
            mask[tuple(slice(*side) for side in box)] += 1
    np.testing.assert_array_equal(before, after)
    assert len(merged(boxes)) <= len(boxes)


def test_the_box_of_a_position() -> None:
    cuts, shape = ((2,), (1, 3)), (4, 5)
    for box in boxes_of(cuts, shape):
        for place in itertools.product(*(range(*side) for side in box)):
            assert box_at(cuts, place, shape) == box
