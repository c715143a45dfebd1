"""The choice of a repair: by cost, and only if it is proved."""

from __future__ import annotations

import pytest

from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.repairs import REPAIRS, Cost, Repair, RepairCase, choose
from graph_rewrite.rewriting.rule import Refusal
from tests.graph_rewrite.mutate.proof_speed import counted_products
from tests.graph_rewrite.mutate.repairs.cases import is_equal, merged_batch, pooled, split


def cost_of(program: TensorProgram) -> float:
    return len(program.steps)


def chosen(case: RepairCase, cost: Cost = cost_of, **others: object) -> Repair | Refusal:
    return choose(case, cost, **others)  # type: ignore[arg-type]


@pytest.mark.parametrize(("case", "kind"), [(merged_batch(3), "gap"), (split(), "halo"), (pooled(), "map")])
def test_the_cheapest_is_taken(case: RepairCase, kind: str) -> None:
    found = chosen(case)
    assert isinstance(found, Repair)
    assert found.kind == kind
    assert found.cost == cost_of(found.program)
    assert is_equal(case, found.program)
    other = chosen(case, lambda program: -cost_of(program))
    assert isinstance(other, Repair)
    assert other.kind == "recompute"


def test_a_repair_that_is_wrong_is_not_taken() -> None:
    case = merged_batch(3)
    methods = {**REPAIRS, "gap": lambda case, cost: Repair("gap", case.mutant, 0.0)}
    found = chosen(case, methods=methods)
    assert isinstance(found, Repair)
    assert found.kind == "recompute"


def test_a_refusal_names_the_reasons_of_all_kinds() -> None:
    case = merged_batch(3)
    methods = {kind: REPAIRS[kind] for kind in ("map", "halo")}
    found = chosen(case, methods={**methods, "gap": lambda case, cost: Repair("gap", case.mutant, 0.0)})
    assert isinstance(found, Refusal)
    assert found.reason == (
        "map: neither the difference nor the factor is constant; halo: no images are split; "
        "gap: the repaired program is not equal everywhere"
    )


def test_what_costs_too_much_is_refused_without_a_proof() -> None:
    case = merged_batch(3)
    limit = cost_of(chosen(case).program)  # type: ignore[union-attr]
    assert isinstance(chosen(case, most=limit + 1), Repair)
    case.trials.outputs(0)
    with counted_products() as products:
        found = chosen(case, methods={kind: REPAIRS[kind] for kind in ("gap", "recompute")}, most=limit)
    assert isinstance(found, Refusal)
    assert found.reason == "gap: it costs too much; recompute: it costs too much"
    assert len(products) < 3 * 3, "a proof takes three trials of three products"
