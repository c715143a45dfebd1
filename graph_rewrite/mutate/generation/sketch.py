"""Sketches: mutants as they were found at small shapes, to be completed at any."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.field import outputs_of
from graph_rewrite.mutate.generation.finish import Target, solve
from graph_rewrite.mutate.moves import Chain
from graph_rewrite.mutate.program import COMMUTATIVE, Step, TensorProgram, step
from graph_rewrite.mutate.value_types import ValueType, types_of
from graph_rewrite.soundness.domains.limbs import Residues


@dataclass(frozen=True, slots=True)
class Sketch:
    """A mutant at the shapes where it was found: steps, and per output the value and the moves it is brought there by.
    A window follows the moves, which depends on the shapes."""

    count: int
    steps: tuple[Step, ...]
    outputs: tuple[tuple[int, Chain], ...]
    share_right: float

    def without_layouts_of_outputs(self) -> TensorProgram:
        """Return the program of the steps alone: what it costs, the whole mutant costs at least."""
        values = tuple(dict.fromkeys(value for value, _ in self.outputs))
        return TensorProgram(self.count, self.steps, values)

    def at(self, targets: Sequence[Target], inputs: Sequence[Residues], keep: float) -> TensorProgram | None:
        """Return the mutant for inputs of any shape, with its windows; None where too little is right.

        Raises:
            DoesNotFit: a step does not apply to these shapes.
        """
        bare = self.without_layouts_of_outputs()
        types_of(bare, [array.shape for array in inputs])
        made = dict(zip(bare.outputs, outputs_of(bare, inputs), strict=True))
        steps, outputs = list(self.steps), []
        for (value, chain), target in zip(self.outputs, targets, strict=True):
            found = solve(target, made[value], [chain], keep)
            if found is None:
                return None
            outputs.append(_finished(steps, self.count, value, found[1]))
        return TensorProgram(self.count, tuple(steps), tuple(outputs)).live()


def _finished(steps: list[Step], count: int, value: int, chain: Chain) -> int:
    if not chain:
        return value
    steps.append(step("layout", value, chain=chain))
    return count + len(steps) - 1


def signature(program: TensorProgram, shapes: Sequence[Shape]) -> object:
    """Return what tells mutants apart: operators other than layouts, with the shapes of what they read, but no pads."""
    return signature_of(program.steps, types_of(program, shapes))


def signature_of(steps: Sequence[Step], types: Sequence[ValueType]) -> object:
    """Return the same for steps whose values have these types."""
    return tuple(
        (
            each.op, *(entry for entry in each.params if entry[0] != "pads"),
            *_sorted(each, [types[value].shape for value in each.inputs]),
        )
        for each in steps if each.op != "layout"
    )  # fmt: skip


def _sorted(each: Step, shapes: list[Shape]) -> list[Shape]:
    """Return the shapes of a step's operands, in one order where these may change places."""
    return sorted(shapes) if each.op in COMMUTATIVE else shapes
