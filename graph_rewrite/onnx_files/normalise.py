"""Normalisation: the graph that search starts from. One operator set, everything folded that depends on constants
alone, each expression computed once, nothing that no output needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.constants import Constant, from_array, nbytes
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.opset import ConversionError, convert_opset
from graph_rewrite.operators import contrib, nchwc
from graph_rewrite.operators.folding import fold
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_types import TypeInferenceError

INTERNAL_OPSET = 23
"""The first with `Attention`. Models in a newer one stay there."""

_ALWAYS_FOLDED = 1 << 20
_NEVER_GROWN_TO = 16 << 20
_MOST_GROWTH = 10

# Their large results are computed when a graph is measured or saved; of other operators at once, to see that they can.
_MOVES = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
# ONNX Runtime's quantised kernels look for these in front of their operators.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators of which two with the same inputs may give different results."""


class SymbolicShapeError(UserError):
    """Inputs have symbolic dimensions; the message names them and shows how to fix them."""


@dataclass(frozen=True, slots=True)
class NormalisationReport:
    """What `normalise` did: nodes replaced by constants, merged with an equal one, removed as no output needs them."""

    from_opset: int
    to_opset: int
    folded: int = 0
    merged: int = 0
    removed: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        opset = f"opset {self.from_opset}"
        if self.to_opset != self.from_opset:
            opset += f" -> {self.to_opset}"
        done = f"{opset}; nodes folded: {self.folded}, merged: {self.merged}, removed: {self.removed}"
        return "\n".join([done, *(f"note: {note}" for note in self.notes)])


def normalise(graph: Graph) -> tuple[Graph, NormalisationReport]:
    """The same computation in opset 23 (or the newer one it is in), folded, without duplicates and dead nodes, and
    with the types of all values that onnx's inference can tell. `graph` is not changed.

    Raises:
        SymbolicShapeError: an input has a dimension without a fixed size.
    """
    _require_static_inputs(graph)
    notes = []
    converted = graph
    if graph.opset < INTERNAL_OPSET:
        try:
            converted = convert_opset(graph, INTERNAL_OPSET)
        except ConversionError as error:
            notes.append(f"stays in opset {graph.opset}: {error}")
    overridable = sum(value in graph.stored for value in graph.inputs)
    if overridable:
        notes.append(f"{overridable} initializers are also inputs: a caller may override them, so they are not folded")
    sweep = _Sweep(converted)
    sweep.forward()
    removed = sweep.remove_dead()
    result, _ = sweep.editor.finish()
    notes.extend(sweep.notes())
    return result, NormalisationReport(graph.opset, result.opset, sweep.folded, sweep.merged, removed, tuple(notes))


def _require_static_inputs(graph: Graph) -> None:
    symbolic: dict[str, list[int | str]] = {}
    for info, value in zip(graph.header.graph.input, graph.inputs, strict=True):
        if graph.types[value] is None and info.type.HasField("tensor_type"):
            symbolic[info.name] = [
                dim.dim_value if dim.HasField("dim_value") else dim.dim_param or "?"
                for dim in info.type.tensor_type.shape.dim
            ]
    if not symbolic:
        return
    listed = "; ".join(f"{name} [{', '.join(map(str, dims))}]" for name, dims in symbolic.items())
    flags = " ".join(f"--shape {name}:{','.join(map(str, _suggested(dims)))}" for name, dims in symbolic.items())
    raise SymbolicShapeError(
        f"these inputs have no fixed shape: {listed}. A graph is optimised for one shape: set it, for example {flags}"
    )


def _suggested(dims: Sequence[int | str]) -> list[int]:
    """A plausible shape: batch 1, 128 tokens, images of 224 by 224."""
    usual = {2: (1, 128), 4: (1, 3, 224, 224)}.get(len(dims), (1,) + (128,) * (len(dims) - 1))
    return [dim if isinstance(dim, int) else usual[i] for i, dim in enumerate(dims)]


class _Sweep:
    """One pass along the graph: types, constants and duplicates of a node are known when its inputs are."""

    def __init__(self, graph: Graph) -> None:
        self._graph, self.editor = graph, GraphEditor(graph)
        self._seen: dict[tuple[Any, ...], Node] = {}
        # Subgraphs know these by name.
        self._captured = graph.captured()
        self._unfoldable: dict[str, str] = {}
        self.folded = self.merged = 0

    def forward(self) -> None:
        self._merge_constants()
        for old in self._graph.order():
            node = self.editor.nodes[old.id]
            self._infer(node)
            constants = None if node.opaque else self._constants_of(node)
            if constants is not None:
                self.editor.remove(node)
                for value, constant in zip(node.outputs, constants, strict=True):
                    self.editor.constants[value], self.editor.types[value] = constant, constant.type
                self.folded += 1
            else:
                self._merge(node)

    def remove_dead(self) -> int:
        """Remove what no output needs, in one pass against the graph; opaque and foreign nodes stay."""
        editor, count = self.editor, 0
        live = set(editor.outputs)
        for old in reversed(self._graph.order()):
            node = editor.nodes.get(old.id)
            if node is None or not _is_known(node):
                continue
            if not any(editor.consumers.get(value) or value in live for value in node.outputs):
                editor.remove(node)
                editor.forget(node.outputs)
                count += 1
        editor.forget(list(editor.constants))
        editor.forget([value for value in editor.types if value not in editor.constants])
        return count

    def notes(self) -> list[str]:
        """What could not be folded or typed, in words."""
        notes = [f"{op} over constants is not folded: {reason}" for op, reason in self._unfoldable.items()]
        untyped: dict[str, None] = {}
        for node in self.editor.nodes.values():
            if any(self.editor.types[v] is None and self.editor.consumers.get(v) for v in node.outputs):
                untyped[f"{node.domain}::{node.op}" if node.domain else node.op] = None
        if untyped:
            notes.append(f"no rule applies to results of unknown shape: of {', '.join(untyped)}")
        return notes

    def _merge_constants(self) -> None:
        first: dict[str, int] = {}
        for value, constant in list(self.editor.constants.items()):
            known = first.setdefault(constant.digest, value)
            if known != value and value not in self._captured and value not in self.editor.outputs:
                self.editor.replace_value(value, known)

    def _infer(self, node: Node) -> None:
        if node.opaque:
            return
        editor = self.editor
        inputs = [None if v is None else (editor.types[v], editor.constants.get(v)) for v in node.inputs]
        try:
            found = infer(
                node.op, node.domain, node.attrs, inputs, len(node.outputs), self._graph.opset, node.signature
            )
        except TypeInferenceError:
            return
        for value, type in zip(node.outputs, found, strict=True):
            editor.types[value] = type or editor.types[value]

    def _constants_of(self, node: Node) -> tuple[Constant, ...] | None:
        """What a node computes where that is known now."""
        if node.domain or node.op in _KEPT or node.op in RANDOM:
            return None
        if node.op == "Constant":
            return (_constant_value(node),)
        if node.op in ("Shape", "Size"):
            type = None if node.inputs[0] is None else self.editor.types[node.inputs[0]]
            return None if type is None else (_shape_value(node, type),)
        inputs = [None if v is None else self.editor.constants.get(v) for v in node.inputs]
        types = [type for v in node.outputs if (type := self.editor.types[v]) is not None]
        present = [constant for constant in inputs if constant is not None]
        known = len(present) == sum(v is not None for v in node.inputs) and len(types) == len(node.outputs)
        strings = any(t.dtype == onnx.TensorProto.STRING for t in (*types, *(c.type for c in present)))
        if not present or not known or strings:
            return None
        if not _is_small_enough(present, types):
            self._unfoldable.setdefault(node.op, f"the result {types[0]} is much larger than what it is made of")
            return None
        return self._evaluated(node, inputs, types)

    def _evaluated(
        self, node: Node, inputs: Sequence[Constant | None], types: Sequence[TensorType]
    ) -> tuple[Constant, ...] | None:
        try:
            constants = fold(node.op, node.domain, node.attrs, inputs, types, self._graph.opset)
            if node.op not in _MOVES:
                for constant in constants:
                    constant.numpy()
        except InvalidRewriteError as error:
            self._unfoldable.setdefault(node.op, str(error))
            return None
        return constants

    def _merge(self, node: Node) -> None:
        """Let an earlier equal node take the place of this one."""
        if not is_repeatable(node) or not self._captured.isdisjoint(node.outputs):
            return
        constants, names = self.editor.constants, self._graph.names
        inputs = tuple(constants[v].digest if v is not None and v in constants else v for v in node.inputs)
        left_out = tuple(names.get(v, "").startswith("\0") for v in node.outputs)
        first = self._seen.setdefault((node.signature, inputs, left_out), node)
        if first is not node:
            for value, kept in zip(node.outputs, first.outputs, strict=True):
                self.editor.replace_value(value, kept)
            self.editor.remove(node)
            self.editor.forget(node.outputs)
            self.merged += 1


def is_repeatable(node: Node) -> bool:
    """Whether two applications to the same operands give the same: we know what the operator does, and it is not
    random."""
    return _is_known(node) and node.op not in RANDOM


def _is_known(node: Node) -> bool:
    """Whether the operator is one of ONNX's own, or a foreign one whose semantics we know."""
    foreign = {contrib.DOMAIN: contrib.is_modelled, nchwc.DOMAIN: nchwc.is_modelled}.get(node.domain)
    return not node.opaque and (node.domain == "" or (foreign is not None and foreign(node.op)))


def _is_small_enough(inputs: Sequence[Constant], types: Sequence[TensorType]) -> bool:
    """Folding must not blow a model up: Expand, Tile and ConstantOfShape make much out of little."""
    before = sum(map(nbytes, inputs))
    after = sum(type.size * onnx.helper.tensor_dtype_to_np_dtype(type.dtype).itemsize for type in types)
    return after <= max(before, _ALWAYS_FOLDED) or after <= min(_MOST_GROWTH * before, _NEVER_GROWN_TO)


def _constant_value(node: Node) -> Constant:
    (name, value), *_ = node.attrs.items()
    if isinstance(value, Constant):
        return value
    dtype = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    return from_array(np.array(value, dtype=dtype.get(name, np.object_)))


def _shape_value(node: Node, type: TensorType) -> Constant:
    if node.op == "Size":
        return from_array(np.array(type.size, dtype=np.int64))
    return from_array(np.array(type.shape[node.attrs.get("start", 0) : node.attrs.get("end")], dtype=np.int64))
