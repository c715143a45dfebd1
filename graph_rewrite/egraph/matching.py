"""E-matching: where a rule's pattern occurs in an e-graph.

The same patterns as the graph matcher's, indexed by operator, backtracking over the members of an e-class and over
the operands of commutative operators. Patterns with several roots are joined over the e-classes that they share: from
a bound class down to its readers, never as a cross product. Classes that are constants match variables only.

After the first time only anchors are tried whose pattern may reach a class that has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, reduce
from operator import or_
from typing import Any

from graph_rewrite.egraph.core import ABSENT, EGraph
from graph_rewrite.egraph.operators import OUTPUT
from graph_rewrite.egraph.view import Found
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
_Unset = object()
Goals = tuple[PatternValue | None, int, Any] | None
"""A linked list of (pattern, class, rest)."""

Position = tuple[int, str, int, int]
"""Where an enumeration of matches stands: root, operator and number of the anchor, and matches found there."""


@cache
def depth_of(pattern: Pattern) -> int:
    """The largest number of operators on a path of the pattern."""
    depths: dict[PatternNode, int] = {}
    for node in pattern.nodes:
        below = (depths[i.node] for i in node.inputs if isinstance(i, PatternOutput))
        depths[node] = 1 + max(below, default=0)
    return max(depths.values())


@cache
def root_nodes(pattern: Pattern) -> tuple[PatternNode, ...]:
    """The distinct nodes that produce the roots."""
    return tuple(dict.fromkeys(root.node for root in pattern.roots))


def changed_since(egraph: EGraph, since: int, steps: int, mask: int) -> set[int]:
    """Classes in which something new can be found since a place in the log, and those above them by up to `steps`
    operators, where all that is looked for are operators of `mask`. Kept with the e-graph until it changes again. Do
    not change the set."""
    length, levels = egraph.dirty.get((since, mask), (-1, []))
    if length != len(egraph.log):
        news = zip(egraph.log[since:], egraph.log_masks[since:], strict=True)
        levels = [{egraph.find(cls) for cls, new in news if new & mask}]
        egraph.dirty[since, mask] = len(egraph.log), levels
    entries, operator = egraph.operators.entries, egraph.node_op
    while len(levels) <= steps:
        below = levels[-1] - levels[-2] if len(levels) > 1 else levels[-1]
        above = {
            egraph.find(node) for cls in below for node in egraph.readers_of(cls) if entries[operator[node]].mask & mask
        }
        levels.append(levels[-1] | above)
    return levels[steps]


class EMatcher:
    """Finds one pattern. Good for one state of the e-graph: make a new one after a rebuild."""

    def __init__(self, egraph: EGraph, pattern: Pattern, symmetric: bool = False) -> None:
        self._egraph, self._pattern, self._symmetric = egraph, pattern, symmetric
        self._variables: dict[str, Any] = {}
        self._nodes: dict[PatternNode, int] = {}
        self._attrs: dict[str, Any] = {}
        self._candidates: dict[tuple[int, PatternNode, int], list[int]] = {}
        self.dirty: set[int] | None = None
        """Where anchors are tried; everywhere where it is None."""
        table = egraph.operators
        self._masks = {
            node: reduce(or_, [table.mask(op, node.domain) for op in node.operators]) for node in pattern.nodes
        }
        self.position: Position | None = None

    def matches(self, since: int | None = None, start: Position | None = None) -> Iterator[Found]:
        """All matches, in a fixed order.

        Args:
            since: those only that something logged from here on may have made.
            start: those only that come behind this position.
        """
        self.dirty = None if since is None else self._reachable_up(since)
        if not all(self._masks.values()):
            return
        roots = root_nodes(self._pattern)
        for place, first in enumerate(roots if self.dirty is not None else roots[:1]):
            for op, node in self._anchors(first):
                here = (place, op, node)
                if start is not None and here < start[:3]:
                    continue
                passed = start[3] if start is not None and here == start[:3] else 0
                for count, found in enumerate(self._join(first, node), start=1):
                    if count > passed:
                        self.position = (*here, count)
                        yield found

    def _anchors(self, pattern: PatternNode) -> Iterator[tuple[str, int]]:
        egraph, dirty = self._egraph, self.dirty
        inner = [
            (place, self._wanted(goal)) for place, goal in enumerate(pattern.inputs) if isinstance(goal, PatternOutput)
        ]
        places = [0] * len(inner) if pattern.commutative else [place for place, _ in inner]
        most = 2 if pattern.commutative else 1
        for op in sorted(pattern.operators):
            for node in egraph.with_operator(op, pattern.domain):
                if dirty is not None and egraph.find(node) not in dirty:
                    continue
                args = egraph.args(node) if inner else ()
                for place, (_, mask) in zip(places, inner, strict=True):
                    if not any(arg >= 0 and egraph.class_masks[arg] & mask for arg in args[place : place + most]):
                        break
                else:
                    yield op, node

    def _wanted(self, goal: PatternOutput) -> int:
        """Of which operators a class must hold one to be `goal`."""
        return self._masks[goal.node] if goal.node.outputs == 1 else OUTPUT

    def _reachable_up(self, since: int) -> set[int]:
        """Classes from which a changed class can be reached within the depth of the pattern."""
        # An output of an application stands between it and its reader.
        steps = depth_of(self._pattern) - 1 + sum(node.outputs > 1 for node in self._pattern.nodes)
        several = any(node.outputs > 1 for node in self._pattern.nodes)
        mask = reduce(or_, self._masks.values()) | (OUTPUT if several else 0)
        return changed_since(self._egraph, since, steps, mask)

    def _join(self, first: PatternNode, node: int) -> Iterator[Found]:
        others = [root for root in root_nodes(self._pattern) if root is not first]
        if self._egraph.find(node) in self._egraph.constants:
            return
        for _ in self._enter(first, node, None):
            yield from self._roots(others)

    def _roots(self, missing: list[PatternNode]) -> Iterator[Found]:
        missing = [root for root in missing if root not in self._nodes]
        if not missing:
            if self._ordered() and self._typed():
                yield Found(dict(self._variables), dict(self._nodes), dict(self._attrs))
            return
        for k, goal in enumerate(missing):
            path = self._shared_path(goal)
            if path is None and k + 1 < len(missing):
                continue
            rest = missing[:k] + missing[k + 1 :]
            taken = set(self._nodes.values())
            for node in self._neighbours(goal) if path is None else self._siblings(*path):
                if node in taken or self._egraph.find(node) in self._egraph.constants:
                    continue
                for _ in self._enter(goal, node, None):
                    yield from self._roots(rest)
            return

    def _ordered(self) -> bool:
        """Interchangeable roots are matched in one order only."""
        if not self._symmetric:
            return True
        nodes = [self._nodes[root] for root in root_nodes(self._pattern)]
        return nodes == sorted(nodes)

    def _typed(self) -> bool:
        egraph = self._egraph
        types = egraph.types
        for bound in self._variables.values():
            for cls in bound if isinstance(bound, tuple) else () if bound is None else (bound,):
                if types[cls] is None:
                    return False
        for node in self._nodes.values():
            for cls in egraph.outputs_of(node):
                if types[cls] is None:
                    return False
        return True

    def _shared_path(self, goal: PatternNode) -> tuple[int, list[PatternNode]] | None:
        """A bound class that `goal` is computed from, and the pattern nodes from there down to goal. Of several the
        one with the fewest readers."""
        queue: list[tuple[PatternNode, list[PatternNode]]] = [(goal, [goal])]
        best: tuple[int, list[PatternNode]] | None = None
        least = 0
        while queue:
            node, path = queue.pop(0)
            for source in node.inputs:
                cls: Any = None
                if isinstance(source, Var):
                    cls = self._variables.get(source.name)
                elif isinstance(source, PatternOutput):
                    if source.node in self._nodes:
                        cls = self._egraph.outputs_of(self._nodes[source.node])[source.index]
                    else:
                        queue.append((source.node, [source.node, *path]))
                if isinstance(cls, int) and not self._is_scalar(cls):
                    readers = self._egraph.reader_count(cls)
                    if best is None or readers < least:
                        best, least = (cls, path), readers
        return best

    def _is_scalar(self, cls: int) -> bool:
        """Whether a class is a constant of one element: two operators don't hang together by one."""
        type = self._egraph.type_of(cls)
        return cls in self._egraph.constants and type is not None and type.size == 1

    def _siblings(self, cls: int, steps: list[PatternNode]) -> list[int]:
        """Applications that may be the last of `steps`, reached downward from a class."""
        egraph = self._egraph
        frontier, nodes = [cls], list[int]()
        for step in steps:
            found: set[int] = set()
            for current in frontier:
                for node in egraph.parents(current):
                    operator = egraph.operator(node)
                    if operator.op in step.operators and operator.domain == step.domain and not operator.opaque:
                        found.add(node)
            nodes = sorted(found)
            frontier = list(dict.fromkeys(output for node in nodes for output in egraph.outputs_of(node)))
        return nodes

    def _neighbours(self, goal: PatternNode) -> list[int]:
        """Applications that may be `goal`, which shares nothing with the match, and meet it: one operator reads results
        of both, or one computes operands of both (as in the graph matcher)."""
        egraph = self._egraph
        roots = [self._nodes[root] for root in root_nodes(self._pattern) if root in self._nodes]
        below = [cls for node in roots for cls in egraph.outputs_of(node)]
        near = {arg for cls in below for node in egraph.parents(cls) for arg in egraph.args(node) if arg >= 0}
        found = {inner for cls in near for inner in self._applications(cls)}
        bound = [v for v in self._variables.values() if isinstance(v, int) and v not in egraph.constants]
        beside = {output for cls in bound for node in self._applications(cls) for output in egraph.outputs_of(node)}
        found |= {node for cls in beside for node in egraph.parents(cls)}
        return sorted(n for n in found if egraph.operator(n).op in goal.operators and self._fits(goal, n))

    def _applications(self, cls: int) -> list[int]:
        """Applications that compute a class, alone or beside other outputs."""
        egraph, found = self._egraph, list[int]()
        for node in egraph.members(cls):
            if egraph.operator(node).kind == "operator":
                found.append(node)
            elif egraph.operator(node).kind == "output":
                found.extend(egraph.members(egraph.args(node)[0]))
        return found

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
            known = self._variables.get(goal.name, _Unset)
            if known is _Unset:
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
