"""The refutation of a rule: the instance at which it is wrong, written out for a reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.soundness.decision.exact import Decision
from graph_rewrite.soundness.floating.comparison import FloatDifference
from graph_rewrite.soundness.instances.enumeration import Instance


@dataclass(frozen=True)
class Refutation:
    """The reason for which a rule has no certificate. Where it is wrong at an instance, `source` and `target` list the
    operators of both sides, and `evidence` the inputs and outputs."""

    rule: str
    equation: str
    reason: str
    instance: str = ""
    source: Sequence[str] = ()
    target: Sequence[str] = ()
    evidence: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [f"{self.rule}: {self.reason}", f"  equation  {self.equation}"]
        if self.instance:
            lines.append(f"  instance  {self.instance}")
        for title, operators in (("source", self.source), ("target", self.target)):
            lines += [f"  {title if i == 0 else '':9} {text}" for i, text in enumerate(operators)]
        return "\n".join((*lines, *(f"  {line}" for line in self.evidence)))


def refutation_at(
    rule: Rule, instance: Instance, after: Graph, reason: str, evidence: Sequence[str] = ()
) -> Refutation:
    """Return the refutation of a rule at an instance, which it rewrites to `after`."""
    source, target = operators(instance.graph), operators(after)
    return Refutation(rule.name, rule.equation, reason, instance.label, source, target, tuple(evidence))


def operators(graph: Graph) -> tuple[str, ...]:
    """A line per operator of a graph, with the types of its operands and its attributes."""
    lines = []
    for node in graph.order():
        arguments = ", ".join("" if value is None else _operand(graph, value) for value in node.inputs)
        attributes = ", ".join(f"{name}={_short(node.attrs[name])}" for name in sorted(node.attrs))
        results = ", ".join(_name(graph, value) for value in node.outputs)
        operator = f"{node.domain}.{node.op}" if node.domain else node.op
        lines.append(f"{results} = {operator}({'; '.join(part for part in (arguments, attributes) if part)})")
    return tuple(lines) or ("nothing",)


def describe(difference: FloatDifference) -> list[str]:
    """A difference in words: where and how far, all inputs, and both outputs."""
    at = "" if difference.index is None else f"{list(difference.index)}"
    lines = [
        f"inputs    {difference.kind}: output {difference.output}{at} in {difference.engine}: {difference.message}"
    ]
    lines += [f"  {name} = {_array(array)}" for name, array in difference.feeds.items()]
    for title, arrays in (("before", difference.before), ("after", difference.after)):
        lines += [f"{title:9} {_array(array)}" for array in arrays]
    return lines


def decision_lines(decision: Decision) -> list[str]:
    """Return the detail of a decision and its counterexample, as lines."""
    lines = [f"detail    {decision.detail}"] if decision.detail else []
    return lines + ([] if decision.counterexample is None else str(decision.counterexample).splitlines())


def _operand(graph: Graph, value: int) -> str:
    constant = graph.constants.get(value)
    if constant is not None:
        return f"{constant.type} {_array(constant.numpy())}" if constant.type.size <= 8 else f"constant {constant.type}"
    return f"{_name(graph, value)}: {graph.types[value]}"


def _name(graph: Graph, value: int) -> str:
    for name, output in zip(graph.output_names, graph.outputs, strict=True):
        if output == value:
            return name
    return graph.names.get(value, f"v{value}")


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _array(array: np.ndarray[Any, Any]) -> str:
    """An array on one line, long ones shortened."""
    text = np.array2string(array, precision=6, threshold=64, edgeitems=4, separator=",", max_line_width=10**9)
    return " ".join(text.split())
