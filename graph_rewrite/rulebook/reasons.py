"""The reasons with which a rule refuses, read from its code: those of its own condition and target, and of the
functions of this package that they call.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any

from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.terms.conditions import CONDITIONS
from graph_rewrite.terms.substitution import Substitution

PACKAGE = "graph_rewrite.rules"
_METHODS = ("check", "target")


def reasons(rule: Rule) -> tuple[str, ...]:
    """Return what the rule's refusals say, in the order of the code; `…` stands for what is known only where it
    refuses. Of a substitution the conditions beyond its types, in words.

    A reason that the code takes from elsewhere (a table, an argument) is not found.
    """
    substitution = getattr(rule, "substitution", None)
    if isinstance(substitution, Substitution):
        return tuple(CONDITIONS[name].text for name in substitution.conditions)
    found: dict[str, None] = {}
    seen: set[Any] = set()
    for name in _METHODS:
        for reason in _of_method(type(rule), name, seen):
            found[reason] = None
    return tuple(found)


def _of_method(kind: type, name: str, seen: set[Any], after: type | None = None) -> Iterator[str]:
    """Reasons in a method as `kind` finds it; with `after`, as super() in a method of that class finds it."""
    order = kind.__mro__
    for owner in order[order.index(after) + 1 if after else 0 :]:
        method = vars(owner).get(name)
        if owner is Rule or owner is object:
            return
        if isinstance(method, (staticmethod, classmethod)):
            method = method.__func__
        if isinstance(method, FunctionType):
            if (kind, method) not in seen:
                seen.add((kind, method))
                yield from _of_function(method, kind, owner, seen)
            return


def _of_function(function: FunctionType, kind: type | None, owner: type | None, seen: set[Any]) -> Iterator[str]:
    known = {**inspect.getclosurevars(function).nonlocals, **_globals(function)}
    for node in _nodes(_tree(function)):
        if isinstance(node, ast.Call) and _is_name(node.func, "Refusal") and node.args:
            yield from _texts(node.args[0], kind)
        elif isinstance(node, ast.Name):
            yield from _of_name(known.get(node.id), function, seen)
        elif isinstance(node, ast.Attribute) and kind is not None:
            if _is_name(node.value, "self"):
                yield from _of_method(kind, node.attr, seen)
            elif isinstance(node.value, ast.Call) and _is_name(node.value.func, "super"):
                yield from _of_method(kind, node.attr, seen, owner)


def _of_name(value: Any, function: FunctionType, seen: set[Any]) -> Iterator[str]:
    """A Refusal that stands in a constant, or a function of the rules or of the same file."""
    if isinstance(value, Refusal):
        yield value.reason
    elif isinstance(value, FunctionType) and value not in seen and _is_of_rules(value, function.__module__):
        seen.add(value)
        yield from _of_function(value, None, None, seen)


def _is_of_rules(function: FunctionType, module: str) -> bool:
    return function.__module__ == module or function.__module__.startswith(PACKAGE)


def _globals(function: Callable[..., Any]) -> dict[str, Any]:
    names: dict[str, Any] = getattr(function, "__globals__", {})
    return names


@cache
def _tree(function: FunctionType) -> ast.Module:
    return ast.parse(textwrap.dedent(inspect.getsource(function)))


def _nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Depth first, in the order of the text; annotations left out."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _texts(node: ast.expr, kind: type | None) -> Iterator[str]:
    """The texts that an expression in a method of `kind` may give."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(_part(part, kind) for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from _texts(node.body, kind)
        yield from _texts(node.orelse, kind)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        for left in _texts(node.left, kind):
            for right in _texts(node.right, kind):
                yield left + right


def _part(node: ast.expr, kind: type | None) -> str:
    """A piece of an f-string: text, a number or a text that the rule's class holds (`{self.neutral:g}`), or `…`."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if (
        isinstance(node, ast.FormattedValue)
        and isinstance(node.value, ast.Attribute)
        and _is_name(node.value.value, "self")
    ):
        value = getattr(kind, node.value.attr, None)
        if isinstance(value, (int, float, str)):
            return f"{value:g}" if isinstance(value, float) else str(value)
    return "…"
