"""Small algebras without tensors: terms over operators that have names only. For tests and examples, and to try a
search over rule applications on problems of a few nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from onnx import TensorProto

from graph_rewrite.egraph.structure import EGraph
from graph_rewrite.ir.attributes import AttrValue, operator_signature
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Pattern, PatternBuilder, Value, Var
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder, ReplacementNode
from graph_rewrite.rewriting.rule import Rule

TERM = TensorType(TensorProto.FLOAT, ())
"""The type of every term."""

Term = str | tuple[Any, ...]
"""A name, or an operator's name and its operands."""


class TermBuilder(ReplacementBuilder):
    """Builds targets out of operators that are names: no types are checked and nothing is folded."""

    def apply(
        self, op: str, domain: str, attrs: dict[str, AttrValue], inputs: tuple[Ref | None, ...], outputs: int
    ) -> tuple[Ref, ...]:
        signature = operator_signature(op, domain, attrs)
        key = (signature, outputs, tuple(None if ref is None else ref.key for ref in inputs))
        if key not in self._known:
            self._nodes.append(ReplacementNode(op, domain, attrs, inputs, (TERM,) * outputs, signature))
            self._known[key] = tuple(Ref(TERM, node=len(self._nodes) - 1, index=i) for i in range(outputs))
        return self._known[key]


def term_egraph(*terms: Term) -> EGraph:
    """An e-graph of terms, which are its roots. A name is an operator without operands."""
    egraph = EGraph(builder=TermBuilder)
    egraph.roots = tuple(add_term(egraph, term) for term in terms)
    return egraph


def add_term(egraph: EGraph, term: Term) -> int:
    """The class of a term; what it lacks is added."""
    op, operands = (term, ()) if isinstance(term, str) else (term[0], term[1:])
    args = tuple(add_term(egraph, operand) for operand in operands)
    operator = egraph.operators.application(op, "", {}, operator_signature(op, "", {}))
    return egraph.add(operator, args, [TERM])[0]


def find_term(egraph: EGraph, term: Term) -> int | None:
    """The class of a term where the e-graph has it."""
    op, operands = (term, ()) if isinstance(term, str) else (term[0], term[1:])
    args: list[int] = []
    for operand in operands:
        cls = find_term(egraph, operand)
        if cls is None:
            return None
        args.append(cls)
    operator = egraph.operators.application(op, "", {}, operator_signature(op, "", {}))
    return egraph.lookup(operator, tuple(args))


class TermRule(Rule):
    """A rule between two terms, in which names that begin with ? are variables.

    TermRule("one", ("Times", "?x", "one"), "?x")

    Raises:
        ValueError: the target has a variable that the source lacks, or the source is a bare variable.
    """

    def __init__(self, name: str, source: Term, target: Term) -> None:
        unbound = set(_variables(target)) - set(_variables(source))
        if unbound:
            raise ValueError(f"rule {name}: the source does not bind {', '.join(sorted(unbound))}")
        if isinstance(source, str) and source.startswith("?"):
            raise ValueError(f"rule {name}: the source is a bare variable, which matches everything")
        self._name, self._source, self._target = name, source, target

    @property
    def name(self) -> str:
        return self._name

    @property
    def equation(self) -> str:
        return f"{show(self._source)} = {show(self._target)}"

    @cached_property
    def pattern(self) -> Pattern:
        builder = PatternBuilder()
        variables = {name: Var(name, Value) for name in dict.fromkeys(_variables(self._source))}
        root = _build(builder, self._source, variables)
        return Pattern(tuple(variables.values()), tuple(builder.nodes), (root,))

    def target(self, op: ReplacementBuilder, m: Match, *variables: Ref) -> Any:
        return _build(
            op, self._target, {var.name: ref for var, ref in zip(self.pattern.variables, variables, strict=True)}
        )


def show(term: Term) -> str:
    """A term as text."""
    return term if isinstance(term, str) else f"{term[0]}({', '.join(map(show, term[1:]))})"


def _build(op: Any, term: Term, bound: Mapping[str, Any]) -> Any:
    if isinstance(term, str):
        return bound[term] if term.startswith("?") else getattr(op, term)()
    return getattr(op, term[0])(*(_build(op, operand, bound) for operand in term[1:]))


def _variables(term: Term) -> list[str]:
    if isinstance(term, str):
        return [term] if term.startswith("?") else []
    return [variable for operand in term[1:] for variable in _variables(operand)]


PHASE_ORDERING_TERM: Term = ("Over", ("Times", "a", "two"), "two")
"""(a * 2) / 2, of Hartmann et al., PACT'24, section 2.2.1 and figure 2."""

PHASE_ORDERING_LIMIT = 10
"""E-nodes at which construction stops there."""


def phase_ordering_rules() -> tuple[TermRule, ...]:
    """The rules of PACT'24, section 2.1 (Shift, Divide, Cancel, One) among three that are as true but only make the
    e-graph larger. Applied in this order the e-graph reaches `PHASE_ORDERING_LIMIT` before `a` is found; Divide,
    Cancel, One find it with 7 e-nodes at most.
    """
    x, y, z = "?x", "?y", "?z"
    return (
        TermRule("Shift", ("Times", x, "two"), ("ShiftLeft", x, "one")),
        TermRule("Swap", ("Times", x, y), ("Times", y, x)),
        TermRule("Twice", ("ShiftLeft", x, "one"), ("Plus", x, x)),
        TermRule("Invert", ("Over", x, y), ("Times", x, ("Over", "one", y))),
        TermRule("Divide", ("Over", ("Times", x, y), z), ("Times", x, ("Over", y, z))),
        TermRule("Cancel", ("Over", x, x), "one"),
        TermRule("One", ("Times", x, "one"), x),
    )
