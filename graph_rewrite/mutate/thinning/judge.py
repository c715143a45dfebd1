"""The judgement of mutants: their windows, boxes and repairs at a thin instance, and one proof at the real shapes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from graph_rewrite.layouts import LayoutError
from graph_rewrite.mutate.equivalence import PROOF_SEED, Disagreement, RandomTrials, prove
from graph_rewrite.mutate.moves import DoesNotFit
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.repairs import Cost
from graph_rewrite.mutate.thinning.carrying import carried, carried_box
from graph_rewrite.mutate.thinning.thin_instance import thin_instance
from graph_rewrite.mutate.value_types import types_of


class MutantJudge:
    """A subprogram and its thin instance, with what both give at random inputs.

    The thin instance tells which mutants are worth it: where they are wrong, and which repairs mend them. Boxes and
    programs are carried over to the real shapes, in proportion. What is offered is proved there, at inputs that nothing
    was chosen by.

    Args:
        real: the subprogram.
        thin: its thin instance; by default the one that is made for it.
        seed: draws the inputs of the thin instance.
    """

    def __init__(self, real: Subprogram, thin: Subprogram | None = None, seed: int = 2) -> None:
        self.real, self.thin = real, thin_instance(real) if thin is None else thin
        self.trials = RandomTrials(self.thin.program, self.thin.shapes, seed)
        # Windows are chosen by values of their own: those of the trials must not depend on the mutant that they judge.
        self.aim = RandomTrials(self.thin.program, self.thin.shapes, seed + 1, trials=1)
        self._proofs = RandomTrials(real.program, real.shapes, PROOF_SEED)

    def at_real(self, program: TensorProgram) -> TensorProgram | None:
        """Return a program of the thin instance at the real shapes; None where it has no form there."""
        made = self.steps_at_real(program)
        if made is None:
            return None
        types, wanted = types_of(made, self.real.shapes), self._proofs.output_types
        shapes = [types[value].shape for value in made.outputs]
        return made if shapes == [type.shape for type in wanted] else None

    def steps_at_real(self, program: TensorProgram) -> TensorProgram | None:
        """Return the same of a program whose outputs have any shapes."""
        return _carried(program, self.thin, self.real)

    def at_thin(self, program: TensorProgram) -> TensorProgram | None:
        """Return a program of the real shapes at the thin instance; None where it has no form there."""
        return _carried(program, self.real, self.thin)

    def finding_at_real(self, finding: Disagreement) -> Disagreement | None:
        """Return what was found at the thin instance, with the boxes that are meant at the real shapes; None where one
        of them has no form there. Positions and error stay those of the thin instance."""
        thin, real = ([type.shape for type in trials.output_types] for trials in (self.trials, self._proofs))
        try:
            wrong = tuple(
                tuple(carried_box(box, before, after) for box in boxes)
                for boxes, before, after in zip(finding.wrong, thin, real, strict=True)
            )
        except DoesNotFit:
            return None
        return replace(finding, wrong=wrong)

    def cost(self, program: TensorProgram, of: Cost) -> float:
        """Return what a program of the thin instance costs at the real shapes; infinite where it has no form there."""
        made = self.at_real(program)
        return inf if made is None else of(made)

    def seems_equal(self, program: TensorProgram) -> bool:
        """Tell whether a program of the real shapes is equal at the thin instance, or has no form there."""
        thin = self.at_thin(program)
        return thin is None or prove(self.trials, thin, keep=1.0) is not None

    def proof(self, program: TensorProgram) -> Disagreement | None:
        """Return the proof that a program is equal to the subprogram at every position of the real shapes; None where
        it is not."""
        return prove(self._proofs, program, keep=1.0)


def _carried(program: TensorProgram, source: Subprogram, target: Subprogram) -> TensorProgram | None:
    try:
        return carried(program, source.shapes, target.shapes)
    except (DoesNotFit, LayoutError):
        return None
