"""Programs as JSON, and back.

    {"inputs": 2, "steps": [["layout", [0], {"chain": [["Move", 0, "outer", 3, "outer", 2, false]]}], ...],
     "outputs": [4]}

A move is its class with its fields. What is read may come from anywhere: every part is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from graph_rewrite.errors import UserError
from graph_rewrite.layouts import Crop, Fold, Fuse, Pad, Reorder, Split, Unfold
from graph_rewrite.mutate.moves import LayoutMove, Move, Tiles, Window
from graph_rewrite.mutate.program import Step, TensorProgram, step

_MOVES: Mapping[str, type] = {
    kind.__name__: kind for kind in (Move, Tiles, Window, Split, Fuse, Reorder, Pad, Crop, Unfold, Fold)
}
_MOST_STEPS = 10_000

T = TypeVar("T")


class MalformedMutantError(UserError):
    """Data that are no mutant, or whose proof fails."""


def program_to_json(program: TensorProgram) -> dict[str, Any]:
    """Return a program as plain values."""
    steps = [
        [each.op, list(each.inputs), {name: _plain(name, value) for name, value in each.params}]
        for each in program.steps
    ]  # fmt: skip
    return {"inputs": program.count, "steps": steps, "outputs": list(program.outputs)}


def program_from_json(values: Any) -> TensorProgram:
    """Return the program of plain values.

    Raises:
        MalformedMutantError: a part is missing or of the wrong form, or a step reads what comes after it.
    """
    return checked("program", lambda: _program(values))


def checked(what: str, read: Callable[[], T]) -> T:
    """Return what a function reads from data of any form.

    Raises:
        MalformedMutantError: it raised one of the errors that data of the wrong form lead to.
    """
    try:
        return read()
    except MalformedMutantError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError) as error:
        raise MalformedMutantError(
            f"not a mutant: its {what} cannot be read: {type(error).__name__}: {error}"
        ) from error


def integer(value: Any) -> int:
    """Return a whole number of plain values.

    Raises:
        TypeError: it is none.
    """
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def integers(values: Any) -> tuple[int, ...]:
    """Return whole numbers of a list.

    Raises:
        TypeError: it is no list, or one of them is no whole number.
    """
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(map(integer, values))


def _plain(name: str, value: Any) -> Any:
    if name == "chain":
        return [[type(move).__name__, *(_listed(getattr(move, f.name)) for f in fields(move))] for move in value]
    return _listed(value)


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _program(values: Any) -> TensorProgram:
    count, entries = integer(values["inputs"]), values["steps"]
    if not count >= 0 or len(entries) > _MOST_STEPS:
        raise ValueError(f"{count} inputs, {len(entries)} steps")
    steps: list[Step] = []
    for op, operands, params in entries:
        inputs = _values(operands, count + len(steps))
        steps.append(step(op, *inputs, **{name: _param(name, value) for name, value in params.items()}))
    outputs = _values(values["outputs"], count + len(steps))
    if not outputs:
        raise ValueError("no outputs")
    return TensorProgram(count, tuple(steps), outputs)


def _values(numbers: Any, count: int) -> tuple[int, ...]:
    found = integers(numbers)
    if not all(0 <= value < count for value in found):
        raise ValueError(f"{found}: there are {count} values by then")
    return found


def _param(name: str, value: Any) -> Any:
    if name == "chain":
        return tuple(map(_move, value))
    return integers(value) if isinstance(value, list) else integer(value)


def _move(values: Any) -> LayoutMove:
    name, *parts = values
    kind = _MOVES[name]
    read = [_FIELDS[str(field.type)](part) for field, part in zip(fields(kind), parts, strict=True)]
    made: LayoutMove = kind(*read)
    return made


def _place(value: Any) -> str:
    if value not in ("outer", "inner"):
        raise ValueError(f"{value!r} is no place")
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "int": integer, "bool": _flag, "Place": _place, "tuple[int, ...]": integers
}  # fmt: skip
"""Readers of the fields of moves, by their annotations."""
