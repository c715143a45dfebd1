"""E-nodes and their classes: union-find says which e-nodes are equal.

All storage is flat: an e-node is its operator's number and a tuple of operands, and it has the number of the class that
it was born in. The lists of members and readers are shared by the forks of an e-graph until one side writes to them.
"""

from __future__ import annotations

from graph_rewrite.egraph.structure.operators import Operator, OperatorTable

ABSENT = -1
"""An operand that is left out."""

DEAD, LIVE, FILTERED = 0, 1, 2
"""States of an e-node: merged with an equal one; present; taken out, as it closed a cycle, but not to come back."""

Args = tuple[int, ...]


class EClasses:
    """E-nodes and e-classes, both plain integers: e-node n lies in the class `find(n)`."""

    def __init__(self) -> None:
        self.operators = OperatorTable()
        self.size = 0
        """Live e-nodes."""
        self.node_op: list[int] = []
        self.node_args: list[Args] = []
        self.node_state = bytearray()
        self._leader: list[int] = []
        self._members: list[list[int]] = []
        self._parents: list[list[int]] = []
        # Classes below `_own_from` share their lists with forks, but for those listed here, which have their own.
        self._own_members, self._own_parents, self._own_from = set[int](), set[int](), 0

    def find(self, node: int) -> int:
        """The e-class of an e-node, or the class that an e-class was merged into."""
        leader = self._leader
        while leader[node] != node:
            leader[node] = node = leader[leader[node]]
        return node

    def leaders(self) -> list[int]:
        """The forest of the union-find, by e-node. Do not change the list."""
        return self._leader

    def operator(self, node: int) -> Operator:
        """The operator of an e-node."""
        return self.operators.entries[self.node_op[node]]

    def args(self, node: int) -> Args:
        """Operands of an e-node as canonical classes, `ABSENT` where one is left out."""
        leader = self._leader
        args = self.node_args[node]
        for a in args:
            if a >= 0 and leader[a] != a:
                return tuple(a if a < 0 else self.find(a) for a in args)
        return args

    def members(self, cls: int) -> list[int]:
        """Live e-nodes of a class. Do not change the list."""
        return self._members[self.find(cls)]

    def parents(self, cls: int) -> list[int]:
        """Live e-nodes that read a class, each once, oldest first."""
        state = self.node_state
        return sorted({node for node in self._parents[self.find(cls)] if state[node] == LIVE})

    def readers_of(self, cls: int) -> list[int]:
        """E-nodes that read a canonical class, in no order; some may be listed twice or be no longer live. Do not
        change the list."""
        return self._parents[cls]

    def reader_count(self, cls: int) -> int:
        """An upper bound of the number of e-nodes that read a class."""
        return len(self._parents[self.find(cls)])

    def classes(self) -> list[int]:
        """Canonical classes that have members."""
        return [cls for cls, members in enumerate(self._members) if members]

    def _own(self, cls: int, lists: list[list[int]], own: set[int]) -> list[int]:
        """The list of a class, for writing: a copy where a fork may share it."""
        if cls < self._own_from and cls not in own:
            own.add(cls)
            lists[cls] = lists[cls].copy()
        return lists[cls]
