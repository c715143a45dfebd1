"""The judgement of mutants at a thin instance: what is evaluated where, and that nothing is taken on trust."""

from __future__ import annotations

import pytest

from graph_rewrite.latency import OperatorSpec
from graph_rewrite.layouts import Reorder
from graph_rewrite.mutate.equivalence import RandomTrials, prove
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.optimizing import rounds
from graph_rewrite.mutate.optimizing.optimizer import Optimizer
from graph_rewrite.mutate.optimizing.pricing import Prices
from graph_rewrite.mutate.optimizing.rounds import PricedProgram
from graph_rewrite.mutate.program import Step, Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import Repair
from graph_rewrite.mutate.search import Limits, mutants_of_subprogram, proved_repair
from graph_rewrite.mutate.thinning import MutantJudge
from graph_rewrite.rewriting.rule import Refusal
from tests.graph_rewrite.mutate.programs import BATCH_TO_WIDTH, CONV
from tests.graph_rewrite.mutate.proof_speed import counted_products

SUB = Subprogram(CONV, ((2, 32, 8, 8), (32, 32, 3, 3)), constants=frozenset({1}))
LIMITS = Limits(seconds=1e6, depth=2, keep=0.8)


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_rewrite.mutate.thinning.thin_instance.LEAST_WORK", 0)


def by_images(spec: OperatorSpec) -> float:
    """A convolution costs by the images of its batch, everything else a little."""
    shape = spec.input_types[0]
    return 10.0 * shape[1][0] if spec.op == "Conv" and shape is not None else 0.1


def kept(limits: Limits = LIMITS) -> list[PricedProgram]:
    return Optimizer(Prices(by_images), limits, rounds=1, clock=lambda: 0.0).mutants(SUB, until=1.0).programs


def test_the_real_shapes_are_evaluated_for_what_is_kept_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three trials of the original and of each program that is kept, and a little at the thin instance: an evaluation
    there is 1/16 of the work. Judged at the real shapes, a mutant takes four evaluations and its repair six more."""
    with counted_products() as products:
        found = kept()
    assert len(found) == 2
    proofs = 9 * (work_of(CONV, SUB.shapes) + sum(work_of(made.program, SUB.shapes) for made in found))
    after = sum(products)
    assert proofs <= after < 2 * proofs
    monkeypatch.setattr(rounds, "MutantJudge", lambda sub, thin=None: MutantJudge(sub, thin=sub))
    with counted_products() as products:
        direct = kept()
    assert [made.program for made in direct] == [made.program for made in found]
    assert sum(products) > 2 * after


def test_what_is_kept_has_the_proof_of_its_certificate() -> None:
    """It is that which `mutant_rule` would make: at the real shapes, at inputs that nothing was chosen by."""
    for made in kept():
        assert made.proof == prove(RandomTrials(CONV, SUB.shapes, seed=11), made.program)
        assert made.proof is not None
        assert made.proof.exact
        assert made.proof.positions == 2 * 32 * 8 * 8


def test_the_inputs_of_proofs_choose_nothing() -> None:
    judge = MutantJudge(SUB, thin=SUB)
    chosen = [judge.aim.inputs(0), *(judge.trials.inputs(trial) for trial in range(3))]
    proofs = [RandomTrials(CONV, SUB.shapes, seed=11).inputs(trial) for trial in range(3)]
    assert not any((a[0] == b[0]).all() for a in chosen for b in proofs)


def plant_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let programs be carried over with their filters turned upside down."""
    right = MutantJudge.at_real

    def wrong(judge: MutantJudge, program: TensorProgram) -> TensorProgram | None:
        made = right(judge, program)
        if made is None:
            return None
        flipped = Step("layout", (1,), (("chain", (Reorder((0, 1, 3, 2)),)),))
        moved = [Step(s.op, tuple(v + (v > 1) for v in s.inputs), s.params) for s in made.steps]
        steps = [Step(s.op, (s.inputs[0], 2), s.params) if s.op == "conv" else s for s in moved]
        return TensorProgram(2, (flipped, *steps), tuple(v + 1 for v in made.outputs))

    monkeypatch.setattr(MutantJudge, "at_real", wrong)


def test_nothing_is_kept_whose_proof_fails_at_the_real_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept()
    plant_an_error(monkeypatch)
    assert not kept()


def test_a_repair_that_is_not_equal_at_the_real_shapes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = MutantJudge(SUB)
    mutant = next(m for m in mutants_of_subprogram(SUB, LIMITS, judge=judge) if not m.finding.exact)
    repair = proved_repair(judge, mutant)
    assert isinstance(repair, Repair)
    assert judge.proof(repair.program) is not None
    plant_an_error(monkeypatch)
    refused = proved_repair(judge, mutant)
    assert isinstance(refused, Refusal)
    assert "not equal everywhere at the real shapes" in str(refused)


def test_failed_proofs_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fails in its first trial, and there are twelve of them at most."""
    plant_an_error(monkeypatch)
    asked: list[TensorProgram] = []
    monkeypatch.setattr(MutantJudge, "proof", lambda judge, program: asked.append(program))
    assert not kept(Limits(seconds=1e6, depth=2, keep=0.25))
    assert 0 < len(asked) <= 12


def test_a_program_has_a_form_at_either_instance() -> None:
    judge = MutantJudge(SUB)
    assert judge.thin.shapes == ((2, 8, 8, 8), (8, 8, 3, 3))
    assert judge.at_real(BATCH_TO_WIDTH) == BATCH_TO_WIDTH
    assert judge.at_thin(BATCH_TO_WIDTH) == BATCH_TO_WIDTH
    assert not judge.seems_equal(BATCH_TO_WIDTH)
    assert judge.seems_equal(CONV)
    half = TensorProgram(2, CONV.steps, (1,))
    assert judge.at_real(half) is None, "its output has another shape"
