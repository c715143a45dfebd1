"""Parts of programs, and what comes in their place."""

from __future__ import annotations

import numpy as np

from graph_rewrite.mutate.field import outputs_of, random_inputs
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.optimizing.parts import parts_of, replaced
from graph_rewrite.mutate.program import program, step
from tests.graph_rewrite.mutate.programs import conv

SHAPES = ((2, 2, 6, 6), (2, 2, 3, 3), (2, 2, 3, 3))
# Two convolutions, one after the other, a sum beside the second, and filters that are folded.
CHAIN = program(
    3,
    [
        step("layout", 1, chain=(Move(0, "outer", 0, "inner", 2),)),
        conv(0, 3),
        conv(4, 2),
        step("add", 5, 4),
        step("layout", 6, chain=(Move(0, "outer", 3, "outer", 2),)),
    ],
    [7, 5],
)


def test_parts_are_all_connected_convex_sets_with_a_heavy_step() -> None:
    found = {tuple(sorted(chosen)) for chosen, _ in parts_of(CHAIN, SHAPES, frozenset({1, 2}), 4)}
    # The layout of the filters (0) is folded. The sum (3) reads both convolutions (1, 2): 1 and 3 alone are not convex.
    assert found == {(1,), (2,), (1, 2), (2, 3), (1, 2, 3), (2, 3, 4)}
    everything = {tuple(sorted(chosen)) for chosen, _ in parts_of(CHAIN, SHAPES, frozenset(), 4)}
    assert (0, 1, 2, 3) in everything
    assert (0, 1, 2, 3, 4) not in everything


def test_a_part_knows_what_is_constant() -> None:
    parts = dict(parts_of(CHAIN, SHAPES, frozenset({1, 2}), 1))
    assert parts[frozenset({1})].constants == {1}
    assert parts[frozenset({1})].inputs == (0, 3)


def test_a_part_in_its_own_place_changes_nothing() -> None:
    inputs = random_inputs(SHAPES, seed=1)
    wanted = outputs_of(CHAIN, inputs)
    for chosen, part in parts_of(CHAIN, SHAPES, frozenset(), 4):
        again = replaced(CHAIN, chosen, part.inputs, part.program)
        assert all(np.array_equal(a, b) for a, b in zip(outputs_of(again, inputs), wanted, strict=True))


def test_another_program_comes_in_the_place_of_a_part() -> None:
    """The first convolution twice as large: everything after it follows."""
    chosen = frozenset({1})
    part = dict(parts_of(CHAIN, SHAPES, frozenset(), 1))[chosen]
    twice = program(2, [conv(0, 1), step("add", 2, 2)])
    inputs = random_inputs(SHAPES, seed=1)
    made = outputs_of(replaced(CHAIN, chosen, part.inputs, twice), inputs)
    doubled = [2 * inputs[0] % (2**31 - 1), *inputs[1:]]
    assert all(np.array_equal(a, b) for a, b in zip(made, outputs_of(CHAIN, doubled), strict=True))
