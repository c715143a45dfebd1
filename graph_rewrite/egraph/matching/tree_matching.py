"""Backtracking over one connected pattern: operators, operands, attributes and variables below a root.

Patterns are indexed by operator; members of an e-class and the two orders of operands of a commutative operator are
tried one after another. Classes that are constants match variables only.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from graph_rewrite.egraph.structure.classes import ABSENT
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.egraph.structure.operators import OUTPUT
from graph_rewrite.rewriting.matching import schema_default
from graph_rewrite.rewriting.patterns import (
    AttrVar,
    Const,
    Maybe,
    MaybeConst,
    Pattern,
    PatternNode,
    PatternOutput,
    PatternValue,
    Scalar,
    Var,
)

_MISSING = object()
_UNSET = object()
Goals = tuple[PatternValue | None, int, Any] | None
"""A linked list of (pattern, class, rest)."""


class TreeMatcher:
    """Bindings of a pattern's variables, nodes and attributes, tried from a root downwards."""

    def __init__(self, egraph: EGraph, pattern: Pattern) -> None:
        self._egraph, self._pattern = egraph, pattern
        self._variables: dict[str, Any] = {}
        self._nodes: dict[PatternNode, int] = {}
        self._attrs: dict[str, Any] = {}
        self._candidates: dict[tuple[int, PatternNode, int], list[int]] = {}
        table = egraph.operators
        self._masks = {
            node: reduce(or_, [table.mask(op, node.domain) for op in node.operators]) for node in pattern.nodes
        }

    def _enter(self, pattern: PatternNode, node: int, rest: Goals) -> Iterator[None]:
        """Match a pattern node with an e-node, then the goals that are left; one result per solution."""
        if not self._fits(pattern, node):
            return
        orders = self._orders(pattern, self._egraph.args(node))
        if not orders:
            return
        new_attrs = self._bind_attrs(pattern, node)
        if new_attrs is None:
            return
        self._nodes[pattern] = node
        for order, tail in orders:
            goals = rest
            for goal, cls in reversed(order):
                goals = (goal, cls, goals)
            if tail is None:
                yield from self._solve(goals)
            elif self._variables.get(tail[0], tail[1]) == tail[1]:
                fresh = tail[0] not in self._variables
                self._variables[tail[0]] = tail[1]
                yield from self._solve(goals)
                if fresh:
                    del self._variables[tail[0]]
        del self._nodes[pattern]
        for name in new_attrs:
            del self._attrs[name]

    def _orders(
        self, pattern: PatternNode, args: tuple[int, ...]
    ) -> list[tuple[list[tuple[PatternValue | None, int]], tuple[str, tuple[int, ...]] | None]]:
        """The ways to pair a pattern's inputs with operands, and what a variadic variable binds."""
        if pattern.variadic:
            leading, last = pattern.inputs[:-1], pattern.inputs[-1]
            if not isinstance(last, Var) or len(args) < len(leading) or ABSENT in args:
                return []
            pairs = self._paired(leading, args)
            return [] if pairs is None else [(pairs, (last.name, args[len(leading) :]))]
        count = len(pattern.inputs)
        if any(arg >= 0 for arg in args[count:]):
            return []
        padded = (*args[:count], *(ABSENT,) * (count - len(args)))
        straight = self._paired(pattern.inputs, padded)
        if not pattern.commutative or padded[0] == padded[1]:
            return [] if straight is None else [(straight, None)]
        crossed = self._paired((pattern.inputs[1], pattern.inputs[0]), padded)
        return [(pairs, None) for pairs in (straight, crossed) if pairs is not None]

    def _paired(
        self, goals: tuple[PatternValue | None, ...], args: tuple[int, ...]
    ) -> list[tuple[PatternValue | None, int]] | None:
        """Goals with operands, as many as there are goals; None where one can't be the other."""
        for goal, cls in zip(goals, args, strict=False):
            if not self._plausible(goal, cls):
                return None
        return list(zip(goals, args, strict=False))

    def _plausible(self, goal: PatternValue | None, cls: int) -> bool:
        if cls < 0 or goal is None:
            return cls < 0 and (goal is None or (isinstance(goal, Var) and issubclass(goal.kind, Maybe)))
        if isinstance(goal, Var):
            return cls in self._egraph.constants or not issubclass(goal.kind, (Const, MaybeConst))
        return bool(self._egraph.class_masks[cls] & self._wanted(goal)) and bool(self._members(cls, goal))

    def _solve(self, goals: Goals) -> Iterator[None]:
        if goals is None:
            yield
            return
        goal, cls, rest = goals
        if goal is None:
            yield from self._solve(rest)
        elif isinstance(goal, Var):
            value = None if cls < 0 else cls
            known = self._variables.get(goal.name, _UNSET)
            if known is _UNSET:
                if self._admits(goal, value):
                    self._variables[goal.name] = value
                    yield from self._solve(rest)
                    del self._variables[goal.name]
            elif known == value:
                yield from self._solve(rest)
        elif goal.node in self._nodes:
            if self._egraph.outputs_of(self._nodes[goal.node])[goal.index] == cls:
                yield from self._solve(rest)
        else:
            for node in self._members(cls, goal):
                yield from self._enter(goal.node, node, rest)

    def _admits(self, var: Var, cls: int | None) -> bool:
        if cls is None:
            return issubclass(var.kind, Maybe)
        constant = self._egraph.constants.get(cls)
        if constant is None:
            return not issubclass(var.kind, (Const, MaybeConst))
        return var.kind is not Scalar or constant.type.size == 1

    def _bind_attrs(self, pattern: PatternNode, node: int) -> list[str] | None:
        """Names of the attribute variables that are newly bound; None where an attribute differs."""
        operator, new = self._egraph.operator(node), list[str]()
        for name, wanted in pattern.attrs.items():
            if isinstance(wanted, AttrVar):
                found = operator.attrs.get(name, wanted.default)
                if wanted.name not in self._attrs:
                    self._attrs[wanted.name] = found
                    new.append(wanted.name)
                    continue
                equal = self._attrs[wanted.name] == found
            else:
                default = _MISSING if operator.domain else schema_default(operator.op, name)
                equal = operator.attrs.get(name, default) == wanted
            if not equal:
                for bound in new:
                    del self._attrs[bound]
                return None
        return new

    def _wanted(self, goal: PatternOutput) -> int:
        """Return the mask of operators of which a class must hold one to match `goal`."""
        return self._masks[goal.node] if goal.node.outputs == 1 else OUTPUT

    def _members(self, cls: int, goal: PatternOutput) -> list[int]:
        """Applications in a class that `goal` may be."""
        key = (cls, goal.node, goal.index)
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = list(self._find_members(cls, goal))
        return found

    def _find_members(self, cls: int, goal: PatternOutput) -> Iterator[int]:
        egraph, pattern = self._egraph, goal.node
        if cls in egraph.constants:
            return
        for node in egraph.members(cls):
            operator = egraph.operator(node)
            if pattern.outputs == 1:
                if operator.op in pattern.operators and operator.domain == pattern.domain and self._fits(pattern, node):
                    yield node
            elif operator.kind == "output" and operator.index == goal.index:
                for inner in egraph.members(egraph.args(node)[0]):
                    made = egraph.operator(inner)
                    if made.op in pattern.operators and made.domain == pattern.domain and self._fits(pattern, inner):
                        yield inner

    def _fits(self, pattern: PatternNode, node: int) -> bool:
        operator = self._egraph.operator(node)
        known = operator.kind == "operator" and not operator.opaque
        return known and operator.outputs == pattern.outputs and operator.domain == pattern.domain
