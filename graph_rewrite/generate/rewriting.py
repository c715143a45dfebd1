"""Equations applied to expressions: the occurrences of a pattern, and the results of one application."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from graph_rewrite.generate.expressions import (
    COMMUTATIVE,
    Equation,
    Expression,
    Expressions,
    all_inputs,
    replace,
    subexpressions,
)

Binding = Mapping[int, Expression]


def match(pattern: Expression, expression: Expression, binding: Binding) -> Iterator[Binding]:
    """All ways to give the pattern's inputs expressions so that it becomes this one, in extension of `binding`."""
    if isinstance(pattern, int):
        if pattern not in binding:
            yield {**binding, pattern: expression}
        elif binding[pattern] == expression:
            yield binding
        return
    if isinstance(expression, int) or pattern[0] != expression[0] or pattern[1] != expression[1]:
        return
    if pattern[3] != expression[3] or len(pattern[2]) != len(expression[2]):
        return
    yield from _match_operands(pattern[2], expression[2], binding)
    if pattern[0] in COMMUTATIVE and expression[2][0] != expression[2][1]:
        yield from _match_operands(pattern[2], expression[2][::-1], binding)


def match_all(patterns: Expressions, expressions: Expressions, binding: Binding) -> Iterator[Binding]:
    """All ways to match several patterns, one after the other, in extension of `binding`."""
    return _match_operands(patterns, expressions, binding)


def _match_operands(patterns: Expressions, expressions: Expressions, binding: Binding) -> Iterator[Binding]:
    if not patterns:
        yield binding
        return
    for found in match(patterns[0], expressions[0], binding):
        yield from _match_operands(patterns[1:], expressions[1:], found)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One direction of an equation: the pattern's roots become the results."""

    pattern: Expressions
    result: Expressions

    @property
    def keeps_inputs(self) -> bool:
        """True where both sides have the same inputs, so that the other direction is an equation to apply as well."""
        return all_inputs(self.pattern) == all_inputs(self.result)

    @property
    def returns(self) -> bool:
        """True where the other direction can be applied: as above, and it does not join any two tensors that there
        are."""
        bare = any(isinstance(root, int) for root in self.result)
        return self.keeps_inputs and not (bare and len(self.result) > 1)


Way = Literal["forward", "returning"]
"""The rewrites that are taken: all, or those that `Rewrite.returns`."""


def rewrites(equation: Equation) -> list[Rewrite]:
    """The directions in which an equation, or one of its outputs alone, can be applied: all inputs of the result occur
    in the pattern, and the pattern's roots are operators."""
    found = []
    for pattern, result in (equation, equation[::-1]):
        whole = [(pattern, result)]
        # An output of several may be replaced alone where it needs none of the others' inputs.
        alone = [((p,), (r,)) for p, r in zip(pattern, result, strict=True)] if len(pattern) > 1 else []
        for roots, results in whole + alone:
            if applies(roots, results):
                found.append(Rewrite(roots, results))
    return found


def applies(pattern: Expressions, result: Expressions) -> bool:
    """Return whether the pattern can be replaced by the result: it ends in operators, and the result reads no other
    inputs."""
    return all_inputs(result) <= all_inputs(pattern) and not any(isinstance(root, int) for root in pattern)


@dataclass(slots=True)
class RewriteIndex:
    """Rewrites by the operator of their first root."""

    by_root: dict[str, list[Rewrite]]

    @classmethod
    def of(cls, found: Iterable[Rewrite]) -> RewriteIndex:
        """An index of these."""
        index = cls({})
        for rewrite in found:
            index.add(rewrite)
        return index

    def add(self, rewrite: Rewrite) -> None:
        """One more."""
        root = rewrite.pattern[0]
        assert not isinstance(root, int)
        self.by_root.setdefault(root[0], []).append(rewrite)

    def steps(self, outputs: Expressions, way: Way = "forward") -> Iterator[Expressions]:
        """Yield what one application anywhere leads to; a subgraph is replaced wherever it is used."""
        nodes = list(subexpressions(outputs))
        for node in nodes:
            assert not isinstance(node, int)
            for rewrite in self.by_root.get(node[0], ()):
                if way == "forward" or rewrite.returns:
                    yield from _applied(rewrite, node, nodes, outputs)


def _applied(
    rewrite: Rewrite, node: Expression, nodes: list[Expression], outputs: Expressions
) -> Iterator[Expressions]:
    for binding in match(rewrite.pattern[0], node, {}):
        if len(rewrite.pattern) == 1:
            yield _replaced(rewrite, (node,), binding, outputs)
            continue
        for other in nodes:
            if other != node:
                for both in match(rewrite.pattern[1], other, binding):
                    # An operand that is itself replaced would make a cycle.
                    if not {node, other}.intersection(subexpressions(tuple(both.values()))):
                        yield _replaced(rewrite, (node, other), both, outputs)


def _replaced(rewrite: Rewrite, roots: Expressions, binding: Binding, outputs: Expressions) -> Expressions:
    values: dict[Expression, Expression] = dict(binding.items())
    by = {root: replace(result, values) for root, result in zip(roots, rewrite.result, strict=True)}
    return tuple(replace(output, by) for output in outputs)
