"""Substitutions as rules: generated and imported ones, data of the same type as those written by hand.

The pattern is built from the source side. `check` finds the types of the inputs in the graph, infers those of all terms
and compares them with what was matched; the target is built from the target side and its types. Element-wise operators
take equal shapes: nothing broadcasts but the scalar of `smul`. A convolution with a fused activation is an activation
after a Conv; where both sides would be the same then, it is `com.microsoft.FusedConv`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.hashing import digest
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import (
    Pattern,
)
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.element_types import is_float, numpy_dtype
from graph_rewrite.rules.substitutions.source_terms import (
    attributes_refused,
    is_constant,
    largest_constant,
    named,
    operand_rank,
    source_pattern,
)
from graph_rewrite.terms.canonical import differs_by_fusion, interchangeable
from graph_rewrite.terms.conditions import CONDITIONS, condition_holds
from graph_rewrite.terms.json_form import to_json
from graph_rewrite.terms.onnx_form import (
    CONSTANT_OPS,
    ONNX_NAMES,
    build_side,
)
from graph_rewrite.terms.substitution import INPUT, MalformedTermError, Operand, Substitution, Term
from graph_rewrite.terms.term_types import TermType, Types, close, infer_side, operand_type

FORMAT = 1
"""Version of what digests are made from: change it where the meaning of substitutions as rules changes."""

LARGEST_CONSTANT = 1 << 16
"""Most elements of an identity or a constant kernel that a target may bring in. A larger one adds more work than a
rewrite saves, and a network of wide convolutions has hundreds of sites for it."""

_FLOAT32_ONLY = frozenset({"conv", "avgpool"})
_MULTIPLIES = frozenset({"ewmul", "smul", "matmul", "conv"})


class SubstitutionRule(Rule):
    """A substitution of TASO's algebra as a rule over ONNX operators.

    Args:
        substitution: both sides, and conditions beyond their types.
        name: of the rule; unique among all rule sets.
        family: under which it is listed.
        origin: where it comes from: `generated` or `taso`.

    Raises:
        MalformedTermError: the source ends in a bare input or constant, the target reads an input that the source does
            not have, or a condition is unknown.
    """

    def __init__(self, substitution: Substitution, name: str, family: str, origin: str) -> None:
        self.substitution, self._name = substitution, name
        self.family, self.origin = family, origin
        source, target = substitution.source, substitution.target
        for operand in source.outputs:
            if operand.node == INPUT or source.terms[operand.node].op in CONSTANT_OPS:
                raise MalformedTermError(f"{name}: the source ends in a bare input or constant, which no pattern finds")
        if len(set(source.outputs)) < len(source.outputs):
            raise MalformedTermError(f"{name}: the source gives one value twice")
        unknown = [i for i in target.inputs if i not in source.inputs]
        if unknown:
            raise MalformedTermError(f"{name}: the target reads x{unknown[0]}, which the source does not have")
        for condition in substitution.conditions:
            if condition not in CONDITIONS:
                raise MalformedTermError(f"{name}: there is no condition {condition!r}")
        self.fused = differs_by_fusion(substitution)
        """Tells whether fused activations of convolutions are those of `com.microsoft.FusedConv`."""
        self.symmetric = interchangeable(source)

    @property
    def name(self) -> str:
        return self._name

    @property
    def equation(self) -> str:
        """Return both sides, and the conditions in words."""
        texts = [CONDITIONS[condition].text for condition in self.substitution.conditions]
        return f"{self.substitution}{', where ' if texts else ''}{' and '.join(texts)}"

    @cached_property
    def digest(self) -> str:
        """Return a digest of the rule's data, and of the version of what they mean."""
        data = json.dumps(to_json(self.substitution), sort_keys=True)
        return digest("substitution", FORMAT, self.name, data)

    @cached_property
    def pattern(self) -> Pattern:
        return source_pattern(self.substitution, self.fused)

    def check(self, m: Match, *variables: Any) -> Refusal | None:
        found = self._types(m)
        if isinstance(found, Refusal):
            return found
        types, values = found
        for number, node in enumerate(self.substitution.source.terms):
            refusal = self._term_refused(m, number, node, types, values)
            if refusal is not None:
                return refusal
        target = infer_side(self.substitution.target, types)
        if target is None:
            return Refusal("the target does not accept these shapes")
        refusal = self._precision_refused(m)
        if refusal is not None:
            return refusal
        largest = largest_constant(self.substitution.target, types, target)
        if largest > LARGEST_CONSTANT:
            return Refusal(f"it brings in a constant of {largest:,} elements, more than {LARGEST_CONSTANT:,}")
        for condition in self.substitution.conditions:
            if not condition_holds(self.substitution, types, (condition,)):
                return Refusal(f"not fulfilled: {CONDITIONS[condition].text}")
        return None

    def _precision_refused(self, m: Match) -> Refusal | None:
        """Refuse elements of a type that the target is not for."""
        refs, target = self._inputs(m), self.substitution.target
        dtype = next(iter(refs.values())).dtype
        convolves = [
            any(node.op in _FLOAT32_ONLY for node in side.terms) for side in (self.substitution.source, target)
        ]
        if dtype != TensorProto.FLOAT and convolves == [False, True]:
            return Refusal("it brings in an operator that ONNX Runtime has for float32 only")
        fixed: list[bool] = []
        for node in target.terms:
            constant = [refs[o.index].constant is not None if o.node == INPUT else fixed[o.node] for o in node.inputs]
            fixed.append(all(constant))
            if fixed[-1] and node.op in _MULTIPLIES and dtype not in (TensorProto.FLOAT, TensorProto.DOUBLE):
                return Refusal("a product of constants may underflow in half precision")
        return None

    def target(self, op: ReplacementBuilder, m: Match, *variables: Any) -> Any:
        found = self._types(m)
        if isinstance(found, Refusal):
            return found
        refs = self._inputs(m)
        dtype = numpy_dtype(next(iter(refs.values())))
        outputs = build_side(op, self.substitution.target, refs, found[0], dtype, self.fused)
        return tuple(outputs)

    def _inputs(self, m: Match) -> dict[int, Ref]:
        """Return the values that the match binds to the inputs, by number."""
        names = [variable.name for variable in m.pattern.variables]
        return {number: m.refs[names.index(f"x{number}")] for number in self.substitution.source.inputs}

    def _types(self, m: Match) -> tuple[dict[int, TermType], list[Types]] | Refusal:
        """Return the types of the inputs, with the borders that matched splits show, and of the source's terms."""
        refs = self._inputs(m)
        if any(ref.dtype != next(iter(refs.values())).dtype or not is_float(ref) for ref in refs.values()):
            return Refusal("the elements are not floating-point numbers of one type")
        if self.fused and next(iter(refs.values())).dtype != TensorProto.FLOAT:
            return Refusal("the fused operator runs in float32 only")
        types = {number: TermType(ref.shape) for number, ref in refs.items()}
        for number, node in enumerate(self.substitution.source.terms):
            if node.op == "split":
                axis = node.param("axis")
                first = m.value(f"t{number}", 0)
                if axis >= first.rank:
                    return Refusal("the Split works on another axis")
                self._mark(types, node.inputs[0], axis, first.shape[axis])
        values = infer_side(self.substitution.source, types)
        return Refusal("the source does not accept these shapes") if values is None else (types, values)

    def _mark(self, types: dict[int, TermType], operand: Operand, axis: int, border: int) -> None:
        """Give the inputs that an operand is computed from, element by element, the border that a Split undoes."""
        if operand.node == INPUT:
            known = types[operand.index]
            if axis < known.rank and border not in known.cuts[axis]:
                cuts = (*known.cuts[:axis], (*known.cuts[axis], border), *known.cuts[axis + 1 :])
                types[operand.index] = TermType(known.shape, cuts)
            return
        node = self.substitution.source.terms[operand.node]
        if node.op in ("ewadd", "ewmul", "relu", "sigmoid", "tanh", "smul"):
            for source in node.inputs[:1] if node.op == "smul" else node.inputs:
                self._mark(types, source, axis, border)
        elif node.op == "matmul":
            own = operand_rank(self.substitution, operand)
            left = own is None or axis != own - 1
            self._mark(types, node.inputs[0 if left else 1], axis, border)
        elif node.op == "conv" and axis < 2:
            self._mark(types, node.inputs[axis], 0, border)
        elif node.op in ("maxpool", "avgpool") and axis < 2:
            self._mark(types, node.inputs[0], axis, border)
        elif node.op == "transpose":
            self._mark(types, node.inputs[0], node.param("perm")[axis], border)

    def _term_refused(
        self, m: Match, number: int, node: Term, types: Mapping[int, TermType], values: list[Types]
    ) -> Refusal | None:
        """Refuse a matched node that is not this term."""
        if node.op in CONSTANT_OPS:
            return None
        label = f"t{number}"
        open_types = [operand_type(operand, types, values) for operand in node.inputs]
        closed = close(node, open_types)
        if closed is None:
            return Refusal("a constant has another size")
        for operand, before, sized in zip(node.inputs, open_types, closed, strict=True):
            if before.constant is not None and not is_constant(named(m, f"c{operand.node}"), before.constant, sized):
                return Refusal(f"a constant is not that of {before.constant.op}")
        refusal = attributes_refused(m, label, node, closed, values[number])
        if refusal is not None:
            return refusal
        shapes = [m.value(label, index).shape for index in range(node.outputs)]
        if shapes != [expected.shape for expected in values[number]]:
            return Refusal(f"{ONNX_NAMES[node.op]} gives another shape than without broadcasting")
        return None
