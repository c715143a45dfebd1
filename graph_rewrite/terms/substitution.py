"""Substitutions as data: two sides of operators over the same inputs, in the algebra of TASO (SOSP'19, table 2).

    source: conv(x0, x1) and conv(x0, x2), two outputs        target: split(conv(x0, concat(x1, x2)))

Shapes are not part of a substitution: it stands for its instances over all shapes that satisfy its conditions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph_rewrite.errors import UserError

Param = int | str | tuple[int, ...]

INPUT = -1
"""In an `Operand`: not the output of an operator but an input of the substitution."""


@dataclass(frozen=True, slots=True)
class Signature:
    """The numbers of inputs and outputs of an operator, and the names of its parameters."""

    inputs: int
    outputs: int = 1
    params: tuple[str, ...] = ()


SIGNATURES: Mapping[str, Signature] = {
    # Element-wise over equal shapes; `smul` multiplies by an input of one element.
    "ewadd": Signature(2),
    "ewmul": Signature(2),
    "smul": Signature(2),
    "relu": Signature(1),
    "sigmoid": Signature(1),
    "tanh": Signature(1),
    # Products of the last two axes, any leading axes equal. `activation`: none, relu, sigmoid or tanh.
    "matmul": Signature(2, params=("activation",)),
    # (x, w) over [N, C, H, W] and [M, C/groups, R, S]: the number of groups and the kernel are implied by the shapes.
    # `stride`: (vertical, horizontal), `padding`: same (output size = ceil(input size / stride)) or valid.
    "conv": Signature(2, params=("activation", "padding", "stride")),
    "maxpool": Signature(1, params=("kernel", "padding", "stride")),
    # Divides by the kernel's size everywhere: padding counts.
    "avgpool": Signature(1, params=("kernel", "padding", "stride")),
    "transpose": Signature(1, params=("perm",)),
    "concat": Signature(2, params=("axis", "rank")),
    # In two, where the concat that it undoes put the border.
    "split": Signature(1, 2, params=("axis",)),
    # To an explicit shape; 0 copies a dimension, -1 is inferred.
    "reshape": Signature(1, params=("shape",)),
    # Zeros around the kernel of a weight, up to `kernel`, centred.
    "enlarge": Signature(1, params=("kernel",)),
    # Constants, sized by what they meet: identity matrix, ones, identity kernel, averaging kernel.
    "imatmul": Signature(0),
    "iewmul": Signature(0),
    "iconv": Signature(0, params=("kernel",)),
    "cpool": Signature(0, params=("kernel",)),
}
"""Every operator by name."""


@dataclass(frozen=True, slots=True, order=True)
class Operand:
    """Output `index` of operator `node` of the same side, or input number `index` where node is `INPUT`."""

    node: int
    index: int = 0


@dataclass(frozen=True, slots=True)
class Term:
    """An operator applied to operands. `params` are sorted by name."""

    op: str
    inputs: tuple[Operand, ...]
    params: tuple[tuple[str, Param], ...] = ()

    def param(self, name: str) -> Any:
        """The parameter of this name.

        Raises:
            KeyError: the operator has none of this name.
        """
        return dict(self.params)[name]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return SIGNATURES[self.op].outputs


@dataclass(frozen=True, slots=True)
class Side:
    """Terms in an order in which operands come first, and the outputs."""

    terms: tuple[Term, ...]
    outputs: tuple[Operand, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the inputs that are used, in the order of their first use."""
        operands = [operand for term in self.terms for operand in term.inputs]
        return tuple(dict.fromkeys(o.index for o in (*operands, *self.outputs) if o.node == INPUT))


@dataclass(frozen=True, slots=True)
class Substitution:
    """source = target, output by output, wherever both sides have types and `conditions` hold."""

    source: Side
    target: Side
    conditions: tuple[str, ...] = ()
    """Names of conditions beyond the types, sorted."""

    @property
    def reversed(self) -> Substitution:
        """The same equation, read from right to left."""
        return Substitution(self.target, self.source, self.conditions)

    def __str__(self) -> str:
        return f"{_text(self.source)} = {_text(self.target)}"


class MalformedTermError(UserError):
    """Data or text that describes no term, side or substitution; the message says why."""


def term(op: str, *inputs: Operand, **params: Param) -> Term:
    """Return a term; its parameters must be those of the operator's signature.

    Raises:
        MalformedTermError: an unknown operator, a wrong number of inputs, or wrong parameters.
    """
    signature = SIGNATURES.get(op)
    if signature is None:
        raise MalformedTermError(f"there is no operator {op!r}; known are {', '.join(SIGNATURES)}")
    if len(inputs) != signature.inputs:
        raise MalformedTermError(f"{op} takes {signature.inputs} inputs, not {len(inputs)}")
    if tuple(sorted(params)) != signature.params:
        raise MalformedTermError(f"{op} takes the parameters {signature.params}, not {tuple(sorted(params))}")
    return Term(op, inputs, tuple(sorted(params.items())))


def _text(side: Side) -> str:
    outputs = ", ".join(_operand_text(side.terms, operand) for operand in side.outputs)
    return outputs if len(side.outputs) == 1 else f"({outputs})"


def _operand_text(terms: Sequence[Term], operand: Operand) -> str:
    if operand.node == INPUT:
        return f"x{operand.index}"
    node = terms[operand.node]
    params = ", ".join(f"{name}={_param_text(value)}" for name, value in node.params if value != "none")
    arguments = ", ".join(_operand_text(terms, source) for source in node.inputs)
    text = f"{node.op}({', '.join(part for part in (arguments, params) if part)})"
    return f"{text}.{operand.index}" if node.outputs > 1 else text


def _param_text(value: Param) -> str:
    return "x".join(map(str, value)) if isinstance(value, tuple) else str(value)
