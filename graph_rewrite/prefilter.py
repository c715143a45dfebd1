"""What one look at an anchor's inputs rules out: most patterns fail there, and many share what they need."""

from __future__ import annotations

from graph_rewrite.ir import Graph, Node
from graph_rewrite.patterns import Const, Pattern, PatternOutput

Need = tuple[int, frozenset[str] | None, str]
"""(input, or -1 for any; operators that may produce it, or None for a constant; their domain)."""


def anchor_needs(pattern: Pattern) -> frozenset[Need]:
    """What the inputs of an anchor must be for a pattern to have a chance. Many patterns share their needs."""
    needs: set[Need] = set()
    for i, goal in enumerate(() if pattern.anchor.variadic else pattern.anchor.inputs):
        place = -1 if pattern.anchor.commutative else i
        if isinstance(goal, PatternOutput):
            needs.add((place, goal.node.operators, goal.node.domain))
        elif goal is not None and issubclass(goal.kind, Const):
            needs.add((place, None, ""))
    return frozenset(needs)


class AnchorFacts:
    """What `anchor_needs` asks about, looked up once per anchor."""

    def __init__(self, graph: Graph, anchor: Node, reads: set[int]) -> None:
        self._inputs: list[tuple[str, str] | None] = []
        for value in anchor.inputs:
            if value is None or value in graph.constants:
                # A constant stays one, and networks share them: reading it is not worth remembering.
                self._inputs.append(None if value is None else ("", "constant"))
                continue
            reads.add(value)
            node = graph.node_of(value)
            self._inputs.append(None if node is None else (node.op, node.domain))

    def meet(self, needs: frozenset[Need]) -> bool:
        """Whether a pattern with these needs may match."""
        return all(
            any(self._has(found, operators, domain) for found in self._inputs)
            if place < 0
            else place < len(self._inputs) and self._has(self._inputs[place], operators, domain)
            for place, operators, domain in needs
        )

    @staticmethod
    def _has(found: tuple[str, str] | None, operators: frozenset[str] | None, domain: str) -> bool:
        if found is None:
            return False
        return found[1] == "constant" if operators is None else found[0] in operators and found[1] == domain
