"""Programs in the making, and the operators that repairs bring in: constants, and joins of several values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from graph_rewrite.layouts import Pad, Reorder
from graph_rewrite.mutate.boxes import cuts_of
from graph_rewrite.mutate.field import outputs_of
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.onnx_form import as_graph
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.repairs.draft import Draft, reduced
from graph_rewrite.mutate.value_types import types_of
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.soundness.domains.limbs import P


class TestConstants:
    @pytest.mark.parametrize("numbers", [[[1, 0, 1]], [[Fraction(2, 3), Fraction(-9, 4), 5]], [[4, 4, 4]], [[0, 0, 0]]])
    def test_are_the_same_numbers_everywhere(self, numbers: list[list[Fraction]]) -> None:
        draft = Draft([(2, 3)])
        made = draft.finish([draft.add("mul", 0, draft.constant(0, np.array(numbers, dtype=object)))])
        x = np.arange(1, 7).reshape(2, 3)
        exact = x * np.array([[Fraction(number) for number in row] for row in numbers], dtype=object)
        [residues] = outputs_of(made, [x])
        assert residues.tolist() == [[n.numerator * pow(n.denominator, -1, P) % P for n in row] for row in exact]
        [found] = run_graph(as_graph(made, [(2, 3)]), {"x0": x.astype(np.float64)})
        np.testing.assert_allclose(found, exact.astype(np.float64), rtol=1e-6)

    def test_equal_numbers_are_kept_once(self) -> None:
        draft = Draft([(2,)])
        made = draft.finish([draft.constant(0, np.zeros((50, 60), dtype=np.int64))])
        assert made.steps[0].param("numerators") == (0,)
        assert types_of(made, [(2,)])[-1].shape == (50, 60)

    def test_split_where_numbers_change(self) -> None:
        numbers = np.zeros((4, 5), dtype=np.int64)
        numbers[1:3, 2:] = 7
        draft = Draft([(2,)])
        assert cuts_of(draft.finish([draft.constant(0, numbers)]), [(2,)]) == [((1, 3), (2,))]

    def test_need_as_many_numbers_as_positions(self) -> None:
        wrong = program(1, [step("constant", 0, denominator=1, numerators=(1, 2), shape=(3,))])
        with pytest.raises(DoesNotFit, match="constant of"):
            types_of(wrong, [(2,)])

    def test_a_mask_zeroes_what_is_not_finite(self) -> None:
        draft = Draft([(3,)])
        made = draft.finish([draft.add("mul", 0, draft.constant(0, np.array([1, 0, 0])))])
        [found] = run_graph(as_graph(made, [(3,)]), {"x0": np.array([2.0, np.inf, np.nan])})
        np.testing.assert_array_equal(found, [2.0, 0.0, 0.0])


class TestSteps:
    def test_equal_ones_are_made_once(self) -> None:
        draft = Draft([(2, 3)])
        assert draft.layout(0, Reorder((1, 0))) == draft.layout(0, Reorder((1, 0))) == 1
        assert draft.shape(1) == (3, 2)

    def test_a_window_of_everything_is_the_value(self) -> None:
        draft = Draft([(2, 3)])
        assert draft.window(0, ((0, 2), (0, 3))) == 0
        assert draft.shape(draft.window(0, ((0, 2), (-1, 3)))) == (2, 4)

    def test_layouts_in_a_row_become_one(self) -> None:
        draft = Draft([(2, 3)])
        value = draft.as_one_layout(draft.layout(draft.layout(0, Pad(0, 1, 0)), Reorder((1, 0))))
        assert [each.chain for each in draft.finish([value]).steps] == [(Pad(0, 1, 0), Reorder((1, 0)))]

    def test_several_values_are_joined_by_one_step(self) -> None:
        draft = Draft([(2, 3), (2, 1), (2, 4)])
        made = draft.finish([draft.joined([0, 1, 2], 1)])
        assert len(made.steps) == 1
        assert types_of(made, [(2, 3), (2, 1), (2, 4)])[-1].shape == (2, 8)
        assert cuts_of(made, [(2, 3), (2, 1), (2, 4)]) == [((), (3, 4))]
        with pytest.raises(DoesNotFit, match="concat of"):
            draft.joined([0, 1, 2], 0)


def test_numbers_are_reduced_to_what_they_depend_on() -> None:
    rows = np.broadcast_to(np.array([1, 2, 2])[:, None], (2, 3, 4))
    assert reduced(rows).shape == (1, 3, 1)
