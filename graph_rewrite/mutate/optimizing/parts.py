"""Parts of programs: some connected steps as a program of their own, and what replaces them (PET, algorithm 2)."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.program import HEAVY, Step, Subprogram, TensorProgram
from graph_rewrite.mutate.value_types import types_of


def parts_of(
    program: TensorProgram, shapes: tuple[Shape, ...], constants: frozenset[int], largest: int
) -> Iterator[tuple[frozenset[int], Subprogram]]:
    """Yield the connected sets of up to `largest` steps with a heavy one among them, the smaller ones first, each with
    the program that it is. The whole program is none of them.

    Args:
        program: the program.
        shapes: the shapes of its inputs.
        constants: inputs that are known before run time.
        largest: steps of a set at most.
    """
    known = _constant_values(program, constants)
    moving = [n for n in range(len(program.steps)) if program.count + n not in known]
    near = {n: _neighbours(program, n).intersection(moving) for n in moving}
    level = [frozenset([n]) for n in moving if program.steps[n].op in HEAVY]
    types = types_of(program, shapes)
    seen = set[frozenset[int]]()
    for _ in range(largest):
        for chosen in level:
            if len(chosen) < len(moving) and _is_convex(program, chosen):
                made, inputs = _part(program, chosen)
                own = frozenset(i for i, value in enumerate(inputs) if value in known)
                yield chosen, Subprogram(made, tuple(types[v].shape for v in inputs), inputs, (), (), own)
        seen.update(level)
        wider = (chosen | {other} for chosen in level for n in chosen for other in near[n] if other not in chosen)
        level = [chosen for chosen in dict.fromkeys(wider) if chosen not in seen]


def replaced(
    program: TensorProgram, chosen: frozenset[int], inputs: tuple[int, ...], other: TensorProgram
) -> TensorProgram:
    """Return a program with another one in the place of some of its steps.

    Args:
        program: the program.
        chosen: the steps that go.
        inputs: the values of the program that are the other one's inputs.
        other: the program that comes; its outputs are those values of the steps that are read outside, in their order.
    """
    gone = dict(zip(_read_outside(program, chosen), other.outputs, strict=True))
    steps: list[Step] = []
    numbers = {value: value for value in range(program.count)}
    inner: dict[int, int] = {}

    def place(step: Step, operands: tuple[int, ...]) -> int:
        steps.append(Step(step.op, operands, step.params))
        return program.count + len(steps) - 1

    def number(value: int) -> int:
        if value not in numbers:
            if value in gone:
                if not inner:
                    inner.update({i: number(operand) for i, operand in enumerate(inputs)})
                    for n, each in enumerate(other.steps):
                        inner[other.count + n] = place(each, tuple(inner[v] for v in each.inputs))
                numbers[value] = inner[gone[value]]
            else:
                each = program.steps[value - program.count]
                numbers[value] = place(each, tuple(number(v) for v in each.inputs))
        return numbers[value]

    outputs = tuple(number(value) for value in program.outputs)
    return TensorProgram(program.count, tuple(steps), outputs).live()


def _constant_values(program: TensorProgram, constants: Collection[int]) -> set[int]:
    """Return the values that are known before run time."""
    found = set(constants)
    for n, step in enumerate(program.steps):
        if step.op == "constant" or found.issuperset(step.inputs):
            found.add(program.count + n)
    return found


def _neighbours(program: TensorProgram, number: int) -> set[int]:
    value = program.count + number
    readers = {n for n, step in enumerate(program.steps) if value in step.inputs}
    return readers | {v - program.count for v in program.steps[number].inputs if v >= program.count}


def _read_outside(program: TensorProgram, chosen: frozenset[int]) -> tuple[int, ...]:
    """Return the values of steps that other steps or the outputs read."""
    read = set(program.outputs)
    read.update(v for n, step in enumerate(program.steps) if n not in chosen for v in step.inputs)
    return tuple(program.count + n for n in sorted(chosen) if program.count + n in read)


def _is_convex(program: TensorProgram, chosen: frozenset[int]) -> bool:
    """Tell whether no path leaves some steps and comes back."""
    inside = {program.count + n for n in chosen}
    tainted = set[int]()
    for n, step in enumerate(program.steps):
        if n in chosen:
            if tainted.intersection(step.inputs):
                return False
        elif tainted.intersection(step.inputs) or inside.intersection(step.inputs):
            tainted.add(program.count + n)
    return True


def _part(program: TensorProgram, chosen: frozenset[int]) -> tuple[TensorProgram, tuple[int, ...]]:
    """Return steps as a program, and the values that are its inputs."""
    inside = {program.count + n for n in chosen}
    order = sorted(chosen)
    inputs = tuple(dict.fromkeys(v for n in order for v in program.steps[n].inputs if v not in inside))
    numbers = {value: i for i, value in enumerate(inputs)}
    numbers |= {program.count + n: len(inputs) + i for i, n in enumerate(order)}
    steps = [Step(s.op, tuple(numbers[v] for v in s.inputs), s.params) for s in (program.steps[n] for n in order)]
    outputs = tuple(numbers[value] for value in _read_outside(program, chosen))
    return TensorProgram(len(inputs), tuple(steps), outputs), inputs
