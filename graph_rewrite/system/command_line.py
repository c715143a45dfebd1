"""Command lines out of dataclasses (tyro), with help that reads well.

tyro keeps the line breaks of a field's docstring, shows an optional number as `{None}|INT`, and tells defaults that say
nothing, such as `(default: None)` and that of a switch. Here the docstring is one paragraph, and neither is shown.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from itertools import pairwise
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

_POSITIONAL = get_args(tyro.conf.Positional[int])[1]
_PREPARED: set[type] = set()


def parse(kind: Any, argv: Iterable[str] | None, program: str, *, pairs: bool = False) -> Any:
    """Return the dataclass that a command line describes; a wrong one ends the program with code 2 and says what is
    wrong.

    Args:
        kind: the dataclass, or a union of subcommands.
        argv: the arguments; those of the process by default.
        program: its name, for the help.
        pairs: give every switch two forms, `--x` and `--no-x`; otherwise it has the one that changes its default.
    """
    for cls in _dataclasses(kind):
        _prepare(cls)
    config = (tyro.conf.PositionalMetavarFromFieldName, *(() if pairs else (tyro.conf.FlagCreatePairsOff,)))
    return tyro.cli(kind, args=None if argv is None else list(argv), prog=program, config=config)


def _dataclasses(kind: Any) -> Iterator[type]:
    """Yield the dataclasses in a type: itself, members of a union, and those that are fields of others."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        yield from (base for base in reversed(kind.__mro__) if dataclasses.is_dataclass(base))
        for hint in get_type_hints(kind, include_extras=True).values():
            yield from _dataclasses(hint)
    else:
        for part in get_args(kind):
            yield from _dataclasses(part)


def _prepare(cls: type) -> None:
    """Annotate the fields that a dataclass itself declares with their help."""
    if cls in _PREPARED:
        return
    _PREPARED.add(cls)
    hints, texts = get_type_hints(cls, include_extras=True), _docstrings(cls)
    for field in dataclasses.fields(cls):
        if field.name in texts:
            cls.__annotations__[field.name] = _annotated(hints[field.name], texts[field.name], field.default)


def _annotated(hint: Any, text: str, default: object) -> Any:
    plain, *extras = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    metavar = None if _POSITIONAL in extras else _metavar(plain)
    silent = default is None or default == "" or isinstance(default, bool)
    # An annotation of the field's own comes later, and counts.
    described = tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint="" if silent else None)
    return Annotated[(plain, described, *extras)]


def _metavar(kind: Any) -> str | None:
    """Return the name of an optional value's type; None where the type is not optional."""
    parts = [part for part in get_args(kind) if part is not NoneType]
    if NoneType not in get_args(kind) or len(parts) != 1:
        return None
    if get_origin(parts[0]) is Literal:
        return "{" + ",".join(map(str, get_args(parts[0]))) + "}"
    return str(getattr(parts[0], "__name__", parts[0])).upper()


def _docstrings(cls: type) -> dict[str, str]:
    """Return the docstring of each field that a class declares, as one paragraph."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    texts: dict[str, str] = {}
    assert isinstance(body, ast.ClassDef)
    for field, text in pairwise(body.body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts[field.target.id] = " ".join(value.value.split())
    return texts
