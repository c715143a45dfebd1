"""The operators of an e-graph, one at the head of each e-node: numbered once and shared by all forks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import onnx

from graph_rewrite.ir.attribute_defaults import is_implied
from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.rewriting.patterns import COMMUTATIVE

Kind = Literal["operator", "constant", "input", "output"]

CONSTANT = 0
"""Number of the operator of all constants; their content tells them apart."""

OUTPUT = 1
"""Mask of projections to an output."""


@dataclass(slots=True, eq=False)
class Operator:
    """An operator with its attributes. `kind`: an application, a constant, a leaf given from outside (an input of the
    graph, an initializer that is never folded), or output `index` of an application with several outputs.

    A `unique` operator is applied once: an opaque node, a random or an unknown operator; two applications of it are
    never taken for equal. `captured` are the names that its subgraphs read, for the last of its operands.
    """

    number: int
    op: str
    domain: str = ""
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    signature: str = ""
    outputs: int = 1
    kind: Kind = "operator"
    index: int = 0
    left_out: tuple[bool, ...] = ()
    opaque: bool = False
    unique: bool = False
    value: int = -1
    captures: tuple[str, ...] = ()
    captured: tuple[int, ...] = ()
    proto: onnx.NodeProto | None = None
    commutative: bool = False
    foldable: bool = False
    mask: int = 0
    """A bit by name and domain, whatever the attributes; `OUTPUT` for projections, none for leaves and constants."""

    def key(self, args: tuple[int, ...]) -> tuple[int, ...]:
        """Return the key that equal e-nodes of this operator share: its number and the canonical operands, in one order
        where they commute."""
        if self.commutative and len(args) == 2 and args[1] < args[0]:
            return (self.number, args[1], args[0])
        return (self.number, *args)


class OperatorTable:
    """Operators by number. Grows only, so forks of an e-graph share one."""

    def __init__(self) -> None:
        self.entries: list[Operator] = [Operator(CONSTANT, "Constant", kind="constant")]
        self._known: dict[tuple[object, ...], int] = {}
        self._masks: dict[tuple[str, str], int] = {}

    def mask(self, op: str, domain: str) -> int:
        """The bit of an operator's name; 0 where the table has no such operator."""
        return self._masks.get((op, domain), 0)

    def _new_mask(self, op: str, domain: str) -> int:
        return self._masks.setdefault((op, domain), 2 << len(self._masks))

    def application(
        self,
        op: str,
        domain: str,
        attrs: Mapping[str, AttrValue],
        signature: str,
        outputs: int = 1,
        left_out: tuple[bool, ...] = (),
    ) -> Operator:
        """The operator of repeatable applications; `left_out` marks optional outputs that have no name.

        All applications of one signature share it, whatever the shapes of their operands. So it has no attributes that
        these imply, such as the kernel of a convolution.
        """
        left_out = left_out if any(left_out) else ()
        key = (signature, outputs, left_out)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.entries)
            told = {name: value for name, value in attrs.items() if domain or not is_implied(op, name, value)}
            self.entries.append(
                Operator(
                    number, op, domain, told, signature, outputs, left_out=left_out,
                    commutative=not domain and op in COMMUTATIVE, foldable=not domain,
                    mask=self._new_mask(op, domain),
                )
            )  # fmt: skip
        return self.entries[number]

    def unique(
        self,
        op: str,
        domain: str,
        attrs: Mapping[str, AttrValue],
        signature: str,
        outputs: int,
        left_out: tuple[bool, ...],
        opaque: bool,
        captures: tuple[str, ...],
        captured: tuple[int, ...],
    ) -> Operator:
        """An operator of one application that equals no other."""
        operator = Operator(
            len(self.entries), op, domain, dict(attrs), signature, outputs, left_out=left_out, opaque=opaque,
            unique=True, captures=captures, captured=captured, mask=self._new_mask(op, domain),
        )  # fmt: skip
        self.entries.append(operator)
        return operator

    def leaf(self, value: int, name: str) -> Operator:
        """Return the operator of a leaf: value `value` of the graph that the e-graph was made from."""
        key = ("leaf", value, name)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.entries)
            self.entries.append(Operator(number, name or f"input {value}", kind="input", value=value))
        return self.entries[number]

    def output(self, index: int) -> Operator:
        """The projection to output `index`."""
        key = ("output", index)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.entries)
            self.entries.append(Operator(number, f"Output{index}", kind="output", index=index, mask=OUTPUT))
        return self.entries[number]
