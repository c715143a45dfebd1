"""Substitutions as JSON, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from graph_rewrite.terms.substitution import INPUT, MalformedTermError, Operand, Param, Side, Substitution, Term, term


def to_json(substitution: Substitution) -> dict[str, Any]:
    """Return an object with `source`, `target` and `conditions`.

    A side is `{"terms": [[op, operands, params], ...], "outputs": operands}`; an operand is "x0" for an input, else
    [term, output].
    """
    sides = {"source": _side(substitution.source), "target": _side(substitution.target)}
    return {**sides, "conditions": list(substitution.conditions)}


def from_json(data: Mapping[str, Any]) -> Substitution:
    """Return the substitution that `to_json` wrote.

    Raises:
        MalformedTermError: a part is missing or of the wrong form.
    """
    try:
        source, target = _read_side(data["source"]), _read_side(data["target"])
        return Substitution(source, target, tuple(str(name) for name in data["conditions"]))
    except MalformedTermError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise MalformedTermError(f"not a substitution: {type(error).__name__}: {error} in {str(data)[:200]}") from error


def _side(side: Side) -> dict[str, Any]:
    terms = [[t.op, [_operand(o) for o in t.inputs], dict(t.params)] for t in side.terms]
    return {"terms": terms, "outputs": [_operand(o) for o in side.outputs]}


def _operand(operand: Operand) -> str | list[int]:
    return f"x{operand.index}" if operand.node == INPUT else [operand.node, operand.index]


def _read_side(data: Mapping[str, Any]) -> Side:
    terms: list[Term] = []
    for op, operands, params in data["terms"]:
        values: dict[str, Param] = {k: tuple(v) if isinstance(v, list) else v for k, v in params.items()}
        terms.append(term(op, *(_read_operand(o, terms) for o in operands), **values))
    return Side(tuple(terms), tuple(_read_operand(o, terms) for o in data["outputs"]))


def _read_operand(data: Any, before: list[Term]) -> Operand:
    if isinstance(data, str):
        if not re.fullmatch(r"x\d+", data):
            raise MalformedTermError(
                f"not an operand: {data!r}; write x0 for an input, [term, output] for a term's output"
            )
        return Operand(INPUT, int(data[1:]))
    node, index = data
    if not 0 <= node < len(before) or not 0 <= index < before[node].outputs:
        raise MalformedTermError(f"operand {data!r} names no output of a term before")
    return Operand(node, index)
