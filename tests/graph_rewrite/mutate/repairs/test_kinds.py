"""Each kind of repair makes the mutants of the paper equal to their originals at every position."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.repairs import Repair, RepairCase, gap_repair, halo_repair, map_repair, recompute_repair
from graph_rewrite.mutate.repairs.constant_map import fraction_of, inverses
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.soundness.domains.limbs import P
from tests.graph_rewrite.mutate.repairs.cases import (
    dilated,
    dilated_odd,
    is_equal,
    is_proved,
    merged_batch,
    merged_chain,
    merged_residual,
    pooled,
    shifted_input,
    split,
    strided,
)

IMAGES_5 = ((4, 2, 6, 5), (3, 2, 5, 5))
GAPS: dict[str, Callable[[], RepairCase]] = {
    "width": lambda: merged_batch(3),
    "height": lambda: merged_batch(2),
    "two of four images": lambda: merged_batch(3, IMAGES_5, pads=(2, 2, 2, 2)),
    "uneven pads": lambda: merged_batch(2, IMAGES_5, pads=(1, 0, 3, 4)),
    "dilated": dilated,
    "dilated, odd": dilated_odd,
    "chain": merged_chain,
    "residual": merged_residual,
}
HALOS = {"split": split, "split, strided": lambda: split(2)}
MAPS = {"average": pooled, "constant added": shifted_input}
MUTANTS = {**GAPS, **HALOS, **MAPS, "strided": strided}


def steps() -> Callable[[TensorProgram], float]:
    """Return a cost: the number of steps."""
    return lambda program: len(program.steps)


@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_are_wrong_in_a_part(name: str) -> None:
    case = MUTANTS[name]()
    assert any(case.wrong)
    assert not is_equal(case, case.mutant)


@pytest.mark.parametrize("name", GAPS)
def test_gap(name: str) -> None:
    case = GAPS[name]()
    repair = gap_repair(case, steps())
    assert isinstance(repair, Repair), repair
    assert is_equal(case, repair.program)
    assert is_proved(case, repair.program)
    assert sum(step.op == "conv" for step in repair.program.steps) == sum(s.op == "conv" for s in case.mutant.steps)


def test_gap_of_a_radius_lies_between_two_images() -> None:
    repair = gap_repair(merged_batch(3), steps())
    assert isinstance(repair, Repair)
    assert str(repair.program).startswith("v2 = layout(v0: pad(3, 0+1), then Move")


def test_a_large_result_holds_some_residues_twice() -> None:
    case = merged_batch(3, ((2, 1, 300, 300), (1, 1, 3, 3)))
    assert len(np.unique(case.trials.outputs(0)[0])) < 2 * 300 * 300
    repair = gap_repair(case, steps())
    assert isinstance(repair, Repair)
    assert is_proved(case, repair.program)


def test_a_mask_zeroes_the_gap_between_operators_of_a_chain() -> None:
    repair = gap_repair(merged_chain(), steps())
    assert isinstance(repair, Repair)
    assert [step.op for step in repair.program.steps] == ["layout", "conv", "constant", "mul", "conv", "layout"]


@pytest.mark.parametrize("name", HALOS)
def test_halo(name: str) -> None:
    case = HALOS[name]()
    repair = halo_repair(case, steps())
    assert isinstance(repair, Repair), repair
    assert is_equal(case, repair.program)
    assert is_proved(case, repair.program)
    assert [step.op for step in repair.program.steps] == ["layout", "conv", "layout"]


@pytest.mark.parametrize("name", MAPS)
def test_map(name: str) -> None:
    case = MAPS[name]()
    repair = map_repair(case, steps())
    assert isinstance(repair, Repair), repair
    assert is_equal(case, repair.program)
    assert is_proved(case, repair.program)


def test_a_factor_is_one_operator_over_a_small_map() -> None:
    repair = map_repair(pooled(), steps())
    assert isinstance(repair, Repair)
    [pool, constant, product] = repair.program.steps
    assert (pool.op, constant.op, product.op) == ("pool", "constant", "mul")
    assert constant.param("shape") == (1, 1, 4, 6)


@settings(deadline=None)
@given(number=st.fractions(-1000, 1000, max_denominator=1000).filter(bool))
def test_a_residue_is_read_as_the_fraction_it_stands_for(number: Fraction) -> None:
    residue = number.numerator * pow(number.denominator, -1, P) % P
    if max(abs(number.numerator), number.denominator) <= 1024:
        assert fraction_of(residue) == number
    assert inverses(np.array([residue]))[0] * residue % P == 1


def test_few_residues_are_fractions_of_small_terms() -> None:
    drawn = np.random.default_rng(0).integers(1, P, 10_000).tolist()
    assert sum(fraction_of(residue) is not None for residue in drawn) < 20


@pytest.mark.parametrize("name", MUTANTS)
def test_recompute(name: str) -> None:
    case = MUTANTS[name]()
    repair = recompute_repair(case, steps())
    assert isinstance(repair, Repair), repair
    assert is_equal(case, repair.program)
    assert is_proved(case, repair.program)


@pytest.mark.parametrize(
    ("method", "case", "reason"),
    [
        (gap_repair, split, "no images are merged"),
        (gap_repair, pooled, "no images are merged"),
        (gap_repair, strided, "no images are merged"),
        (halo_repair, lambda: merged_batch(3), "no images are split"),
        (halo_repair, strided, "no images are split"),
        (map_repair, lambda: merged_batch(3), "neither the difference nor the factor is constant"),
        (map_repair, strided, "neither the difference nor the factor is constant"),
    ],
)
def test_refusals_say_why(method: Callable[..., Repair | Refusal], case: Callable[[], RepairCase], reason: str) -> None:
    found = method(case(), steps())
    assert isinstance(found, Refusal)
    assert found.reason == reason


@pytest.mark.parametrize("method", [gap_repair, halo_repair, map_repair, recompute_repair])
def test_an_equal_mutant_needs_no_repair(method: Callable[..., Repair | Refusal]) -> None:
    case = merged_batch(3)
    found = method(RepairCase(case.trials, case.original, ((),)), steps())
    assert isinstance(found, Refusal)
    assert found.reason == "nothing is wrong"
