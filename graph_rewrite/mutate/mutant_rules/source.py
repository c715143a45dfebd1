"""The source of a mutant's rule: operators of a subprogram as data, as a pattern, and as they are read at a match."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.mutate.mutant_rules.program_json import integer
from graph_rewrite.mutate.program import Subprogram, TensorProgram
from graph_rewrite.mutate.reading import Reading, read
from graph_rewrite.mutate.subprograms import composed
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Pattern, PatternBuilder, PatternOutput, PatternValue, Value, Var
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Refusal

_MOST_RESULTS = 128


@dataclass(frozen=True, slots=True)
class SourceNode:
    """An operator of a subprogram, with the number of its results. Its operands are texts: "x0" is an input of the
    program, "n0" the result of an operator before it and "n0.1" its second one, "c0" a constant parameter such as the
    pads of a Pad, and "" an operand that is left out."""

    op: str
    operands: tuple[str, ...]
    results: int = 1

    def to_json(self) -> list[Any]:
        """Return the operator as plain values."""
        return [self.op, list(self.operands), *([self.results] if self.results > 1 else [])]


@dataclass(frozen=True, slots=True)
class Source:
    """The operators of a subprogram, and the results of them that it returns, as texts like those of operands."""

    nodes: tuple[SourceNode, ...]
    outputs: tuple[str, ...]

    def pattern(self, count: int, constants: frozenset[int]) -> Pattern:
        """Return the operators as a pattern of `count` inputs, of which some must be known before run time."""
        variables = [Var(f"x{i}", Const if i in constants else Value) for i in range(count)]
        names = [name for node in self.nodes for name in node.operands if name.startswith("c")]
        variables += [Var(name, Const) for name in names]
        known: dict[str, PatternValue | None] = {"": None, **{variable.name: variable for variable in variables}}
        builder = PatternBuilder()
        for number, node in enumerate(self.nodes):
            operands = [known[name] for name in node.operands]
            made = builder.any_of((node.op,))(*operands, _label=f"n{number}", _outputs=node.results)
            known |= zip(_names(number, node.results), made if node.results > 1 else [made], strict=True)
        roots = [known[name] for name in self.outputs]
        return Pattern(
            tuple(variables), tuple(builder.nodes), tuple(root for root in roots if isinstance(root, PatternOutput))
        )

    def to_json(self) -> dict[str, Any]:
        """Return the source as plain values."""
        outputs = [name if "." in name else int(name[1:]) for name in self.outputs]
        return {"nodes": [node.to_json() for node in self.nodes], "outputs": outputs}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], count: int) -> Source:
        """Return the source of plain values, of a program of `count` inputs.

        Raises:
            ValueError, TypeError, KeyError: a part is missing or of the wrong form.
        """
        nodes: list[SourceNode] = []
        parameters = 0
        made = set[str]()
        for op, operands, *more in values["nodes"]:
            known = {"", *(f"x{i}" for i in range(count)), *made}
            for name in operands:
                if name not in known and name != f"c{parameters}":
                    raise ValueError(f"{name!r} is no operand")
                parameters += name == f"c{parameters}"
            if not re.fullmatch(r"[A-Z]\w*", op):
                raise ValueError(f"{op!r} is no operator")
            results = integer(*more) if more else 1
            if not 1 <= results <= _MOST_RESULTS:
                raise ValueError(f"an operator of {results} results")
            made.update(_names(len(nodes), results))
            nodes.append(SourceNode(op, tuple(operands), results))
        outputs = tuple(name if isinstance(name, str) else f"n{integer(name)}" for name in values["outputs"])
        if not outputs or not made.issuperset(outputs):
            raise ValueError(f"outputs {outputs} of {len(nodes)} operators")
        return cls(tuple(nodes), outputs)


def _names(number: int, results: int) -> list[str]:
    """Return the names of an operator's results."""
    return [f"n{number}.{index}" if index else f"n{number}" for index in range(results)]


def source_of(graph: Graph, sub: Subprogram) -> Source:
    """Return the operators of a subprogram of a graph."""
    names = {value: f"x{number}" for number, value in enumerate(sub.inputs)}
    nodes: list[SourceNode] = []
    parameters = 0
    for number, node_id in enumerate(sub.nodes):
        operands: list[str] = []
        for value in graph.nodes[node_id].inputs:
            if value is not None and value not in names:
                operands.append(f"c{parameters}")
                parameters += 1
            else:
                operands.append("" if value is None else names[value])
        made = graph.nodes[node_id].outputs
        nodes.append(SourceNode(graph.nodes[node_id].op, tuple(operands), len(made)))
        names |= zip(made, _names(number, len(made)), strict=True)
    return Source(tuple(nodes), tuple(names[value] for value in sub.outputs))


@dataclass(slots=True)
class _MatchedValues:
    """Types and constants of the values of a match; these are numbered by the source, not by the graph."""

    types: dict[int, TensorType | None]
    constants: dict[int, Constant]

    def add(self, ref: Ref) -> int:
        """Add a value, and return its number."""
        number = len(self.types)
        self.types[number] = ref.type
        if ref.constant is not None:
            self.constants[number] = ref.constant
        return number


def read_match(source: Source, count: int, m: Match) -> TensorProgram | Refusal:
    """Return the matched operators as a program over the pattern's inputs, whichever values of the graph these are."""
    values = _MatchedValues({}, {})
    names = {variable.name: values.add(ref) for variable, ref in zip(m.pattern.variables, m.refs, strict=True)}
    parts: list[tuple[Reading, tuple[int, ...]]] = []
    for number, node in enumerate(source.nodes):
        label = f"n{number}"
        made = tuple(values.add(m.value(label, index)) for index in range(node.results))
        names |= zip(_names(number, node.results), made, strict=True)
        operands = [names[name] if name else None for name in node.operands]
        found = read(values, Node(number, node.op, operands, made, m.attrs(label)))
        if isinstance(found, Refusal):
            return found
        parts.append((found, made))
    return composed(range(count), parts, [names[name] for name in source.outputs])
