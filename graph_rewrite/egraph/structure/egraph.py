"""The e-graph: hash-consed e-nodes, e-classes under union-find, congruence restored by deferred rebuilding.

Willsey et al., "egg: Fast and Extensible Equality Saturation", POPL'21, section 3 (rebuilding) and 4 (analyses).
An e-class stands for one tensor; the analysis holds its type and, where it is known before run time, its constant.
An application with several outputs has an e-class of its own without a type, and an e-node `Output i` of it per
output. Both operand orders of a commutative operator are one e-node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graph_rewrite.egraph.structure.classes import DEAD, FILTERED, LIVE, Args, EClasses
from graph_rewrite.egraph.structure.constants import folded
from graph_rewrite.egraph.structure.operators import CONSTANT, Operator
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.replacement import ReplacementBuilder

ANY = -1
"""The mask of all operators."""


class EGraph(EClasses):
    """E-nodes and e-classes, both plain integers: e-node n lies in the class `find(n)`.

    Args:
        opset: ONNX operator set of the operators.
        builder: makes what rules build their targets with.
    """

    def __init__(self, opset: int = 23, builder: Callable[[int], ReplacementBuilder] = ReplacementBuilder) -> None:
        super().__init__()
        self.opset, self._builder = opset, builder
        self.source: Graph | None = None
        """The graph that the e-graph was made from."""
        self.roots: tuple[int, ...] = ()
        """Classes of the outputs."""
        self.kept: tuple[int, ...] = ()
        """Classes that stay although no output needs them."""
        self.class_masks: list[int] = []
        """By class: which operators its members may be, as `Operator.mask`; never too few."""
        self.types: list[TensorType | None] = []
        self.constants: dict[int, Constant] = {}
        """By class that is known before run time."""
        self.values: dict[int, int] = {}
        """By class: the value of `source` that it stands for."""
        self.origins: dict[int, Any] = {}
        """By application: the node of the model file that it was read from."""
        self.log: list[int] = []
        """Classes that have changed, in order: new e-nodes, and classes that another was merged into."""
        self.log_masks: list[int] = []
        """By entry of the log: which operators can now match anew there, as `Operator.mask`, or `ANY`."""
        self.filtered = 0
        """E-nodes taken out because they closed a cycle."""
        self._memo: dict[tuple[Any, ...], int] = {}
        self._by_operator: dict[tuple[str, str], list[int]] = {}
        self._pending: list[int] = []
        self._became_constant: list[int] = []
        # Caches of other modules of this package, which say what they hold.
        self.seen: dict[Any, int] = {}  # saturation.application: by rule
        self.resume: dict[Any, Any] = {}  # saturation.application: by rule
        self.targets: dict[Any, Any] = {}  # matching.targets: shared by all forks
        self.base: Any = None  # matching.shared_matches: the same in all forks until it is replaced
        self.dirty: dict[tuple[int, int], tuple[int, list[set[int]]]] = {}  # matching.changes
        self.ranks: list[int] | None = None  # structure.cycles
        self.flat: Any = None  # structure.arrays

    def fork(self) -> EGraph:
        """An independent e-graph with the same contents."""
        self.rebuild()
        other = EGraph.__new__(EGraph)
        other.__dict__.update(self.__dict__)
        for name in (
            "node_op", "node_args", "node_state", "class_masks", "types", "constants", "values", "log", "log_masks",
            "seen", "resume", "_leader", "_members", "_parents", "_memo",
        ):  # fmt: skip
            setattr(other, name, getattr(self, name).copy())
        other._by_operator = {key: nodes.copy() for key, nodes in self._by_operator.items()}
        other._pending, other._became_constant, other.dirty = [], [], self.dirty.copy()
        for graph in (self, other):
            graph._own_members, graph._own_parents, graph._own_from = set(), set(), len(self._leader)
        return other

    def builder(self) -> ReplacementBuilder:
        """A fresh builder for a rule's target."""
        return self._builder(self.opset)

    def type_of(self, cls: int) -> TensorType | None:
        return self.types[self.find(cls)]

    def constant_of(self, cls: int) -> Constant | None:
        return self.constants.get(self.find(cls))

    def with_operator(self, op: str, domain: str) -> list[int]:
        """Live e-nodes of an operator, whatever its attributes, oldest first."""
        nodes = self._by_operator.get((op, domain), [])
        state = self.node_state
        live = [node for node in nodes if state[node] == LIVE]
        if len(live) < len(nodes):
            self._by_operator[op, domain] = live
        return live

    def outputs_of(self, node: int) -> tuple[int, ...]:
        """The classes of what an application computes, one per output."""
        operator, cls = self.operator(node), self.find(node)
        if operator.outputs == 1:
            return (cls,)
        outputs = (self.operators.output(i).number for i in range(operator.outputs))
        return tuple(self.find(self._memo[number, cls]) for number in outputs)

    def lookup(self, operator: Operator, args: Args) -> int | None:
        """The class of an e-node where it exists. `args` must be canonical."""
        node = self._memo.get(operator.key(args))
        return None if node is None else self.find(node)

    def lookup_constant(self, constant: Constant) -> int | None:
        node = self._memo.get((CONSTANT, constant.digest))
        return None if node is None else self.find(node)

    def find_equal(self, node: int) -> int | None:
        """The e-node that stands for an application or an output, itself or the one it was merged with."""
        return self._memo.get(self.operator(node).key(self.args(node)))

    def add_constant(self, constant: Constant) -> int:
        """The class of a constant."""
        key = (CONSTANT, constant.digest)
        node = self._memo.get(key)
        if node is None:
            node = self._new(self.operators.entries[CONSTANT], (), key, constant.type)
            self.constants[node] = constant
        return self.find(node)

    def add(self, operator: Operator, args: Sequence[int], types: Sequence[TensorType | None]) -> tuple[int, ...]:
        """The classes of an application's outputs; new e-nodes where there is no equal one.

        Args:
            operator: from this e-graph's table.
            args: classes, `ABSENT` where an operand is left out.
            types: of the outputs.
        """
        args = tuple(a if a < 0 else self.find(a) for a in args)
        key = operator.key(args)
        node = self._memo.get(key)
        if node is not None:
            return self.outputs_of(node)
        single = operator.outputs == 1
        node = self._new(operator, args, key, types[0] if single else None)
        self._by_operator.setdefault((operator.op, operator.domain), []).append(node)
        if single:
            return (node,)
        for i, type in enumerate(types):
            output = self.operators.output(i)
            self._new(output, (node,), (output.number, node), type)
        return self.outputs_of(node)

    def union(self, first: int, second: int) -> bool:
        """Make two classes one; False where they are already. Call `rebuild` before the next look-up.

        Raises:
            ValueError: both have types, and these differ.
        """
        a, b = self.find(first), self.find(second)
        if a == b:
            return False
        if self.types[a] is not None and self.types[b] is not None and self.types[a] != self.types[b]:
            raise ValueError(f"{self.types[a]} and {self.types[b]} cannot be equal")
        if len(self._parents[a]) + len(self._members[a]) < len(self._parents[b]) + len(self._members[b]):
            a, b = b, a
        self.log_masks.append(self._news(a, b))
        self._leader[b] = a
        self._own(a, self._members, self._own_members).extend(self._members[b])
        self._own(a, self._parents, self._own_parents).extend(self._parents[b])
        self._members[b], self._parents[b] = [], []
        self.types[a] = self.types[a] or self.types[b]
        self.class_masks[a] |= self.class_masks[b]
        if (a in self.constants) != (b in self.constants):
            self._became_constant.append(a)
        known = self.constants.pop(b, None)
        if known is not None:
            self.constants.setdefault(a, known)
        if b in self.values:
            value = self.values.pop(b)
            self.values[a] = min(value, self.values.get(a, value))
        self.log.append(a)
        self._pending.append(a)
        return True

    def rebuild(self) -> None:
        """Restore congruence: merge e-nodes that have become equal, and their classes."""
        while self._pending or self._became_constant:
            while self._pending:
                todo = dict.fromkeys(self.find(cls) for cls in self._pending)
                self._pending = []
                for cls in todo:
                    self._repair(self.find(cls))
            became, self._became_constant = self._became_constant, []
            for cls in dict.fromkeys(map(self.find, became)):
                for node in self.parents(cls):
                    self._fold(node)

    def remove(self, node: int) -> None:
        """Take an e-node out because it closes a cycle. It stays known, so that no rule brings it back."""
        self.node_state[node] = FILTERED
        cls = self.find(node)
        self._own(cls, self._members, self._own_members).remove(node)
        self.size -= 1
        self.filtered += 1

    def canonical_roots(self) -> tuple[int, ...]:
        """Classes of the outputs, then of what must stay although no output needs it."""
        return tuple(self.find(cls) for cls in (*self.roots, *self.kept))

    def _new(self, operator: Operator, args: Args, key: tuple[Any, ...], type: TensorType | None) -> int:
        node = len(self.node_op)
        self.node_op.append(operator.number)
        self.node_args.append(args)
        self.node_state.append(LIVE)
        self.types.append(type)
        self.class_masks.append(operator.mask)
        self._leader.append(node)
        self._members.append([node])
        self._parents.append([])
        self._memo[key] = node
        for arg in dict.fromkeys(args):
            if arg >= 0:
                self._own(arg, self._parents, self._own_parents).append(node)
        self.size += 1
        self.log.append(node)
        self.log_masks.append(operator.mask)
        return node

    def _news(self, a: int, b: int) -> int:
        """Return the operators of the members that readers of two classes meet for the first time in their union.
        `ANY` where e-nodes that did not share an operand may now do so, and where one class is a constant."""
        if a in self.constants or b in self.constants or (self._parents[a] and self._parents[b]):
            return ANY
        return self.class_masks[b if self._parents[a] else a]

    def _repair(self, cls: int) -> None:
        """Bring the keys of the e-nodes that read a merged class up to date, and merge those that are now equal."""
        merged: list[tuple[int, int]] = []
        kept: dict[int, None] = {}
        for node in self._parents[cls]:
            if self.node_state[node] == DEAD or node in kept:
                continue
            kept[node] = None
            args, operator = self.args(node), self.operator(node)
            if args == self.node_args[node]:
                continue
            old = operator.key(self.node_args[node])
            if self._memo.get(old) == node:
                del self._memo[old]
            self.node_args[node] = args
            other = self._memo.setdefault(operator.key(args), node)
            if other != node:
                merged.append((other, node))
        self._parents[cls] = list(kept)
        self._own_parents.add(cls)
        for first, second in merged:
            self._merge_nodes(first, second)

    def _merge_nodes(self, first: int, second: int) -> None:
        """Drop the second of two equal e-nodes; the one that is left is live where either was."""
        state = self.node_state
        if state[second] == LIVE:
            cls = self.find(second)
            self._own(cls, self._members, self._own_members).remove(second)
            if state[first] == LIVE:
                self.size -= 1
            else:
                self._revive(first)
        state[second] = DEAD
        if second in self.origins and first not in self.origins:
            self.origins = {**self.origins, first: self.origins[second]}
        self.union(first, second)

    def _revive(self, node: int) -> None:
        operator, cls = self.operator(node), self.find(node)
        self.node_state[node] = LIVE
        self.class_masks[cls] |= operator.mask
        self._own(cls, self._members, self._own_members).append(node)
        if operator.kind == "operator":
            self._by_operator.setdefault((operator.op, operator.domain), []).append(node)

    def _fold(self, node: int) -> None:
        args, constants = self.args(node), self.constants
        if any(arg >= 0 and arg not in constants for arg in args):
            return
        inputs = [None if arg < 0 else constants[arg] for arg in args]
        outputs = self.outputs_of(node)
        found = folded(self.operator(node), inputs, [self.type_of(cls) for cls in outputs], self.opset)
        for cls, constant in zip(outputs, found or (), strict=False):
            if cls not in constants:
                self.union(cls, self.add_constant(constant))
