"""The filter and the proof: what they accept, in which boxes, and what they refuse."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.mutate import equivalence
from graph_rewrite.mutate.boxes import boxes_of, cuts_of, joined
from graph_rewrite.mutate.equivalence import RandomTrials, corners, passes_filter, prove
from graph_rewrite.mutate.moves import DoesNotFit, Window
from graph_rewrite.mutate.program import TensorProgram, program, step
from graph_rewrite.soundness.domains.limbs import P
from tests.graph_rewrite.mutate.programs import (
    BATCH_TO_WIDTH,
    CONV,
    DILATED,
    DILATED_TO_DENSE,
    conv,
    counterexample,
    layout,
)  # fmt: skip
from tests.graph_rewrite.mutate.proof_speed import counted_products
from tests.graph_rewrite.mutate.seeded import ONE_SUM, SEVERAL_SUMS, Original, count, refuted, seeded_mutant

IMAGES = ((2, 3, 8, 8), (4, 3, 3, 3))


def test_batch_into_width_is_wrong_at_the_seam() -> None:
    finding = prove(RandomTrials(CONV, IMAGES), BATCH_TO_WIDTH)
    assert finding is not None
    assert finding.wrong == ((((0, 1), (0, 4), (0, 8), (7, 8)), ((1, 2), (0, 4), (0, 8), (0, 1))),)
    assert finding.share_wrong == 1 / 8
    assert not finding.exact


def test_dilated_to_dense_is_wrong_where_the_phases_meet() -> None:
    finding = prove(RandomTrials(DILATED, IMAGES), DILATED_TO_DENSE)
    assert finding is not None
    wrong = np.zeros((8, 8), dtype=bool)
    for _, _, rows, columns in finding.wrong[0]:
        wrong[slice(*rows), slice(*columns)] = True
    seam = np.isin(np.arange(8), (1, 6))  # the last even row and the first odd one: 3 and 4 of the layout
    np.testing.assert_array_equal(wrong, seam[:, None] | seam[None, :])


def test_an_equal_program_has_no_wrong_box_and_a_bound() -> None:
    both = program(2, [layout(0, Window((0, 0, -1, -1), (2, 3, 10, 10))), conv(2, 1, pad=0)])
    finding = prove(RandomTrials(CONV, IMAGES), both)
    assert finding is not None
    assert finding.exact
    assert finding.wrong == ((),)
    assert finding.share_wrong == 0
    assert finding.error == pytest.approx(2 * 4 * 8 * 8 * (2 / P) ** 3)
    assert finding.to_json()["error_bound"] == finding.error


def test_positions_that_decide_one_sum_of_products_do_not_decide_two() -> None:
    first, second = counterexample(12)
    trials = RandomTrials(first, ((1, 1, 36),))
    (cuts,) = cuts_of(second, trials.shapes)
    assert list(boxes_of(joined(cuts, trials.cuts[0]), (1, 1, 12))) == [((0, 1), (0, 1), (0, 12))]
    assert passes_filter(trials, second)
    *_, masks = trials.agreement(second)
    assert np.flatnonzero(masks[0]).tolist() == [0, 1]
    assert prove(trials, second, keep=0.01) is None
    finding = prove(trials, second)
    assert finding is not None
    assert finding.share_wrong == 1


@settings(max_examples=150)
@given(st.integers(0, 2**32))
def test_m_plus_1_positions_decide_one_sum_of_products(seed: int) -> None:
    made = seeded_mutant(seed, ONE_SUM)
    if made is None:
        return
    original, shapes, mutant = made
    trials = RandomTrials(original, shapes, seed=seed)
    *_, masks = trials.agreement(mutant)
    for mask, first, second in zip(masks, trials.cuts, cuts_of(mutant, shapes), strict=True):
        for box in boxes_of(joined(first, second), mask.shape):
            whole = mask[tuple(slice(*side) for side in box)]
            assert all(mask[place] for place in corners(box)) == whole.all()


@pytest.mark.parametrize("originals", [ONE_SUM, SEVERAL_SUMS], ids=["one sum", "several sums"])
def test_no_seeded_mutant_is_accepted_that_a_second_prime_refutes(originals: list[Original]) -> None:
    """All 10,000: make mutants."""
    found = count(300, originals=originals)
    assert found.accepted > 30
    assert 5 < found.exact < found.accepted
    assert not found.refuted


def test_the_second_prime_refutes_a_finding_that_leaves_out_a_box() -> None:
    trials = RandomTrials(CONV, IMAGES)
    finding = prove(trials, BATCH_TO_WIDTH)
    assert finding is not None
    assert not refuted(CONV, IMAGES, BATCH_TO_WIDTH, finding, 0)
    less = equivalence.Disagreement((finding.wrong[0][:1],), (0.0,), 512, 2, 3, 0.0)
    assert refuted(CONV, IMAGES, BATCH_TO_WIDTH, less, 0)


def test_too_little_that_is_right_is_refused() -> None:
    trials = RandomTrials(CONV, IMAGES)
    assert prove(trials, BATCH_TO_WIDTH, keep=0.875) is not None
    assert prove(trials, BATCH_TO_WIDTH, keep=0.88) is None
    assert not passes_filter(trials, BATCH_TO_WIDTH, keep=0.88)
    assert passes_filter(trials, BATCH_TO_WIDTH, keep=0.875)


def test_outputs_are_judged_one_by_one() -> None:
    two = program(3, [conv(0, 1), conv(0, 2)], [3, 4])
    mutant = TensorProgram(3, (conv(0, 1), conv(0, 2, pad=(1, 0, 1, 2))), (3, 4))
    finding = prove(RandomTrials(two, ((1, 2, 6, 6), (2, 2, 3, 3), (1, 2, 3, 3))), mutant)
    assert finding is not None
    assert finding.wrong[0] == ()
    assert finding.wrong[1]
    assert finding.shares[0] == 0
    assert finding.share_wrong == max(finding.shares)


def test_many_boxes_become_those_of_the_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equivalence, "_LISTED", 2)
    finding = prove(RandomTrials(CONV, IMAGES), BATCH_TO_WIDTH)
    assert finding is not None
    assert finding.wrong == ((((0, 1), (0, 4), (0, 8), (7, 8)), ((1, 2), (0, 4), (0, 8), (0, 1))),)


def test_a_proof_multiplies_three_times_per_trial_and_multiplication() -> None:
    """Three products of limbs, three trials: 9 multiplications of float64 for each one of either program, and not one
    of them twice. At 10 * 10^9 of them a second that is a second per 10^9; `make mutants` measures it."""
    shapes = ((2, 8, 12, 12), (6, 8, 3, 3))
    with counted_products() as products:
        trials = RandomTrials(CONV, shapes)
        assert prove(trials, BATCH_TO_WIDTH) is not None
    convolved = 2 * 2 * 6 * 12 * 12 * 8 * 9
    assert sum(products) == 9 * convolved
    with counted_products() as products:
        assert prove(trials, BATCH_TO_WIDTH) is not None
    assert sum(products) == 9 * convolved // 2, "what the original gives is known"


def test_a_proof_ends_with_the_first_trial_that_refutes() -> None:
    shapes = ((2, 8, 12, 12), (6, 8, 3, 3))
    with counted_products() as products:
        assert prove(RandomTrials(CONV, shapes), program(2, [conv(0, 1, pad=(0, 2, 2, 0))]), keep=0.9) is None
    assert sum(products) == 3 * 2 * (2 * 6 * 12 * 12 * 8 * 9)


def test_a_mutant_of_other_inputs_is_no_mutant() -> None:
    with pytest.raises(DoesNotFit):
        prove(RandomTrials(CONV, IMAGES), program(2, [step("matmul", 0, 1)]))
