"""Digests of the code of rules: the class of a rule, and all of the rules' package that the class refers to by name.

A certificate holds for the code it was made for. The digest covers the syntax of the rule's class and its bases, and of
every function, class and constant that they name at the top level of `graph_rewrite.rules`, of
`graph_rewrite.operators.operator_sets`, or of the rule's own module, and so on. It does not cover what computes
nothing: docstrings, annotations, comments, formatting, and the module in which a definition stands. It does not cover
the matcher, types and reference semantics either: `make verify-rules` derives all certificates again when those change.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from graph_rewrite.ir.hashing import digest

PACKAGE = "graph_rewrite.rules"
OPERATOR_SETS = "graph_rewrite.operators.operator_sets"
Symbol = tuple[str, str]
"""Module and name of a definition."""


_READ: set[str] = set()


@dataclass(frozen=True, slots=True)
class _Definition:
    """Syntax of a statement at the top level of a module, and all names in it."""

    text: str
    names: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Module:
    """Definitions by name, and what names of other modules of the package stand for."""

    definitions: dict[str, _Definition]
    imports: dict[str, Symbol]


def code_digest(kind: type, bases: tuple[type, ...]) -> str:
    """Digest of the code of a rule's class `kind`; `bases` are those of its bases that belong to the rule.

    Raises:
        OSError: a class whose source can't be read, as of one typed into an interpreter.
    """
    pending: list[Symbol] = []
    loose: list[str] = []
    for base in (kind, *bases):
        if base.__qualname__ in _module(base.__module__).definitions:
            pending.append((base.__module__, base.__qualname__))
        else:
            loose.append(_syntax(ast.parse(textwrap.dedent(inspect.getsource(base)))))
    found: dict[Symbol, str] = {}
    while pending:
        symbol = pending.pop()
        if symbol in found:
            continue
        module = _module(symbol[0])
        definition = module.definitions.get(symbol[1])
        if definition is None:
            continue
        found[symbol] = definition.text
        for name in definition.names:
            pending.append(module.imports.get(name, (symbol[0], name)))
    return digest(*loose, *sorted(found.values()))


def modules_read() -> list[str]:
    """Modules of the rules' package that digests computed so far come from."""
    return sorted(name for name in _READ if _is_covered(name))


def modules_digest(names: Iterable[str]) -> str:
    """Digest of whole modules of the rules' package: while it stays, so do those of all rules that come from them.
    Empty where one is missing."""
    files = [_file_of(name) for name in names]
    if not files or None in files:
        return ""
    return digest(*(Path(file).read_text("utf-8") for file in files if file is not None))


@cache
def _module(name: str) -> _Module:
    """A module's definitions; none for a module without a readable file."""
    _READ.add(name)
    file = getattr(sys.modules.get(name), "__file__", None) or _file_of(name)
    if file is None or not file.endswith(".py"):
        return _Module({}, {})
    text = Path(file).read_text("utf-8")
    definitions: dict[str, list[_Definition]] = {}
    imports: dict[str, Symbol] = {}
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.ImportFrom) and _is_covered(statement.module or ""):
            imports |= {alias.asname or alias.name: (str(statement.module), alias.name) for alias in statement.names}
        for defined in _defined(statement):
            definitions.setdefault(defined, []).append(_definition(statement))
    merged = {
        name: parts[0] if len(parts) == 1 else _Definition(
            ",".join(part.text for part in parts), frozenset().union(*(part.names for part in parts))
        )
        for name, parts in definitions.items()
    }  # fmt: skip
    return _Module(merged, imports)


def _is_covered(module: str) -> bool:
    """Tell whether digests read the definitions of a module that rules import."""
    return module.startswith(f"{PACKAGE}.") or module == OPERATOR_SETS


def _file_of(name: str) -> str | None:
    if not _is_covered(name):
        return None
    file = Path(__file__).resolve().parents[2].joinpath(*name.split(".")).with_suffix(".py")
    return str(file) if file.exists() else None


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement at the top level of a module defines."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [node.id for target in statement.targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    if isinstance(statement, (ast.AnnAssign, ast.AugAssign)) and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


def _definition(statement: ast.stmt) -> _Definition:
    return _Definition(_syntax(statement), frozenset(_names(statement)))


def _names(node: ast.AST) -> Iterator[str]:
    """Names in a statement, without those in annotations."""
    if isinstance(node, ast.Name):
        yield node.id
    for _, child in _children(node):
        if isinstance(child, ast.AST):
            yield from _names(child)


def _syntax(node: Any) -> str:
    """A node of the syntax tree as text, the same under every version of Python that has this syntax."""
    if not isinstance(node, ast.AST):
        return repr(node)
    parts = (f"{name}={_syntax(child)}" for name, child in _children(node))
    return f"{type(node).__name__}({','.join(parts)})"


def _children(node: ast.AST) -> Iterator[tuple[str, Any]]:
    """Fields that decide what a node computes, elements of lists one by one; empty ones left out."""
    for name, value in ast.iter_fields(node):
        if name in _SILENT or value is None:
            continue
        elements = value if isinstance(value, list) else [value]
        if name == "body" and isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Module)):
            elements = [one for one in elements if not _is_silent(one)]
        yield from ((name, element) for element in elements)


_SILENT = frozenset({"annotation", "returns", "ctx", "kind", "type_comment", "type_params", "type_ignores"})


def _is_silent(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring, which computes nothing."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
