"""Pruning of redundant equations: TASO's two kinds (SOSP'19, section 3.2), and those that follow from others."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from graph_rewrite.generate.expressions import (
    COMMUTATIVE,
    Equation,
    Expression,
    Expressions,
    all_inputs,
    canonical,
    equation_key,
    inputs,
    operators,
    replace,
    subexpressions,
)
from graph_rewrite.generate.rewriting import RewriteIndex, Way, applies, match_all, rewrites

MAX_OUTPUTS = 2


def simplicity(equation: Equation) -> tuple[int, int, int, str]:
    """Orders equations: fewer operators first, then more inputs (they are more general), then shorter texts."""
    text = equation_key(equation)
    names = all_inputs(equation[0]) | all_inputs(equation[1])
    return operators(equation[0]) + operators(equation[1]), -len(names), len(text), text


# Input renaming.


def renaming_groups(equations: Iterable[Equation]) -> list[list[Equation]]:
    """Equations by what a renaming of inputs does not change; within a group those with more inputs come first."""
    groups: dict[tuple[str, ...], list[Equation]] = {}
    for equation in sorted(equations, key=simplicity):
        groups.setdefault(_skeleton(equation), []).append(equation)
    return [sorted(group, key=lambda e: -_inputs(e)) for group in groups.values()]


Needed = Mapping[Equation, tuple[tuple[str, ...], frozenset[str]]]
"""Conditions that equations need, and those that are given wherever they hold."""


def without_renamings(task: tuple[Sequence[Equation], Needed]) -> list[Equation]:
    """Those of a group of `renaming_groups` that are no other's with several inputs given one name.

    The task's second part: conditions, as far as they are known. An equation that needs some leaves out only those that
    hold nowhere else.
    """
    group, known = task
    nothing: tuple[tuple[str, ...], frozenset[str]] = ((), frozenset())
    general: list[tuple[int, Equation]] = []
    for equation in group:
        count = _inputs(equation)
        if not any(
            more > count
            and known.get(equation, nothing)[1].issuperset(known.get(other, nothing)[0])
            and is_renaming(other, equation)
            for more, other in general
        ):
            general.append((count, equation))
    return [equation for _, equation in general]


def _inputs(equation: Equation) -> int:
    return len(all_inputs(equation[0]) | all_inputs(equation[1]))


def is_renaming(general: Equation, equation: Equation) -> bool:
    """Return whether the second equation is the first with its inputs renamed, several to the same name if need be."""
    source, target = equation
    for left, right in ((source, target), (target, source)):
        for order in itertools.permutations(range(len(left))):
            outputs = tuple(left[i] for i in order) + tuple(right[i] for i in order)
            for binding in match_all(general[0] + general[1], outputs, {}):
                if all(isinstance(value, int) for value in binding.values()):
                    return True
    return False


def reads_the_same(equation: Equation) -> bool:
    """Return whether the equation read backwards is the same up to names of inputs and order of outputs."""
    source, target = equation
    for order in itertools.permutations(range(len(source))):
        backwards = tuple(target[i] for i in order) + tuple(source[i] for i in order)
        for binding in match_all(source + target, backwards, {}):
            if sorted(binding.values(), key=str) == sorted(binding, key=str):
                return True
    return False


def _skeleton(equation: Equation) -> tuple[str, ...]:
    """Return what a renaming does not change."""
    return tuple(sorted("&".join(sorted(_shape(output) for output in side)) for side in equation))


def _shape(expression: Expression) -> str:
    if isinstance(expression, int):
        return "x"
    op, params, operands, index = expression
    texts = [_shape(operand) for operand in operands]
    return f"{op}{params}{index}({','.join(sorted(texts) if op in COMMUTATIVE else texts)})"


# Common subgraphs.


def without_common_subgraphs(
    equations: Iterable[Equation], needed: Callable[[Sequence[Equation]], Needed]
) -> list[Equation]:
    """Equations with what both sides share taken out, as long as an equation remains that holds as widely.

    Args:
        equations: candidates, whether they hold is not asked.
        needed: gives the conditions of several equations, without those that do not hold.
    """
    open_ = list(dict.fromkeys(equations))
    known: dict[Equation, tuple[tuple[str, ...], frozenset[str]]] = {}
    done: dict[Equation, None] = {}
    while open_:
        choices = {equation: list(smaller(equation)) for equation in open_}
        known.update(needed(sorted({choice for found in choices.values() for choice in found}, key=simplicity)))
        # What follows from an equation that needs nothing holds without a look; else the conditions are compared.
        valid = {equation: [c for c in found if c in known] for equation, found in choices.items()}
        known.update(needed([e for e, found in valid.items() if found and all(known[c][0] for c in found)]))
        following: dict[Equation, None] = {}
        for equation, found in valid.items():
            given = known[equation][1] if equation in known else frozenset()
            wide = [choice for choice in found if given.issuperset(known[choice][0])]
            if wide:
                following.update(dict.fromkeys(wide[:1]))
            else:
                done[equation] = None
        open_ = [equation for equation in following if equation not in done]
    return sorted(done, key=simplicity)


def smaller(equation: Equation) -> Iterator[Equation]:
    """Equations from which this one follows by taking them into a common context: those without a common root first,
    then those with a common subgraph as an input."""
    for stripped in _without_root(equation):
        yield canonical(stripped)
    source, target = equation
    common = [e for e in subexpressions(source) if e in set(subexpressions(target)) and not _is_constant(e)]
    fresh = max(all_inputs(source) | all_inputs(target), default=-1) + 1
    for shared in common:
        by: dict[Expression, Expression] = {shared: fresh}
        op, params, operands, index = shared  # type: ignore[misc]
        if op == "split":
            by[(op, params, operands, 1 - index)] = fresh + 1
        found = tuple(replace(o, by) for o in source), tuple(replace(o, by) for o in target)
        if found[0] != found[1]:
            yield canonical(found)


def _is_constant(expression: Expression) -> bool:
    return not isinstance(expression, int) and not expression[2]


def _without_root(equation: Equation) -> Iterator[Equation]:
    source, target = equation
    pairs = list(zip(source, target, strict=True))
    different = [(a, b) for a, b in pairs if a != b]
    if different and len(different) < len(pairs):
        yield tuple(a for a, _ in different), tuple(b for _, b in different)
    for number, (a, b) in enumerate(different):
        if isinstance(a, int) or isinstance(b, int) or a[:2] != b[:2] or a[3] != b[3]:
            continue
        for operands in (b[2], b[2][::-1]) if a[0] in COMMUTATIVE else (b[2],):
            inner = [(x, y) for x, y in zip(a[2], operands, strict=True) if x != y]
            others = [pair for place, pair in enumerate(different) if place != number]
            # The other output of the same split comes with it.
            if a[0] == "split":
                others = [(x, y) for x, y in others if _node(x) != _node(a) or _node(y) != _node(b)]
            outputs = list(dict.fromkeys(inner + others))
            if 0 < len(outputs) <= MAX_OUTPUTS and not any(_cannot_hold(*pair) for pair in outputs):
                yield tuple(x for x, _ in outputs), tuple(y for _, y in outputs)


def _cannot_hold(a: Expression, b: Expression) -> bool:
    """Return whether one is a constant without a size, or an input that the other does not have."""
    return any(_is_constant(e) or (isinstance(e, int) and e not in inputs(f)) for e, f in ((a, b), (b, a)))


def _node(expression: Expression) -> object:
    return expression if isinstance(expression, int) else expression[:3]


# Equations that others imply.


_NEEDED = ({"matmul"}, {"conv", "concat"})
"""Chains of products, and the order of a convolution's channels: TASO's file has some that need more than two steps."""


def is_rearrangement(equation: Equation) -> bool:
    """Return whether longer paths of other equations are likely to lead from one side to the other: each input occurs
    as often on both, or an operator takes the same operand twice.

    Equations of `_NEEDED` operators are no rearrangements here.
    """
    nodes = [e for side in equation for e in subexpressions(side) if not isinstance(e, int)]
    if {e[0] for e in nodes} in _NEEDED:
        return False
    if any(len(e[2]) == 2 and e[2][0] == e[2][1] for e in nodes):
        return True
    # Both outputs of a split are one operator.
    ends = [{_node(output): output for output in side}.values() for side in equation]
    counts = [Counter(name for output in side for name in _occurrences(output)) for side in ends]
    return counts[0] == counts[1]


def _occurrences(expression: Expression) -> Iterator[int]:
    if isinstance(expression, int):
        yield expression
    else:
        for operand in expression[2]:
            yield from _occurrences(operand)


Typed = Callable[[Expressions, Expressions], bool]
"""Tells whether a step between two graphs is allowed: both have types, and conditions hold, wherever they have to."""


class Implication:
    """Equations, and which others follow from them by one or two applications."""

    def __init__(self) -> None:
        self._equations: list[tuple[Equation, frozenset[str]]] = []
        self._indexes: dict[frozenset[str], RewriteIndex] = {}

    def add(self, equation: Equation, conditions: Iterable[str] = ()) -> None:
        """One more equation to apply, where its conditions are among those of what is to be derived."""
        needed = frozenset(conditions)
        self._equations.append((equation, needed))
        for given, index in self._indexes.items():
            if needed <= given:
                for rewrite in rewrites(equation):
                    index.add(rewrite)

    @property
    def conditions(self) -> frozenset[str]:
        """Those that some of the equations need."""
        return frozenset().union(*(needed for _, needed in self._equations))

    def implies(self, equation: Equation, conditions: Iterable[str], typed: Typed) -> bool:
        """Return whether a path of at most two applications leads from one side to the other, in each direction in
        which the equation itself can be applied.

        Args:
            equation: a candidate; operands that commute in order, as `canonical` gives it.
            conditions: that are given wherever it holds.
            typed: tells of a side and of what one application leads to whether the application is allowed.
        """
        index = self._index(frozenset(conditions))
        source, target = equation
        forward, backward = applies(source, target), applies(target, source)
        if not forward and backward:
            source, target = target, source
        elif not forward:
            return False
        way: Way = "returning" if forward and backward else "forward"
        first = set(index.steps(source, way))
        if target in first:
            return True
        last = set(index.steps(target, "returning"))
        if any(typed(source, step) for step in sorted(first & last, key=repr)):
            return True
        # Steps to bare inputs have no way back from the target; two steps from the source may still lead there.
        starts = [(source, target, first)] + ([(target, source, last)] if forward and backward else [])
        return any(
            end in index.steps(step, way) and typed(start, step)
            for start, end, steps in starts
            for step in sorted(steps - (first & last), key=repr)
        )

    def reaches(self, equation: Equation, conditions: Iterable[str], typed: Typed) -> bool:
        """Return whether a path of at most four applications leads from one side to the other, both having the same
        inputs."""
        index = self._index(frozenset(conditions))
        source, target = equation
        if all_inputs(source) != all_inputs(target):
            return False
        ends = []
        for start in (source, target):
            first = [step for step in sorted(set(index.steps(start, "returning")), key=repr) if typed(start, step)]
            second = {step for before in first for step in index.steps(before, "returning")}
            ends.append({start, *first, *second})
        return any(typed(source, step) for step in sorted(ends[0] & ends[1], key=repr))

    def _index(self, given: frozenset[str]) -> RewriteIndex:
        if given not in self._indexes:
            found = [rewrite for e, needed in self._equations if needed <= given for rewrite in rewrites(e)]
            self._indexes[given] = RewriteIndex.of(found)
        return self._indexes[given]
