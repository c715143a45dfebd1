"""The content of a rule's drawing: the source from its pattern, the target from an application of the rule.

Targets are code, not data: what one builds is seen by running it. Parts that are folded there, since they depend on
constants alone, are shown as the expressions that they come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.matching import schema_default
from graph_rewrite.rewriting.patterns import AttrVar, Maybe, Pattern, PatternNode, PatternOutput, PatternValue, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, DrawnOperand, draw, draw_both
from graph_rewrite.rulebook.values import attribute_text, constant_text
from graph_rewrite.soundness.instances.enumeration import instances
from graph_rewrite.terms.substitution import INPUT, Param, Side, Substitution

LOOKED_AT = 5
"""So many instances of a rule are looked at for one to draw."""


def drawing(rule: Rule, match: Match | None) -> str:
    """A drawing of both sides, the target as it is for this match; of a substitution, in TASO's operators."""
    substitution = getattr(rule, "substitution", None)
    if isinstance(substitution, Substitution):
        return draw_both(diagram_of_side(substitution.source), diagram_of_side(substitution.target))
    if match is None:
        return "\n".join([*draw(diagram_of_pattern(rule.pattern)), "=>", "(no instance known)"])
    target, labels = diagram_of_target(rule, match)
    return draw_both(diagram_of_pattern(rule.pattern, labels), target)


def example(rule: Rule) -> Match | None:
    """A match to draw, of the first few instances: see `_worth`. None where no
    instance is known, and for a substitution, whose target is data."""
    if isinstance(getattr(rule, "substitution", None), Substitution):
        return None
    # Those of the full mode come one by one; the fast one first looks at many to choose from.
    found = islice(instances(rule, full=True), LOOKED_AT)
    matches = [instance.candidate.site.match.within(instance.graph) for instance in found]
    return max(matches, key=_worth, default=None)


def _worth(match: Match) -> tuple[int, int, bool, int]:
    """Return how good a match is to draw: a good one binds many variables and attributes, to different values, of
    float32, of different shapes."""
    names = [w.name for node in match.pattern.nodes for w in node.attrs.values() if isinstance(w, AttrVar)]
    bound = sum(bool(ref) for ref in match.refs) + sum(match.attr(name) is not None for name in names)
    refs = [ref for ref in match.refs if isinstance(ref, Ref)]
    values = {ref.key if ref.constant is None else ref.constant.digest for ref in refs}
    floats = any(ref.dtype == TensorProto.FLOAT for ref in refs)
    return bound, len(values), floats, len({ref.shape for ref in refs})


def diagram_of_pattern(pattern: Pattern, labels: Iterable[str] = ()) -> Diagram:
    """The source side. Nodes whose label is among `labels` are drawn with it."""
    shown, numbers, steps = set(labels), dict[PatternNode, int](), list[DrawnNode]()

    def operand(value: PatternValue | None) -> DrawnOperand:
        if value is None:
            return DrawnOperand("-")
        if isinstance(value, PatternOutput):
            return DrawnOperand(step=place(value.node), index=value.index)
        suffix = "?" if issubclass(value.kind, Maybe) else ""
        return DrawnOperand(f"*{value.name}" if value.kind is Values else value.name + suffix)

    def place(node: PatternNode) -> int:
        if node not in numbers:
            inputs = tuple(operand(value) for value in node.inputs)
            attrs = tuple(f"{name}={_pattern_attr(value)}" for name, value in node.attrs.items())
            label = node.label if node.label in shown else ""
            steps.append(DrawnNode(_operator(pattern, node), inputs, attrs, node.outputs, label))
            numbers[node] = len(steps) - 1
        return numbers[node]

    outputs = tuple(operand(root) for root in pattern.roots)
    return Diagram(tuple(steps), outputs)


def diagram_of_target(rule: Rule, match: Match) -> tuple[Diagram, set[str]]:
    """Return the replacement of a match, and the labels of the source's nodes that the drawing refers to."""
    recorder = _Recorder(match.opset)
    result = rule.target(recorder, match, *match.refs)
    replacement = recorder.finish(result if isinstance(result, tuple) else (result,))
    names = _Names(match)
    steps: list[DrawnNode] = []
    numbers: dict[tuple[Any, ...], int] = {}

    def operand(ref: Ref | None, within: frozenset[str] = frozenset()) -> DrawnOperand:
        if ref is None:
            return DrawnOperand("-")
        known = names.of(ref)
        if known is not None:
            return DrawnOperand(known)
        if ref.constant is None:
            return DrawnOperand(step=numbers["node", ref.node], index=ref.index)
        made = recorder.made.get(ref.constant.digest)
        if made is None or ref.constant.digest in within:
            return DrawnOperand(constant_text(ref.constant))
        op, attrs, inputs, count, index = made
        key = ("constant", op, attrs, tuple("-" if i is None else i.key for i in inputs))
        if key not in numbers:
            inner = within | {ref.constant.digest}
            steps.append(DrawnNode(op, tuple(operand(i, inner) for i in inputs), attrs, count, constant=True))
            numbers[key] = len(steps) - 1
        return DrawnOperand(step=numbers[key], index=index)

    for number, node in enumerate(replacement.nodes):
        inputs = tuple(operand(ref) for ref in node.inputs)
        attrs = names.attrs(node.op, node.domain, node.attrs)
        steps.append(DrawnNode(names.operator(node.op, node.domain), inputs, attrs, len(node.types)))
        numbers["node", number] = len(steps) - 1
    return Diagram(tuple(steps), tuple(operand(ref) for ref in replacement.outputs)), names.used


def diagram_of_side(side: Side) -> Diagram:
    """One side of a substitution, in TASO's operators."""

    def operand(node: int, index: int) -> DrawnOperand:
        return DrawnOperand(f"x{index}") if node == INPUT else DrawnOperand(step=node, index=index)

    steps = []
    for term in side.terms:
        attrs = tuple(f"{name}={_param(value)}" for name, value in term.params if value != "none")
        steps.append(DrawnNode(term.op, tuple(operand(o.node, o.index) for o in term.inputs), attrs, term.outputs))
    return Diagram(tuple(steps), tuple(operand(o.node, o.index) for o in side.outputs))


class _Recorder(ReplacementBuilder):
    """A builder that remembers, by digest, what folded constants were computed from."""

    def __init__(self, opset: int, domain: str = "", shared: _Recorder | None = None) -> None:
        super().__init__(opset, domain, shared)
        self.made: dict[str, tuple[str, tuple[str, ...], tuple[Ref | None, ...], int, int]]
        self.made = {} if shared is None else shared.made

    @property
    def ms(self) -> ReplacementBuilder:
        return _Recorder(self.opset, "com.microsoft", self)

    @property
    def nchwc(self) -> ReplacementBuilder:
        return _Recorder(self.opset, "com.microsoft.nchwc", self)

    def apply(
        self, op: str, domain: str, attrs: dict[str, AttrValue], inputs: tuple[Ref | None, ...], outputs: int
    ) -> tuple[Ref, ...]:
        results = super().apply(op, domain, attrs, inputs, outputs)
        shown = tuple(f"{name}={attribute_text(value)}" for name, value in attrs.items() if value is not None)
        for index, ref in enumerate(results):
            if ref.constant is not None:
                self.made.setdefault(ref.constant.digest, (op, shown, inputs, outputs, index))
        return results


class _Names:
    """The names by which a target may call what the source bound."""

    def __init__(self, match: Match) -> None:
        self._match = match
        self.used: set[str] = set()
        self._external: dict[int, str] = {}
        self._constant: dict[str, str] = {}
        for var, bound in zip(match.pattern.variables, match.refs, strict=True):
            several = isinstance(bound, tuple)
            for i, ref in enumerate(bound if several else (bound,)):
                if ref is None:
                    continue
                name = f"{var.name}{i + 1}" if several else var.name
                self._external.setdefault(ref.external, name)
                if ref.constant is not None:
                    self._constant.setdefault(ref.constant.digest, name)

    def of(self, ref: Ref) -> str | None:
        """The name of a value that the source bound or computes; None for any other."""
        if ref.constant is not None and ref.constant.digest in self._constant:
            return self._constant[ref.constant.digest]
        if ref.external is None:
            return None
        if ref.external in self._external:
            return self._external[ref.external]
        for pattern in self._match.pattern.nodes:
            outputs = self._match.node(pattern.label).outputs
            if ref.external in outputs:
                self.used.add(pattern.label)
                return pattern.label if len(outputs) == 1 else f"{pattern.label}[{outputs.index(ref.external)}]"
        return f"v{ref.external}"

    def operator(self, op: str, domain: str) -> str:
        """An operator's name, or that of the source's node which is one of several and the same here."""
        for pattern in self._match.pattern.nodes:
            node = self._match.node(pattern.label)
            if len(pattern.operators) > 1 and (node.op, node.domain) == (op, domain):
                name = _operator(self._match.pattern, pattern)
                return op if "|" in name else name
        return op

    def attrs(self, op: str, domain: str, attrs: Mapping[str, AttrValue]) -> tuple[str, ...]:
        """A node's attributes: `**label` where it has those of a node of the source that the rule gave a label."""
        shown = {name: value for name, value in attrs.items() if domain or schema_default(op, name) != value}
        for pattern in self._match.pattern.nodes:
            node = self._match.node(pattern.label)
            if shown and _labelled(self._match.pattern, pattern) and _same(node, op, domain, attrs):
                self.used.add(pattern.label)
                return (f"**{pattern.label}",)
        return tuple(f"{name}={attribute_text(value)}" for name, value in shown.items())


def _same(node: Node, op: str, domain: str, attrs: Mapping[str, AttrValue]) -> bool:
    return (node.op, node.domain) == (op, domain) and dict(node.attrs) == dict(attrs)


def _labelled(pattern: Pattern, node: PatternNode) -> bool:
    """Return whether the rule gave the node a label, rather than the builder."""
    return node.label != f"{node.op}{pattern.nodes.index(node)}"


def _operator(pattern: Pattern, node: PatternNode) -> str:
    """The name of a pattern node's operator; of one that may be several, the label that the rule gave it."""
    return node.label if len(node.operators) > 1 and _labelled(pattern, node) else node.op


def instance_note(match: Match) -> str:
    """Return the note on what a target is drawn for: types of the variables, operators and attributes that the source
    binds."""
    parts = []
    for var, bound in zip(match.pattern.variables, match.refs, strict=True):
        refs: Sequence[Ref] = bound if isinstance(bound, tuple) else () if bound is None else (bound,)
        parts.append(f"{var.name} {' and '.join(str(ref.type) for ref in refs) or 'left out'}")
    for pattern in match.pattern.nodes:
        if len(pattern.operators) > 1:
            name = _operator(match.pattern, pattern)
            parts.append(f"{'a choice' if '|' in name else name} {match.node(pattern.label).op}")
        bound_attrs = (wanted.name for wanted in pattern.attrs.values() if isinstance(wanted, AttrVar))
        parts.extend(f"{name} {_attr_note(match.attr(name))}" for name in bound_attrs)
    return ", ".join(dict.fromkeys(parts))


def choices(pattern: Pattern) -> list[tuple[str, tuple[str, ...]]]:
    """The labels of operators that may be several, each with what it may be."""
    found = [node for node in pattern.nodes if len(node.operators) > 1 and _labelled(pattern, node)]
    return [(node.label, tuple(sorted(node.operators))) for node in found]


def _attr_note(value: AttrValue) -> str:
    return "left out" if value is None else attribute_text(value)


def _pattern_attr(value: Any) -> str:
    return value.name if isinstance(value, AttrVar) else attribute_text(value)


def _param(value: Param) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
