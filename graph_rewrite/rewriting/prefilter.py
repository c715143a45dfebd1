"""Prefilter: rules out most patterns at an anchor by a look at its surroundings.

A pattern needs certain operators, or constants, at the inputs of its anchor and at their inputs. Many patterns share
needs. The needs form a discrimination tree per operator of the anchor: a need of many patterns is looked at once, and
where it is not met, all of them are ruled out together. So the cost of an anchor grows with the number of distinct
needs met there, not with the number of rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.patterns import Const, Pattern, PatternNode, PatternOutput

DEPTH = 2
"""Number of operators above the anchor that needs reach."""


@dataclass(frozen=True, slots=True)
class Need:
    """A need of one input: it is computed by one of `operators` of `domain` whose own inputs meet `inner`, or, where
    operators are None, it is a constant. `number` is the input's number, or -1 for any of them."""

    number: int
    operators: frozenset[str] | None
    domain: str
    inner: frozenset[Need] = frozenset()

    @property
    def depth(self) -> int:
        return 1 + max((need.depth for need in self.inner), default=0)


def needs_of(node: PatternNode, depth: int = DEPTH) -> frozenset[Need]:
    """Return the needs of a pattern node: what the inputs of a graph node must be for it to match. With `depth` 1 they
    name the producers alone."""
    needs: list[Need] = []
    for i, goal in enumerate(node.inputs[:-1] if node.variadic else node.inputs):
        number = -1 if node.commutative else i
        if isinstance(goal, PatternOutput):
            inner = needs_of(goal.node, depth - 1) if depth > 1 else frozenset[Need]()
            needs.append(Need(number, goal.node.operators, goal.node.domain, inner))
        elif goal is not None and issubclass(goal.kind, Const):
            needs.append(Need(number, None, ""))
    if node.commutative and len(needs) == 2 and needs[0] == needs[1]:
        needs = [replace(need, number=i) for i, need in enumerate(needs)]
    return frozenset(needs)


@dataclass(slots=True)
class _Branch:
    """Patterns whose needs are all met here, and the further needs of others."""

    patterns: list[int] = field(default_factory=list)
    children: dict[int, _Branch] = field(default_factory=dict)


class PatternIndex:
    """Finds the patterns that may match at an anchor.

    Args:
        patterns: the patterns; they are named by their numbers in this sequence.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._trees: dict[tuple[str, str, int], _Branch] = {}
        self._needs: list[Need] = []
        numbers: dict[Need, int] = {}
        chains = [list(_chain(pattern.anchor)) for pattern in patterns]
        uses = Counter(need for chain in chains for need in chain)
        for chain in chains:
            for need in chain:
                if need not in numbers:
                    numbers[need] = len(self._needs)
                    self._needs.append(need)
        for number, (pattern, chain) in enumerate(zip(patterns, chains, strict=True)):
            # Shallow needs first, and the most frequent among them: that is what patterns share, and cheap to look at.
            chain.sort(key=lambda need: (need.depth, -uses[need], numbers[need]))
            anchor = pattern.anchor
            for op in anchor.operators:
                branch = self._trees.setdefault((op, anchor.domain, anchor.outputs), _Branch())
                for need in chain:
                    branch = branch.children.setdefault(numbers[need], _Branch())
                branch.patterns.append(number)

    def plausible(self, graph: Graph, anchor: Node, reads: set[int]) -> list[int]:
        """Return the numbers of the patterns that may match at `anchor`, ascending. Values whose producer was read are
        added to `reads`."""
        tree = self._trees.get((anchor.op, anchor.domain, len(anchor.outputs)))
        if tree is None or anchor.opaque:
            return []
        surroundings, met, found, branches = _Surroundings(graph, reads), dict[int, bool](), list[int](), [tree]
        while branches:
            branch = branches.pop()
            found.extend(branch.patterns)
            for number, child in branch.children.items():
                known = met.get(number)
                if known is None:
                    known = met[number] = surroundings.meet(self._needs[number], anchor)
                if known:
                    branches.append(child)
        found.sort()
        return found


@lru_cache(maxsize=16)
def index_of(patterns: tuple[Pattern, ...]) -> PatternIndex:
    """Return the index of these patterns, made once: it depends on nothing else."""
    return PatternIndex(patterns)


def _chain(anchor: PatternNode) -> Iterator[Need]:
    """Yield a pattern's needs one by one, each also without what it needs further up."""
    yield from dict.fromkeys((*_ordered(needs_of(anchor, 1)), *_ordered(needs_of(anchor))))


def _ordered(needs: Iterable[Need]) -> list[Need]:
    """Return needs in an order that does not depend on hashes of strings."""
    return sorted(needs, key=_text)


def _text(need: Need) -> str:
    operators = "" if need.operators is None else "|".join(sorted(need.operators))
    return f"{need.number} {need.domain} {operators} ({', '.join(sorted(map(_text, need.inner)))})"


class _Surroundings:
    """Answers what needs ask about a graph."""

    def __init__(self, graph: Graph, reads: set[int]) -> None:
        self._graph, self._constants, self._reads = graph, graph.constants, reads

    def meet(self, need: Need, node: Node) -> bool:
        """Tell whether an input of `node`, at the number that the need names, is as needed."""
        if need.number < 0:
            return any(self._fits(need, value) for value in node.inputs)
        return need.number < len(node.inputs) and self._fits(need, node.inputs[need.number])

    def _fits(self, need: Need, value: int | None) -> bool:
        # A constant stays one, and networks share them: reading it is not worth remembering.
        if value is None or value in self._constants:
            return value is not None and need.operators is None
        if need.operators is None:
            return False
        self._reads.add(value)
        node = self._graph.node_of(value)
        if node is None or node.op not in need.operators or node.domain != need.domain or node.opaque:
            return False
        return not need.inner or all(self.meet(inner, node) for inner in need.inner)
