"""Type inference, and folding of what depends on constants alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.constants import Constant, from_array, nbytes
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.operators.folding import fold
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.known import RANDOM
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.operators.work import tensor_bytes
from graph_rewrite.system.deadline import check_time

_ALWAYS_FOLDED = 1 << 20
_NEVER_GROWN_TO = 16 << 20
_MOST_GROWTH = 10
_LARGEST = 256 << 20
"""Most bytes of a result that is folded because it is at other shapes."""

# Their large results are computed when a graph is measured or saved; of other operators at once, to see that they can.
_MOVES = frozenset({"Concat", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
# ONNX Runtime's quantised kernels look for these in front of their operators.
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear"})


class FoldConstants:
    """Infer the types of all values, and replace nodes by constants where their results are known before run time.

    Both happen in one sweep along the graph, since the types of a node may depend on folded shapes. Nodes of foreign
    domains, random ones, quantisation, strings, and results much larger than their operands are not folded.

    Args:
        only: ids of the nodes to fold, large or small, such as those that were folded at other shapes; by default, all
            that can be.
    """

    name = "fold constants"

    def __init__(self, only: frozenset[int] | None = None) -> None:
        self._only = only

    def run(self, graph: Graph) -> Outcome:
        """Return the graph with types and with folded constants, and notes on what could not be folded."""
        notes = []
        overridable = sum(value in graph.stored for value in graph.inputs)
        if overridable:
            notes.append(
                f"{overridable} initializers are also inputs: a caller may override them, so they are not folded"
            )
        sweep = _Sweep(graph, self._only)
        folded = sum(map(sweep.visit, graph.order()))
        notes.extend(f"{op} over constants is not folded: {reason}" for op, reason in sweep.unfoldable.items())
        return Outcome(sweep.editor.finish()[0], folded, tuple(notes))


class _Sweep:
    def __init__(self, graph: Graph, only: frozenset[int] | None) -> None:
        self._opset, self.editor, self._only = graph.opset, GraphEditor(graph), only
        self.unfoldable: dict[str, str] = {}
        """Reasons by operator."""

    def visit(self, node: Node) -> bool:
        """Infer the types of a node's results and fold the node; return whether it was folded."""
        check_time()
        if node.opaque:
            return False
        self._infer(node)
        constants = self._constants_of(node)
        if constants is None:
            return False
        self.editor.remove(node)
        for value, constant in zip(node.outputs, constants, strict=True):
            self.editor.constants[value], self.editor.types[value] = constant, constant.type
        return True

    def _infer(self, node: Node) -> None:
        editor = self.editor
        inputs = [None if v is None else (editor.types[v], editor.constants.get(v)) for v in node.inputs]
        try:
            found = infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), self._opset, node.signature)
        except TypeInferenceError:
            return
        for value, type in zip(node.outputs, found, strict=True):
            editor.types[value] = type or editor.types[value]

    def _constants_of(self, node: Node) -> tuple[Constant, ...] | None:
        """Return what a node computes where that is known now."""
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
        if self._only is not None:
            is_wanted = node.id in self._only and sum(map(tensor_bytes, types)) <= _LARGEST
            return self._evaluated(node, inputs, types) if is_wanted else None
        if not _is_small_enough(present, types):
            self.unfoldable.setdefault(node.op, f"the result {types[0]} is much larger than what it is made of")
            return None
        return self._evaluated(node, inputs, types)

    def _evaluated(
        self, node: Node, inputs: Sequence[Constant | None], types: Sequence[TensorType]
    ) -> tuple[Constant, ...] | None:
        try:
            constants = fold(node.op, node.domain, node.attrs, inputs, types, self._opset)
            if node.op not in _MOVES:
                for constant in constants:
                    constant.numpy()
        except InvalidRewriteError as error:
            self.unfoldable.setdefault(node.op, str(error))
            return None
        return constants


def _is_small_enough(inputs: Sequence[Constant], types: Sequence[TensorType]) -> bool:
    """Tell whether folding leaves a model about as large as it is: Expand, Tile and ConstantOfShape make much out of
    little."""
    before, after = sum(map(nbytes, inputs)), sum(map(tensor_bytes, types))
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
