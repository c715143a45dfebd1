"""The identity of programs: equal but for the order of steps and of the operands of sums and products, and for layouts
of another form."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.ir.hashing import digest
from graph_rewrite.layouts import Layout, Shape
from graph_rewrite.mutate.moves import layout_of
from graph_rewrite.mutate.program import COMMUTATIVE, TensorProgram
from graph_rewrite.mutate.value_types import types_of

Identity = tuple[str, ...]
"""A digest for each output."""


def identity_of(program: TensorProgram, shapes: Sequence[Shape]) -> Identity:
    """Return what is the same for programs that apply the same operators to the same operands at these shapes. Layouts
    in a row count by their normal form, and those that change nothing do not count.

    Raises:
        DoesNotFit: a step does not take its operands.
    """
    types = types_of(program, shapes)
    computed: list[tuple[str, Layout]] = []
    for number, type in enumerate(types):
        if number < program.count:
            computed.append((str(number), Layout(type.shape)))
            continue
        step = program.steps[number - program.count]
        if step.op == "layout":
            value, layout = computed[step.inputs[0]]
            computed.append((value, layout.then(layout_of(step.chain, layout.shape))))
            continue
        operands = [_text(*computed[value]) for value in step.inputs]
        if step.op in COMMUTATIVE:
            operands.sort()
        computed.append((digest(step.op, repr(step.params), *operands), Layout(type.shape)))
    return tuple(_text(*computed[value]) for value in program.outputs)


def _text(value: str, layout: Layout) -> str:
    return digest(value, repr(layout.normalised().primitives))
