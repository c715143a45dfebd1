"""Programs in one line: the operators that compute."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.layouts import Shape
from graph_rewrite.mutate.program import TensorProgram
from graph_rewrite.mutate.value_types import types_of

_SHOWN = 8
"""Numbers of a parameter that are shown; of more, as of a map of factors, the first ones."""


def summary(program: TensorProgram, shapes: tuple[Shape, ...]) -> str:
    """Return the operators of a program that compute, with the shapes of what they read."""
    types = types_of(program, shapes)
    found = []
    for step in program.steps:
        if step.op != "layout":
            operands = " ".join(f"[{','.join(map(str, types[value].shape))}]" for value in step.inputs)
            params = "".join(
                f" {name} {_numbers(value)}" for name, value in step.params
                if isinstance(value, tuple) and set(value) != ({0} if name == "pads" else {1})
            )  # fmt: skip
            found.append(f"{step.op} {operands}{params}")
    return " -> ".join(found) or "layout alone"


def _numbers(values: Sequence[int]) -> str:
    shown = "x".join(map(str, values[:_SHOWN]))
    return shown if len(values) <= _SHOWN else f"{shown} and {len(values) - _SHOWN} more"
