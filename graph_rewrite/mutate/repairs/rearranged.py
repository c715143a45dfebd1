"""Mutants that rearrange images, apply their operators, and put the result back: with another rearrangement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from graph_rewrite.layouts import LayoutError, Shape
from graph_rewrite.mutate.field import outputs_of
from graph_rewrite.mutate.generation.finish import Target, solve
from graph_rewrite.mutate.moves import Chain, DoesNotFit
from graph_rewrite.mutate.program import Step, TensorProgram
from graph_rewrite.mutate.repairs.draft import Draft
from graph_rewrite.mutate.repairs.repair import RepairCase

Arrangement = TypeVar("Arrangement")
NEARLY_ALL = 0.9
"""The part of a result that must be found in its place: large ones hold some residues twice, of which one is found."""


class NotRepaired(Exception):
    """A mutant cannot be repaired in this way: the reason is the message."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The windows of an operator along one axis: `reach` positions beyond the one where a window starts, and the zeros
    before and after the axis."""

    reach: int
    stride: int
    before: int
    after: int


def reach_of(step: Step, kernel: Sequence[int], axis: int) -> Reach:
    """Return the windows of a conv or pool step along an axis of its operand, 2 or more."""
    i, pads = axis - 2, step.param("pads")
    dilation = step.param("dilations")[i] if step.op == "conv" else 1
    return Reach(dilation * (kernel[i] - 1), step.param("strides")[i], pads[i], pads[len(pads) // 2 + i])


class Rearranged(ABC, Generic[Arrangement]):
    """Build a mutant anew, with other layouts of its images. `Arrangement` says how an image lies then.

    Subclasses raise `NotRepaired` where they cannot.
    """

    def __init__(self, case: RepairCase) -> None:
        self.case = case
        self.draft = Draft(case.shapes)
        self._values = list(range(case.mutant.count))
        self._arranged: dict[int, Arrangement] = {}

    @abstractmethod
    def arrange(self, number: int, value: int, chain: Chain) -> tuple[int, Arrangement] | None:
        """Return the value of a mutant's layout step in its new arrangement; None where the step stays as it is."""

    @abstractmethod
    def windowed(self, step: Step, operands: list[int], arrangement: Arrangement) -> tuple[int, Arrangement]:
        """Apply a conv or pool to a rearranged image."""

    @abstractmethod
    def paired(
        self, step: Step, operands: list[int], arrangements: list[Arrangement | None]
    ) -> tuple[int, Arrangement]:
        """Apply an add or mul, one of whose operands at least is rearranged."""

    @abstractmethod
    def back(self, arrangement: Arrangement) -> Chain:
        """Return the moves that put a rearranged result back, but for a window."""

    def program(self) -> TensorProgram:
        """Return the mutant with other layouts.

        Raises:
            NotRepaired: the mutant has another form.
        """
        mutant = self.case.mutant
        try:
            for number, step in enumerate(mutant.steps):
                self._add(mutant.count + number, step)
            outputs = [self._finished(i, value) for i, value in enumerate(mutant.outputs)]
        except (DoesNotFit, LayoutError) as error:
            raise NotRepaired(str(error)) from error
        if not self._rearranges:
            raise NotRepaired(self.nothing)
        return self.draft.finish(outputs)

    nothing = "no layout of an image can be another one"
    _rearranges = False

    def _add(self, number: int, step: Step) -> None:
        operands = [self._values[value] for value in step.inputs]
        arrangements = [self._arranged.get(value) for value in step.inputs]
        known = [each for each in arrangements if each is not None]
        if not known:
            found = self.arrange(number, operands[0], step.chain) if step.op == "layout" else None
            if found is None:
                self._values.append(self.draft.add_step(Step(step.op, tuple(operands), step.params)))
                return
            self._rearranges = True
        elif step.op == "layout":
            # The way back: it is found anew where the value is an output.
            found = operands[0], known[0]
        elif step.op in ("conv", "pool"):
            if arrangements[0] is None or len(known) > 1:
                raise NotRepaired("filters are rearranged like images")
            found = self.windowed(step, operands, known[0])
        elif step.op in ("add", "mul"):
            found = self.paired(step, operands, arrangements)
        else:
            raise NotRepaired(f"{step.op} follows on a rearranged image")
        self._values.append(found[0])
        self._arranged[number] = found[1]

    def _finished(self, place: int, value: int) -> int:
        arrangement = self._arranged.get(value)
        if arrangement is None:
            return self._values[value]
        trials = self.case.trials
        wanted = trials.outputs(0)[place]
        [made] = outputs_of(self.draft.finish([self._values[value]]), trials.inputs(0))
        solved = solve(Target(wanted), made, [self.back(arrangement)], NEARLY_ALL)
        if solved is None:
            raise NotRepaired("the result cannot be put back")
        return self.draft.layout(self._values[value], *solved[1])


def uses_as_image(program: TensorProgram, value: int) -> list[Step]:
    """Return the conv and pool steps whose image is this value."""
    return [step for step in program.steps if step.op in ("conv", "pool") and step.inputs[0] == value]


def is_filter(program: TensorProgram, value: int) -> bool:
    """Tell whether a convolution has this value for its filters."""
    return any(step.op == "conv" and value in step.inputs[1:] for step in program.steps)


def kernel_of(step: Step, filters: Shape) -> Sequence[int]:
    """Return the kernel of a conv step with filters of this shape, or of a pool step."""
    return filters[2:] if step.op == "conv" else step.param("kernel")
