"""Emission: one graph for all shapes, out of graphs of the same structure at several bindings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.constants import Constant, from_ints
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.ordering import topological_ranks
from graph_rewrite.symbolic.integers import Formula, Monomial
from graph_rewrite.symbolic.lanes import Lane, NotGeneralError
from graph_rewrite.symbolic.plans import Computed, Fixed, Integers, Plan, Planner, Rows, Runtime, reshape_target


class NotEmittedError(NotGeneralError):
    """A constant of the graph has no plan. `node` is the node that reads it, in the first lane."""

    def __init__(self, message: str, node: int) -> None:
        super().__init__(message)
        self.node = node


def emit(lanes: Sequence[Lane], sources: Mapping[str, tuple[int, int]]) -> Graph:
    """Return the graph of the first lane with every constant that differs between the lanes computed from the shapes of
    the inputs. Inputs and outputs have no static types, so that a saved model declares what the original declares; the
    types of other values are those of the first lane.

    Args:
        lanes: graphs of the same structure, from `carry`.
        sources: the input, by its value, and the axis that each symbol is the size of.

    Raises:
        NotEmittedError: there is no such computation.
    """
    return _Emitter(lanes, sources).graph()


@dataclass(slots=True)
class _Emitter:
    lanes: Sequence[Lane]
    sources: Mapping[str, tuple[int, int]]
    nodes: dict[int, Node] = field(default_factory=dict)
    constants: dict[int, Constant] = field(default_factory=dict)
    next_id: int = 0
    names: dict[int, str] = field(default_factory=dict)
    """Names of values that subgraphs read by them."""
    _made: dict[object, int] = field(default_factory=dict)
    _planner: Planner = field(init=False)
    _twins: list[dict[int, int]] = field(default_factory=list)
    """Per lane, its nodes by the first lane's."""

    def __post_init__(self) -> None:
        self._planner = Planner(self.lanes)
        first = self.lanes[0]
        self.next_id = first.graph.next_id
        back = {node: searched for searched, node in first.nodes.items()}
        for lane in self.lanes:
            self._twins.append({node: lane.nodes[back[node]] for node in first.graph.nodes})

    def graph(self) -> Graph:
        first = self.lanes[0].graph
        for node in first.order():
            inputs = [self._operand(node, position) for position in range(len(node.inputs))]
            self._name_captures(node, inputs)
            self.nodes[node.id] = node if inputs == list(node.inputs) else node.with_inputs(inputs)
        outputs = tuple(self._output(position) for position in range(len(first.outputs)))
        nodes = {node.id: node for node in self.nodes.values()}
        read = {value for node in nodes.values() for value in node.inputs} | set(outputs)
        unread = first.constants.keys() - {v for v in first.constants if first.consumers.get(v)}
        constants = {v: c for v, c in {**first.constants, **self.constants}.items() if v in read or v in unread}
        producer = {value: node.id for node in nodes.values() for value in node.outputs}
        open_ones = {*first.inputs, *first.stored, *outputs}
        types = {value: None if value in open_ones else first.types.get(value) for value in (*open_ones, *producer)}
        graph = replace(
            first, nodes=nodes, constants=constants, producer=producer, consumers=consumers_of(nodes.values()),
            types={**types, **{value: constant.type for value, constant in constants.items()}},
            outputs=outputs, names={**first.names, **self.names}, next_id=self.next_id, memo=GraphMemo(), edit=None,
        )  # fmt: skip
        try:
            graph.ranks = topological_ranks(graph)
        except InvalidRewriteError as error:
            raise NotGeneralError(f"what the model computes from shapes would depend on itself: {error}") from error
        return graph

    def _name_captures(self, node: Node, inputs: list[int | None]) -> None:
        """Give values that subgraphs of a node read from outside, and that are computed now, the names that they are
        read by."""
        first = len(inputs) - len(node.captures)
        for position, name in enumerate(node.captures, start=first):
            if inputs[position] != node.inputs[position]:
                (copied,) = self._insert("Identity", [inputs[position]])
                self.names[copied] = name
                inputs[position] = copied

    def _operand(self, node: Node, position: int) -> int | None:
        value = node.inputs[position]
        first = self.lanes[0].graph
        if value is None or value not in first.constants:
            return value
        constants = []
        for lane, twins in zip(self.lanes, self._twins, strict=True):
            read = lane.graph.nodes[twins[node.id]].inputs[position]
            constants.append(lane.graph.constants[read] if read is not None else first.constants[value])
        if all(constant.digest == constants[0].digest for constant in constants):
            return value
        if node.op == "Reshape" and position == 1 and (target := self._target(node, constants)) is not None:
            return self._constant(from_ints(target))
        plan = self._planner.plan(constants)
        if plan is None:
            raise NotEmittedError(f"the {constants[0].type} that {node.op} reads is not known for all shapes", node.id)
        return self._value(plan, node)

    def _target(self, node: Node, constants: Sequence[Constant]) -> tuple[int, ...] | None:
        shapes = []
        for lane, twins in zip(self.lanes, self._twins, strict=True):
            source = lane.graph.nodes[twins[node.id]].inputs[0]
            type = None if source is None else lane.graph.types[source]
            if type is None or node.attrs.get("allowzero"):
                return None
            shapes.append(type.shape)
        return reshape_target([[int(i) for i in constant.numpy()] for constant in constants], shapes)

    def _output(self, position: int) -> int:
        values = [lane.graph.outputs[position] for lane in self.lanes]
        found = [lane.graph.constants.get(value) for lane, value in zip(self.lanes, values, strict=True)]
        constants = [constant for constant in found if constant is not None]
        if not constants:
            return values[0]
        plan = self._planner.plan(constants) if len(constants) == len(found) else None
        if plan is None:
            raise NotGeneralError("an output that is constant at the bound shape is not known for all shapes")
        return values[0] if isinstance(plan, Fixed) else self._value(plan, None)

    def _value(self, plan: Plan, reader: Node | None) -> int:
        """Return the value that holds what a plan gives."""
        if isinstance(plan, Fixed):
            return self._constant(plan.constant)
        if isinstance(plan, Runtime):
            graph = self.lanes[0].graph
            if plan.value not in graph.inputs and plan.value not in graph.producer:
                raise NotEmittedError(
                    "it needs the shape of a value that was rewritten", -1 if reader is None else reader.id
                )
            return plan.value
        if isinstance(plan, Integers):
            return self._integers(plan)
        if isinstance(plan, Rows):
            return self._rows(plan)
        return self._computed(plan, reader)

    def _computed(self, plan: Computed, reader: Node | None) -> int:
        key = (plan.key, plan.index)
        if key not in self._made:
            inputs = [None if source is None else self._value(source, reader) for source in plan.inputs]
            outputs = self._insert(plan.op, inputs, plan.outputs, plan.domain, plan.attrs)
            self._made.update(((plan.key, i), value) for i, value in enumerate(outputs))
        return self._made[key]

    def _rows(self, plan: Rows) -> int:
        key = ("rows", plan.constant.digest, plan.axes, plan.sizes)
        if key not in self._made:
            starts, axes = (self._constant(from_ints(i)) for i in ((0,) * len(plan.axes), plan.axes))
            ends = self._integers(Integers(plan.sizes, (len(plan.sizes),), onnx.TensorProto.INT64))
            self._made[key] = self._insert("Slice", [self._constant(plan.constant), starts, ends, axes])[0]
        return self._made[key]

    def _integers(self, plan: Integers) -> int:
        if plan not in self._made:
            parts: list[int] = []
            fixed: list[int] = []
            for formula in plan.formulas:
                if formula.is_constant:
                    fixed.append(formula.at({}))
                    continue
                if fixed:
                    parts.append(self._constant(from_ints(tuple(fixed))))
                    fixed = []
                parts.append(self._formula(formula))
            if fixed:
                parts.append(self._constant(from_ints(tuple(fixed))))
            value = parts[0] if len(parts) == 1 else self._insert("Concat", parts, attrs={"axis": 0})[0]
            if plan.dtype != onnx.TensorProto.INT64:
                value = self._insert("Cast", [value], attrs={"to": plan.dtype})[0]
            if len(plan.shape) != 1:
                value = self._insert("Reshape", [value, self._constant(from_ints(plan.shape))])[0]
            self._made[plan] = value
        return self._made[plan]

    def _formula(self, formula: Formula) -> int:
        """Return the value of a formula, as a vector of one integer."""
        if formula not in self._made:
            value = self._term(formula.terms[0])
            for term in formula.terms[1:]:
                value = self._insert("Add", [value, self._term(term)])[0]
            for op, operand, neutral in (
                ("Add", formula.constant, 0), ("Div", formula.divisor, 1), ("Add", formula.offset, 0),
            ):  # fmt: skip
                if operand != neutral:
                    value = self._insert(op, [value, self._constant(from_ints((operand,)))])[0]
            self._made[formula] = value
        return self._made[formula]

    def _term(self, term: Monomial) -> int:
        if term not in self._made:
            value = self._symbol(term.symbols[0])
            for symbol in term.symbols[1:]:
                value = self._insert("Mul", [value, self._symbol(symbol)])[0]
            if term.factor != 1:
                value = self._insert("Mul", [value, self._constant(from_ints((term.factor,)))])[0]
            self._made[term] = value
        return self._made[term]

    def _symbol(self, symbol: str) -> int:
        if symbol not in self._made:
            source, axis = self.sources[symbol]
            if ("shape", source) not in self._made:
                self._made["shape", source] = self._insert("Shape", [source])[0]
            shape = self._made["shape", source]
            self._made[symbol] = self._insert("Gather", [shape, self._constant(from_ints((axis,)))])[0]
        return self._made[symbol]

    def _constant(self, constant: Constant) -> int:
        key = ("constant", constant.digest)
        if key not in self._made:
            self._made[key] = self._new()
            self.constants[self._made[key]] = constant
        return self._made[key]

    def _insert(
        self,
        op: str,
        inputs: Sequence[int | None],
        outputs: int = 1,
        domain: str = "",
        attrs: Mapping[str, object] | None = None,
    ) -> list[int]:
        made = [self._new() for _ in range(outputs)]
        node_id = self._new()
        self.nodes[node_id] = Node(node_id, op, inputs, made, attrs or {}, domain)
        return made

    def _new(self) -> int:
        self.next_id += 1
        return self.next_id - 1
