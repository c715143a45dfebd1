"""Sides of substitutions as expressions: trees that compare by structure, so that equal subgraphs are one.

ewadd(x0, x1): ("ewadd", (), (0, 1), 0)        second output of split(x0): ("split", (("axis", 0),), (0,), 1)
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from graph_rewrite.terms.substitution import INPUT, Operand, Param, Side, Substitution, Term

Expression: TypeAlias = "int | tuple[str, tuple[tuple[str, Param], ...], tuple[Expression, ...], int]"
"""Number of an input; or operator, parameters, operands, and which output."""
Expressions = tuple[Expression, ...]
Equation = tuple[Expressions, Expressions]
"""Outputs of the source and of the target."""

COMMUTATIVE = ("ewadd", "ewmul")


def from_side(side: Side) -> Expressions:
    """The side's outputs."""
    values: list[list[Expression]] = []

    def read(operand: Operand) -> Expression:
        return operand.index if operand.node == INPUT else values[operand.node][operand.index]

    for node in side.terms:
        operands = tuple(read(operand) for operand in node.inputs)
        values.append([(node.op, node.params, operands, index) for index in range(node.outputs)])
    return tuple(read(operand) for operand in side.outputs)


def to_side(outputs: Expressions) -> Side:
    """The side with these outputs; each subgraph occurs once."""
    terms: list[Term] = []
    places: dict[object, int] = {}

    def place(expression: Expression) -> Operand:
        if isinstance(expression, int):
            return Operand(INPUT, expression)
        op, params, operands, index = expression
        if expression[:3] not in places:
            node = Term(op, tuple(place(operand) for operand in operands), params)
            places[expression[:3]] = len(terms)
            terms.append(node)
        return Operand(places[expression[:3]], index)

    found = tuple(place(output) for output in outputs)
    return Side(tuple(terms), found)


def to_substitution(equation: Equation, conditions: tuple[str, ...] = ()) -> Substitution:
    """The equation as a substitution."""
    return Substitution(to_side(equation[0]), to_side(equation[1]), conditions)


def from_substitution(substitution: Substitution) -> Equation:
    """The substitution's sides, without its conditions."""
    return from_side(substitution.source), from_side(substitution.target)


def subexpressions(outputs: Expressions) -> Iterator[Expression]:
    """Each operator's output that occurs, once, those that need others first; no inputs."""
    seen: set[Expression] = set()

    def walk(expression: Expression) -> Iterator[Expression]:
        if isinstance(expression, int) or expression in seen:
            return
        seen.add(expression)
        yield expression
        for operand in expression[2]:
            yield from walk(operand)

    for output in outputs:
        yield from walk(output)


@lru_cache(maxsize=1 << 20)
def inputs(expression: Expression) -> frozenset[int]:
    """Numbers of the inputs that occur."""
    if isinstance(expression, int):
        return frozenset((expression,))
    return frozenset().union(*(inputs(operand) for operand in expression[2]))


def all_inputs(outputs: Expressions) -> frozenset[int]:
    """Numbers of the inputs that occur in any of these."""
    return frozenset().union(*map(inputs, outputs))


@lru_cache(maxsize=1 << 20)
def operators(outputs: Expressions) -> int:
    """Number of operators, constants aside."""
    return len({e[:3] for e in subexpressions(outputs) if not isinstance(e, int) and e[2]})


def replace(expression: Expression, by: Mapping[Expression, Expression]) -> Expression:
    """The expression with subexpressions replaced, from the outside in; operands of `COMMUTATIVE` are put in order."""
    if expression in by:
        return by[expression]
    if isinstance(expression, int):
        return expression
    op, params, operands, index = expression
    found = tuple(replace(operand, by) for operand in operands)
    if op in COMMUTATIVE:
        found = ordered(found)
    return (op, params, found, index)


def ordered(operands: Expressions) -> Expressions:
    """Operands of a commutative operator in the order that stands for both."""
    return tuple(sorted(operands, key=key))


@lru_cache(maxsize=1 << 20)
def key(expression: Expression) -> str:
    """Text that names the expression and orders expressions."""
    if isinstance(expression, int):
        return f"x{expression}"
    op, params, operands, index = expression
    values = ",".join(f"{name}={value}" for name, value in params)
    return f"{op}[{values}]({','.join(map(key, operands))}).{index}"


def canonical(equation: Equation) -> Equation:
    """The form that stands for all renamings of inputs, both directions, and any order of outputs and of operands that
    commute: the one with the smallest text. The side with more operators is the source."""
    source, target = equation
    sizes = (operators(source), operators(target))
    directions = [(source, target)] if sizes[0] > sizes[1] else [(target, source)]
    if sizes[0] == sizes[1]:
        directions = [(source, target), (target, source)]
    best: tuple[str, Equation] | None = None
    for left, right in directions:
        for order in itertools.permutations(range(len(left))):
            found = _named((tuple(left[i] for i in order), tuple(right[i] for i in order)))
            if best is None or found[0] < best[0]:
                best = found
    assert best is not None
    return best[1]


def equation_key(equation: Equation) -> str:
    """Text that names the equation."""
    return " = ".join(" & ".join(map(key, side)) for side in equation)


def _named(equation: Equation) -> tuple[str, Equation]:
    """The renaming with the smallest text, among those that put inputs in the order of how they are used."""
    uses: dict[int, list[str]] = {}
    for side, outputs in zip("st", equation, strict=True):
        for number, output in enumerate(outputs):
            _collect(output, f"{side}{number}", uses)
    profiles: dict[tuple[str, ...], list[int]] = {}
    for number, paths in uses.items():
        profiles.setdefault(tuple(sorted(paths)), []).append(number)
    groups = [sorted(profiles[profile]) for profile in sorted(profiles)]
    best: tuple[str, Equation] | None = None
    for choice in itertools.product(*(itertools.permutations(group) for group in groups)):
        by: dict[Expression, Expression] = {old: new for new, old in enumerate(itertools.chain(*choice))}
        left, right = (tuple(replace(output, by) for output in side) for side in equation)
        text = equation_key((left, right))
        if best is None or text < best[0]:
            best = (text, (left, right))
    assert best is not None
    return best


def _collect(expression: Expression, path: str, uses: dict[int, list[str]]) -> None:
    if isinstance(expression, int):
        uses.setdefault(expression, []).append(path)
        return
    op, params, operands, index = expression
    for position, operand in enumerate(operands):
        place = "" if op in COMMUTATIVE else position
        _collect(operand, f"{path}/{op}{params}.{index}{place}", uses)
