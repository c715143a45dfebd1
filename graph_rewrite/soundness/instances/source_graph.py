"""A source graph out of a rule's pattern: over the pattern's operators in order, each with the inputs and attributes
that its proposal chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.patterns import AttrVar, Pattern, PatternNode
from graph_rewrite.soundness.instances.chooser import Chooser, DeadEnd
from graph_rewrite.soundness.instances.element_types import element_types
from graph_rewrite.soundness.instances.operator_draft import DIMS, OperatorDraft
from graph_rewrite.soundness.instances.proposals.elementwise import propose_elementwise
from graph_rewrite.soundness.instances.proposals.table import PROPOSALS
from graph_rewrite.soundness.instances.source_state import Array, SourceState
from graph_rewrite.soundness.instances.well_formed import is_valid

_OWN_SIBLINGS = frozenset({"Reshape", "Slice"})
"""Operators whose proposals look at earlier ones of their kind themselves."""


class SourceBuilder:
    """Builds one source graph of a pattern."""

    def __init__(self, pattern: Pattern, chooser: Chooser, examples: Mapping[str, Sequence[Any]], seed: int) -> None:
        self.pattern = pattern
        self.state = SourceState(pattern, chooser, examples, seed)
        self.drafts: list[OperatorDraft] = []

    def graph(self, shared_interior: bool) -> Graph:
        """The finished graph; its outputs are the roots, or what is computed from them.

        Raises:
            DeadEnd, TypeInferenceError: the choices don't fit together.
        """
        results, pick = self.state.results, self.state.chooser.pick
        for node in self.pattern.nodes:
            results[node] = self._apply(node)
        roots = [results[root.node][root.index] for root in self.pattern.roots]
        outputs = list(dict.fromkeys(roots))
        if pick("roots", ("outputs", "used"), (2, 1)) == "used":
            outputs = [self._used(value) for value in outputs]
        inner = [v for values in results.values() for v in values if v not in roots] if shared_interior else []
        if inner:
            shared = pick("shared", (None, *range(len(inner))), (2, *(1.0 / len(inner),) * len(inner)))
            outputs += [] if shared is None else [inner[shared]]
        return self.state.assembly.graph(outputs)

    def _apply(self, node: PatternNode) -> tuple[int, ...]:
        draft, like = self._start(node)
        if like is not None:
            self._copy(draft, like)
        else:
            PROPOSALS.get((node.domain, draft.op), propose_elementwise)(draft)
        for name in node.attrs:
            if name not in draft.attrs:
                draft.attr(name, (None,))
        draft.close()
        inputs = list(draft.inputs)
        if all(v is None or v in self.state.assembly.constants for v in inputs):
            raise DeadEnd("all inputs are constants")
        if node.commutative and inputs[0] != inputs[1] and draft.pick("operands", ("in order", "swapped")) == "swapped":
            inputs.reverse()
        self.drafts.append(draft)
        results = self.state.assembly.apply(draft.op, node.domain, draft.attrs, inputs, node.outputs)
        types = self.state.assembly.types
        operands = [None if value is None else types[value] for value in inputs]
        if not is_valid(draft.op, draft.attrs, operands, [types[value] for value in results]):
            raise DeadEnd(f"{draft.op} does not take such inputs")
        return results

    def _start(self, node: PatternNode) -> tuple[OperatorDraft, OperatorDraft | None]:
        """The operator of a node, and an earlier one that it is to resemble."""
        alike = [a for a in self.drafts if a.node.operators == node.operators and a.node.domain == node.domain]
        chooser, label = self.state.chooser, node.label
        like = None
        if alike:
            like = chooser.pick(
                f"{label} like", (*(a.node.label for a in reversed(alike)), None), (4.0, *(1.0,) * len(alike))
            )
        twin = next((a for a in alike if a.node.label == like), None)
        if twin is not None:
            draft = OperatorDraft(self.state, node, twin.op, self.drafts)
            if twin.op in _OWN_SIBLINGS:
                draft.notes["like"] = twin
                return draft, None
            return draft, twin
        options = sorted(op for op in node.operators if self._takes(node, op))
        if not options:
            raise DeadEnd(f"{node.op} takes no such elements")
        return OperatorDraft(self.state, node, chooser.pick(f"{label} operator", options), self.drafts), None

    def _takes(self, node: PatternNode, op: str) -> bool:
        """Return whether an operator accepts the elements of its first known input."""
        known = next(((i, v) for i, v in enumerate(map(self.state.value_of, node.inputs)) if v is not None), None)
        if node.domain or len(node.operators) == 1:
            return True
        i, dtype = (0, self.state.dtype) if known is None else (known[0], self.state.assembly.types[known[1]].dtype)
        return dtype in element_types(op, i)

    def _copy(self, draft: OperatorDraft, like: OperatorDraft) -> None:
        """Attributes and types of free inputs as in an earlier operator, one axis perhaps changed."""
        for name, value in like.attrs.items():
            if draft.node.attrs.get(name, AttrVar("")).__class__ is AttrVar:
                draft.attrs.setdefault(name, value)
        count = max(len(like.inputs), len(draft.inputs))
        free = [i for i in range(count) if draft.free(i)]
        types = {i: like.type(i) for i in free if like.known(i)}
        axes = [(i, axis) for i, type in types.items() if type.size > 1 or type.rank for axis in range(type.rank)]
        change = draft.pick("change", (None, *axes), (len(axes) + 1, *(1,) * len(axes)))
        for i in free:
            if not draft.free(i) or i not in types:
                continue
            array, type = like.array(i), types[i]
            if array is not None and self._is_parameter(array):
                draft.parameter_of(i, array)
                continue
            shape = list(type.shape)
            if change is not None and change[0] == i:
                shape[change[1]] = draft.pick("change to", [d for d in DIMS if d != shape[change[1]]])
            draft.data(i, tuple(shape), type.dtype, positive=draft.op == "Pow")

    def _is_parameter(self, array: Array) -> bool:
        """Return whether a constant is copied from an earlier operator, not drawn again."""
        return (array.dtype == np.int64 or array.size == 1) and self.state.dtype != TensorProto.INT64

    def _used(self, value: int) -> int:
        """Return the value that an operator which the pattern does not have computes from a root."""
        operators = frozenset(op for node in self.pattern.nodes for op in node.operators)
        truth = self.state.assembly.types[value].dtype == TensorProto.BOOL
        unary, binary = ("Not", "And") if truth else ("Neg", "Add")
        if unary not in operators:
            return self.state.assembly.apply(unary, "", {}, [value])[0]
        return self.state.assembly.apply(binary, "", {}, [value, value])[0]
