"""Patterns: the source side of a rule, as data. Written like ONNX expressions, read by the matcher, the e-graph,
the verifier and the documentation.

    def source(self, op, x, w: Const, b: Const):
        return op.Add(op.MatMul(x, w), b)

Parameters are variables. Their annotation says what they bind: `Value` (default), `Const` (known before run time),
`Scalar` (a constant of one element), `Maybe` (an optional input that may be left out), `Values` (all inputs of a
variadic operator).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


class Value:
    """Any value."""


class Const:
    """A value known before run time."""


class Scalar(Const):
    """A constant with one element."""


class Maybe:
    """An optional input: bound to a value, or to None where it is left out."""


class MaybeConst(Maybe):
    """An optional constant input."""


class Values:
    """All inputs of a variadic operator, as a tuple."""


@dataclass(frozen=True, slots=True)
class AttrVar:
    """An attribute to be bound by name; `default` where the node doesn't have it."""

    name: str
    default: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Var:
    """A pattern variable."""

    name: str
    kind: type
    optional: bool = field(init=False)
    """Tells whether it may be bound to None: an input left out."""
    constant: bool = field(init=False)
    """Tells whether its value must be known before run time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "optional", issubclass(self.kind, Maybe))
        object.__setattr__(self, "constant", issubclass(self.kind, (Const, MaybeConst)))


@dataclass(frozen=True, slots=True, eq=False)
class PatternNode:
    """An operator in a pattern, or one of several (`operators`; `op` then joins their names). Attributes not mentioned
    are free; read them with `m.node(label).attrs`. `commutative`: the two inputs match in either order."""

    op: str
    domain: str
    inputs: tuple[PatternValue | None, ...]
    attrs: Mapping[str, Any]
    outputs: int
    label: str
    commutative: bool
    variadic: bool
    operators: frozenset[str]


@dataclass(frozen=True, slots=True)
class PatternOutput:
    """Output `index` of a pattern node."""

    node: PatternNode
    index: int


PatternValue = Var | PatternOutput

COMMUTATIVE = frozenset({"Add", "Mul", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor"})


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Variables, nodes in the order in which the builder made them, and the roots that a rewrite replaces."""

    variables: tuple[Var, ...]
    nodes: tuple[PatternNode, ...]
    roots: tuple[PatternOutput, ...]

    @property
    def anchor(self) -> PatternNode:
        """Return the node where matching starts: the producer of the first root."""
        return self.roots[0].node


class PatternBuilder:
    """`op` in a rule's source: `op.MatMul(x, w)`, `op.ms.BiasGelu(x, b)`, `op.any_of({"Relu", "Tanh"})(x, _label="f")`.

    Keyword arguments: literal attributes must be equal, `op.attr("name")` binds; `_label` names the node,
    `_outputs` its number of outputs (more than one gives a tuple). `_any_order=True` lets two inputs match in either
    order although the operator does not commute: look at `m.node(label).inputs` to know which is which.
    """

    def __init__(self, domain: str = "", nodes: list[PatternNode] | None = None) -> None:
        self._domain = domain
        self.nodes: list[PatternNode] = [] if nodes is None else nodes

    @property
    def ms(self) -> PatternBuilder:
        """Operators of ONNX Runtime's domain com.microsoft."""
        return PatternBuilder("com.microsoft", self.nodes)

    @property
    def nchwc(self) -> PatternBuilder:
        """Operators of ONNX Runtime's blocked layout (`graph_rewrite.operators.nchwc`)."""
        return PatternBuilder("com.microsoft.nchwc", self.nodes)

    @staticmethod
    def attr(name: str, default: Any = None) -> AttrVar:
        return AttrVar(name, default)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)
        return self.any_of((op,))

    def any_of(self, operators: Iterable[str]) -> Callable[..., Any]:
        """Return a builder of one operator of several: `m.node(label).op` tells which one matched."""
        names = frozenset(operators)
        op = "|".join(sorted(names))

        def make(
            *inputs: PatternValue | None, _label: str | None = None, _outputs: int = 1, _any_order: bool = False,
            **attrs: Any,
        ) -> Any:  # fmt: skip
            commutes = _any_order or (names <= COMMUTATIVE and not self._domain)
            node = PatternNode(
                op, self._domain, inputs, attrs, _outputs, _label or f"{op}{len(self.nodes)}",
                commutes and len(inputs) == 2, any(isinstance(i, Var) and i.kind is Values for i in inputs), names,
            )  # fmt: skip
            self.nodes.append(node)
            results = tuple(PatternOutput(node, i) for i in range(_outputs))
            return results if _outputs > 1 else results[0]

        return make


def build_pattern(source: Callable[..., Any]) -> Pattern:
    """Run a rule's `source` on variables made from its signature, and return the pattern."""
    parameters = list(inspect.signature(source, eval_str=True).parameters.values())[1:]
    variables = tuple(
        Var(p.name, Value if p.annotation is inspect.Parameter.empty else p.annotation) for p in parameters
    )
    builder = PatternBuilder()
    result = source(builder, *variables)
    roots = result if isinstance(result, tuple) else (result,)
    if not all(isinstance(root, PatternOutput) for root in roots):
        raise TypeError("a source pattern must end in operators, not in a bare variable")
    return Pattern(variables, tuple(builder.nodes), roots)
