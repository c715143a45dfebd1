"""Programs: multi-linear operators applied one after another, without shapes until inputs have some.

    v0, v1: inputs        v2 = layout(v0)        v3 = conv(v2, v1)        v4 = layout(v3)        output v4

A subprogram of a graph, a mutant of it and the mutant's repaired form are all programs (PET, OSDI'21, section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.moves import Chain

SIGNATURES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    # Over [N, C, spatial axes], [M, C / groups, kernel] and, with three operands, [M]: the shapes imply the groups.
    "conv": ((2, 3), ("dilations", "pads", "strides")),
    # Average over windows; `counted` tells whether zeros of the border count. Pads as in ONNX, all starts first.
    "pool": ((1,), ("counted", "kernel", "pads", "strides")),
    # Of the last two axes; the axes before them broadcast.
    "matmul": ((2,), ()),
    # Element-wise; operands broadcast.
    "add": ((2,), ()),
    "mul": ((2,), ()),
    "concat": (tuple(range(2, 129)), ("axis",)),
    # The first operand with zeros at the end of its axes, up to the shape of the second one.
    "fit": ((2,), ()),
    # A chain of moves: reshape, transpose, pad, slice and unfold as one.
    "layout": ((1,), ("chain",)),
    # `count` equal blocks of axis `source` become the diagonal of (source, target), with zeros beside it.
    "diagonal": ((1,), ("count", "source", "target")),
    # The weights [C, 1, kernel] by which a convolution of C groups averages windows of its operand, [N, C, ...].
    "averaging": ((1,), ("kernel",)),
    # Fractions of a common denominator in a shape, or one for all; the operand only lends its element type.
    "constant": ((1,), ("denominator", "numerators", "shape")),
}
"""Operators: how many operands they may take, and their parameters, sorted."""
COMMUTATIVE = ("add", "mul")
"""Operators whose operands may change places."""
HEAVY = ("conv", "matmul", "pool")
"""Operators of which a subprogram must have one: layouts and sums alone have no mutant that pays."""


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """An operator applied to values, by number: those of the program's inputs come first, then one for each step."""

    op: str
    inputs: tuple[int, ...]
    params: tuple[tuple[str, Any], ...] = ()

    def param(self, name: str) -> Any:
        """Return the parameter of this name.

        Raises:
            KeyError: the operator has none of this name.
        """
        return dict(self.params)[name]

    @property
    def chain(self) -> Chain:
        """The moves of a layout step."""
        chain: Chain = self.param("chain")
        return chain


@dataclass(frozen=True, slots=True)
class TensorProgram:
    """`count` inputs, steps in an order in which operands come first, and the numbers of the outputs' values."""

    count: int
    steps: tuple[Step, ...]
    outputs: tuple[int, ...]

    def __str__(self) -> str:
        lines = [f"v{self.count + i} = {_text(step)}" for i, step in enumerate(self.steps)]
        return "; ".join([*lines, "return " + ", ".join(f"v{value}" for value in self.outputs)])

    def live(self) -> TensorProgram:
        """Return the program without steps that no output needs."""
        needed = set(self.outputs)
        for number in reversed(range(len(self.steps))):
            if self.count + number in needed:
                needed.update(self.steps[number].inputs)
        numbers = {value: value for value in range(self.count)}
        steps: list[Step] = []
        for number, step in enumerate(self.steps):
            if self.count + number in needed:
                numbers[self.count + number] = self.count + len(steps)
                steps.append(Step(step.op, tuple(numbers[v] for v in step.inputs), step.params))
        return TensorProgram(self.count, tuple(steps), tuple(numbers[v] for v in self.outputs))


@dataclass(frozen=True, slots=True)
class Subprogram:
    """A program with the shapes of its inputs, and where it comes from: values and nodes of a graph, by id; empty for a
    program made by hand. `constants` are the inputs, by number, that are known before run time."""

    program: TensorProgram
    shapes: tuple[Shape, ...]
    inputs: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    constants: frozenset[int] = frozenset()


def step(op: str, *inputs: int, **params: Any) -> Step:
    """Return a step; its parameters must be those of the operator.

    Raises:
        ValueError: an unknown operator, a wrong number of operands, or wrong parameters.
    """
    if op not in SIGNATURES:
        raise ValueError(f"there is no operator {op!r}; known are {', '.join(SIGNATURES)}")
    counts, names = SIGNATURES[op]
    if len(inputs) not in counts or tuple(sorted(params)) != names:
        raise ValueError(f"{op} takes {counts} operands and parameters {names}, not {len(inputs)}, {sorted(params)}")
    return Step(op, inputs, tuple(sorted(params.items())))


def program(count: int, steps: Sequence[Step], outputs: Sequence[int] = ()) -> TensorProgram:
    """Return a program; its output is the last value by default."""
    return TensorProgram(count, tuple(steps), tuple(outputs) or (count + len(steps) - 1,))


def _text(step: Step) -> str:
    operands = ", ".join(f"v{value}" for value in step.inputs)
    if step.op == "layout":
        return f"layout({operands}: {', then '.join(str(move) for move in step.chain)})"
    params = "".join(f", {name}={_number(value)}" for name, value in step.params)
    return f"{step.op}({operands}{params})"


def _number(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
