"""Replacements: the target side of a rule, built with types checked; constant parts become constants at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from graph_rewrite.ir.attributes import AttrValue, float32, operator_signature
from graph_rewrite.ir.constants import Constant, from_array, from_ints
from graph_rewrite.ir.hashing import text_digest
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.body_writing import RewrittenNode
from graph_rewrite.operators.folding import fold
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_types import TypeInferenceError


@dataclass(slots=True, unsafe_hash=True)
class Ref:
    """A value as a rule sees it: `external` is its id in the graph (or e-class); else it is made in the replacement,
    or it is a constant. Not to be changed; but frozen it would take three times as long to make, and a listing makes
    ten thousand."""

    type: TensorType
    external: int | None = None
    node: int = -1
    index: int = 0
    constant: Constant | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def rank(self) -> int:
        return len(self.type.shape)

    @property
    def dtype(self) -> int:
        """Return the element type, an `onnx.TensorProto.DataType`."""
        return self.type.dtype

    @property
    def is_const(self) -> bool:
        return self.constant is not None

    def numpy(self) -> np.ndarray[Any, Any]:
        """Return the elements of a constant.

        Raises:
            ValueError: the value is not a constant.
        """
        if self.constant is None:
            raise ValueError("this value is not a constant")
        return self.constant.numpy()

    def scalar(self) -> float:
        """Return the element of a constant with one element."""
        return float(self.numpy().reshape(-1)[0])

    @property
    def key(self) -> str:
        """Return a text that identifies the value inside one graph."""
        if self.external is not None:
            return f"v{self.external}"
        return self.constant.digest if self.constant is not None else f"n{self.node}.{self.index}"


@dataclass(slots=True)
class ReplacementNode:
    """An operator to be inserted."""

    op: str
    domain: str
    attrs: dict[str, AttrValue]
    inputs: tuple[Ref | None, ...]
    types: tuple[TensorType, ...]
    signature: str
    rewritten: RewrittenNode | None = None
    """Of an opaque node: what it holds, with another body."""

    @property
    def input_keys(self) -> list[str]:
        """Return the keys of the inputs, "-" for one left out."""
        return ["-" if ref is None else ref.key for ref in self.inputs]


@dataclass(frozen=True)
class Replacement:
    """Operators in topological order, and a Ref per replaced root."""

    nodes: tuple[ReplacementNode, ...]
    outputs: tuple[Ref, ...]

    @cached_property
    def key(self) -> str:
        """Return a digest of operators, attributes and attachments (ids of external values, contents of constants)."""
        texts: list[str] = []
        for node in self.nodes:
            texts.append(node.signature)
            texts += node.input_keys
        return text_digest([*texts, "outputs", *[ref.key for ref in self.outputs]])

    @cached_property
    def shape_key(self) -> str:
        """Return a digest of structure and types alone: equal for the same rewrite at another site."""
        texts: list[str] = []
        for node in self.nodes:
            texts.append(node.signature)
            texts += ["-" if ref is None else _attachment(ref) for ref in node.inputs]
            texts += map(str, node.types)
        return text_digest([*texts, "outputs", *map(_attachment, self.outputs)])

    def externals(self) -> set[int]:
        """Return the ids of the graph's values that the replacement reads or returns."""
        refs = [ref for node in self.nodes for ref in node.inputs if ref is not None]
        return {ref.external for ref in (*refs, *self.outputs) if ref.external is not None}


def _attachment(ref: Ref) -> str:
    if ref.node >= 0:
        return ref.key
    if ref.constant is None:
        return f"value{ref.type}"
    return f"const{ref.type}{ref.constant.digest if ref.type.size == 1 else ''}"


@dataclass(frozen=True, slots=True)
class Folded:
    """An operator over constants that was folded."""

    op: str
    domain: str
    attrs: dict[str, AttrValue]
    inputs: tuple[Ref | None, ...]
    types: tuple[TensorType, ...]
    results: tuple[Ref, ...]


class ReplacementBuilder:
    """`op` in a rule's target: `op.MatMul(x, w)` checks types and returns a Ref (a tuple with `_outputs` > 1).

    Operators over constants alone are folded: they cost nothing at run time.
    """

    def __init__(self, opset: int, domain: str = "", shared: ReplacementBuilder | None = None) -> None:
        self.opset, self._domain = opset, domain
        self._nodes: list[ReplacementNode] = [] if shared is None else shared._nodes
        self._known: dict[tuple[Any, ...], tuple[Ref, ...]] = {} if shared is None else shared._known
        self.folds: list[Folded] = [] if shared is None else shared.folds
        """Operators that were folded so far."""
        self.constants: list[Ref] = [] if shared is None else shared.constants
        """Constants beside values of the match that operators were applied to."""

    @property
    def ms(self) -> ReplacementBuilder:
        """Operators of ONNX Runtime's domain com.microsoft."""
        return ReplacementBuilder(self.opset, "com.microsoft", self)

    @property
    def nchwc(self) -> ReplacementBuilder:
        """Operators of ONNX Runtime's blocked layout (`graph_rewrite.operators.nchwc`)."""
        return ReplacementBuilder(self.opset, "com.microsoft.nchwc", self)

    def constant(self, array: np.ndarray[Any, Any]) -> Ref:
        """Return a constant that holds `array`."""
        constant = from_array(array)
        return Ref(constant.type, constant=constant)

    def ints(self, *values: int) -> Ref:
        """Return a one-dimensional int64 constant: a shape, axes, indices."""
        constant = from_ints(values)
        return Ref(constant.type, constant=constant)

    def __getattr__(self, op: str) -> Callable[..., Any]:
        if op.startswith("_"):
            raise AttributeError(op)

        def make(*inputs: Ref | None, _outputs: int = 1, **attrs: Any) -> Any:
            results = self.apply(op, self._domain, attrs, inputs, _outputs)
            return results if _outputs > 1 else results[0]

        return make

    def apply(
        self, op: str, domain: str, attrs: dict[str, AttrValue], inputs: tuple[Ref | None, ...], outputs: int
    ) -> tuple[Ref, ...]:
        """Apply an operator given by name; what `op.Name(...)` calls.

        Raises:
            TypeInferenceError: the operator refuses these inputs.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        if attrs:
            attrs = {name: _attr(value) for name, value in attrs.items() if value is not None}
        self.constants += [ref for ref in inputs if ref is not None and ref.is_const and ref.external is None]
        signature = operator_signature(op, domain, attrs)
        key = (signature, outputs, *["-" if ref is None else ref.key for ref in inputs])
        known = self._known.get(key)
        if known is not None:
            return known
        entries = [None if ref is None else (ref.type, ref.constant) for ref in inputs]
        types = infer(op, domain, attrs, entries, outputs, self.opset, signature)
        static = tuple([type for type in types if type is not None])
        if len(static) < len(types):
            raise TypeInferenceError(f"the result of {op} has no static type")
        operands = [None if ref is None else ref.constant for ref in inputs]
        if inputs and all(ref is None or ref.is_const for ref in inputs):
            constants = fold(op, domain, attrs, operands, static, self.opset)
            results = tuple([Ref(constant.type, constant=constant) for constant in constants])
            self.folds.append(Folded(op, domain, attrs, inputs, static, results))
        else:
            number = len(self._nodes)
            self._nodes.append(ReplacementNode(op, domain, attrs, inputs, static, signature))
            results = tuple([Ref(type, node=number, index=i) for i, type in enumerate(static)])
        self._known[key] = results
        return results

    def finish(self, outputs: tuple[Ref, ...]) -> Replacement:
        """Return the replacement that computes `outputs`, without nodes that they do not need."""
        needed: set[int] = set()
        stack = [ref.node for ref in outputs if ref.node >= 0]
        while stack:
            node = stack.pop()
            if node not in needed:
                needed.add(node)
                stack.extend(ref.node for ref in self._nodes[node].inputs if ref is not None and ref.node >= 0)
        if len(needed) == len(self._nodes):
            return Replacement(tuple(self._nodes), outputs)
        renumbered = {old: new for new, old in enumerate(sorted(needed))}

        def moved(ref: Ref | None) -> Ref | None:
            if ref is None or ref.node < 0:
                return ref
            return Ref(ref.type, node=renumbered[ref.node], index=ref.index)

        nodes = []
        for old in sorted(needed):
            kept = self._nodes[old]
            inputs = tuple(moved(ref) for ref in kept.inputs)
            nodes.append(ReplacementNode(kept.op, kept.domain, kept.attrs, inputs, kept.types, kept.signature))
        return Replacement(tuple(nodes), tuple(ref if ref.node < 0 else moved(ref) or ref for ref in outputs))


def _attr(value: Any) -> AttrValue:
    if type(value) is int or type(value) is str:
        return value
    if isinstance(value, (list, tuple)):
        return tuple(_attr(v) for v in value)
    if isinstance(value, (bool, np.bool_, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float32(float(value))
    return value
