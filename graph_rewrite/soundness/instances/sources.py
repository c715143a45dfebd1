"""A source graph out of a rule's pattern: over the pattern's operators in order, each with the inputs and attributes
that its proposal chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import OPSET, Assembly
from graph_rewrite.rewriting.patterns import (
    AttrVar,
    Maybe,
    Pattern,
    PatternNode,
    PatternOutput,
    PatternValue,
    Value,
    Var,
)
from graph_rewrite.soundness.instances import proposals_moves, proposals_networks, proposals_products, proposals_slices
from graph_rewrite.soundness.instances.application import DIMS, PROPOSALS, Application, Array, DeadEnd, Shape
from graph_rewrite.soundness.instances.choices import Chooser
from graph_rewrite.soundness.instances.proposals_elementwise import propose_elementwise
from graph_rewrite.soundness.instances.wellformed import is_valid

__all__ = ["Source", "proposals_moves", "proposals_networks", "proposals_products", "proposals_slices"]

DTYPES = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32,
)  # fmt: skip
_DTYPE_WEIGHTS = (20, 2, 3, 1, 1, 1)
_OWN_SIBLINGS = frozenset({"Reshape", "Slice"})
"""Operators whose proposals look at earlier ones of their kind themselves."""


class Source:
    """One source graph in the making."""

    def __init__(self, pattern: Pattern, chooser: Chooser, examples: Mapping[str, Sequence[Any]], seed: int) -> None:
        self.pattern, self.chooser, self.examples = pattern, chooser, examples
        self.assembly = Assembly()
        self.bound: dict[str, Any] = {}
        """Variables: a value, None where left out, or a tuple of values."""
        self.attrs: dict[str, Any] = {}
        self.applications: list[Application] = []
        self.beside: dict[bool, tuple[str, ...]] = {}
        """How the last operand that was broadcast, constant or not, stood beside the others."""
        self.reduced = 0
        """Over how many last axes the last reduction went."""
        self._values: dict[PatternNode, tuple[int, ...]] = {}
        self._numbers = np.random.default_rng(seed)
        self._wanted: dict[Var, frozenset[int] | None] = {}
        usable = element_types_of(pattern)
        weights = [weight for dtype, weight in zip(DTYPES, _DTYPE_WEIGHTS, strict=True) if dtype in usable]
        self.dtype = int(chooser.pick("element type", [dtype for dtype in DTYPES if dtype in usable], weights))
        values = [v.name for v in pattern.variables if v.kind in (Value, Maybe)]
        values = values if len(values) > 1 else []
        self._constant = chooser.pick("constant", (None, *values), (4.0 * len(values) + 1, *(1.0,) * len(values)))

    def graph(self, shared_interior: bool) -> Graph:
        """The finished graph; its outputs are the roots, or what is computed from them.

        Raises:
            DeadEnd, TypeInferenceError, ValueError: the choices don't fit together.
        """
        for node in self.pattern.nodes:
            self._values[node] = self._apply(node)
        roots = [self._values[root.node][root.index] for root in self.pattern.roots]
        outputs = list(dict.fromkeys(roots))
        if self.chooser.pick("roots", ("outputs", "used"), (2, 1)) == "used":
            outputs = [self._used(value) for value in outputs]
        inner = [v for values in self._values.values() for v in values if v not in roots] if shared_interior else []
        if inner:
            shared = self.chooser.pick("shared", (None, *range(len(inner))), (2, *(1.0 / len(inner),) * len(inner)))
            outputs += [] if shared is None else [inner[shared]]
        return self.assembly.graph(outputs)

    def value_of(self, value: PatternValue | None) -> int | None:
        """The value that stands for a part of the pattern; None where there is none yet, or it is left out."""
        if isinstance(value, PatternOutput):
            return self._values[value.node][value.index]
        bound = None if value is None else self.bound.get(value.name)
        return bound if isinstance(bound, int) else None

    def shapes_so_far(self, ranks: Sequence[int]) -> dict[str, Shape]:
        """Shapes of the graph's inputs of these ranks, by name; the latest first."""
        found = {name: self.assembly.types[v].shape for name, v in reversed(self.bound.items()) if isinstance(v, int)}
        inputs = {n: s for n, s in found.items() if self.bound[n] not in self.assembly.constants}
        return {name: shape for name, shape in inputs.items() if len(shape) in ranks and shape}

    def is_constant(self, variable: Var) -> bool:
        """Whether a variable for any value is to be a constant."""
        return bool(variable.name == self._constant)

    def random(self, shape: Shape, dtype: np.dtype[Any], positive: bool = False) -> Array:
        """Seeded eighths up to 3, without 0; small whole numbers for integers."""
        if dtype.kind == "b":
            return np.asarray(self._numbers.integers(0, 2, shape), dtype=dtype)
        numbers = self._numbers.integers(1, 25 if dtype.kind == "f" else 4, shape) / (8.0 if dtype.kind == "f" else 1.0)
        signs = 1 if positive or dtype.kind == "u" else self._numbers.choice((-1, 1), shape)
        return np.asarray(numbers * signs).astype(dtype)

    # Operators

    def _apply(self, node: PatternNode) -> tuple[int, ...]:
        application, like = self._start(node)
        if like is not None:
            self._copy(application, like)
        else:
            PROPOSALS.get((node.domain, application.op), propose_elementwise)(application)
        for name in node.attrs:
            if name not in application.attrs:
                application.attr(name, (None,))
        application.close()
        inputs = list(application.inputs)
        if all(v is None or v in self.assembly.constants for v in inputs):
            raise DeadEnd("all inputs are constants")
        if (
            node.commutative
            and inputs[0] != inputs[1]
            and application.pick("operands", ("in order", "swapped")) == "swapped"
        ):
            inputs.reverse()
        self.applications.append(application)
        results = self.assembly.apply(application.op, node.domain, application.attrs, inputs, node.outputs)
        types = self.assembly.types
        operands = [None if value is None else types[value] for value in inputs]
        if not is_valid(application.op, application.attrs, operands, [types[value] for value in results]):
            raise DeadEnd(f"{application.op} does not take such inputs")
        return results

    def _start(self, node: PatternNode) -> tuple[Application, Application | None]:
        """The operator of a node, and an earlier one that it is to resemble."""
        alike = [a for a in self.applications if a.node.operators == node.operators and a.node.domain == node.domain]
        chooser, label = self.chooser, node.label
        like = None
        if alike:
            like = chooser.pick(
                f"{label} like", (*(a.node.label for a in reversed(alike)), None), (4.0, *(1.0,) * len(alike))
            )
        twin = next((a for a in alike if a.node.label == like), None)
        if twin is not None:
            application = Application(self, node, twin.op)
            if twin.op in _OWN_SIBLINGS:
                application.notes["like"] = twin
                return application, None
            return application, twin
        options = sorted(op for op in node.operators if self._takes(node, op))
        if not options:
            raise DeadEnd(f"{node.op} takes no such elements")
        return Application(self, node, chooser.pick(f"{label} operator", options)), None

    def _takes(self, node: PatternNode, op: str) -> bool:
        """Whether an operator accepts the elements of its first known input."""
        known = next(((i, v) for i, v in enumerate(map(self.value_of, node.inputs)) if v is not None), None)
        if node.domain or len(node.operators) == 1:
            return True
        i, dtype = (0, self.dtype) if known is None else (known[0], self.assembly.types[known[1]].dtype)
        return dtype in element_types(op, i)

    def _copy(self, application: Application, like: Application) -> None:
        """Attributes and types of free inputs as in an earlier operator, one axis perhaps changed."""
        for name, value in like.attrs.items():
            if application.node.attrs.get(name, AttrVar("")).__class__ is AttrVar:
                application.attrs.setdefault(name, value)
        count = max(len(like.inputs), len(application.inputs))
        free = [i for i in range(count) if application.free(i)]
        types = {i: like.type(i) for i in free if like.known(i)}
        axes = [(i, axis) for i, type in types.items() if type.size > 1 or type.rank for axis in range(type.rank)]
        change = application.pick("change", (None, *axes), (len(axes) + 1, *(1,) * len(axes)))
        for i in free:
            if not application.free(i) or i not in types:
                continue
            array, type = like.array(i), types[i]
            if array is not None and (array.dtype == np.int64 or array.size == 1) and self.dtype != TensorProto.INT64:
                application.parameter_of(i, array)
                continue
            shape = list(type.shape)
            if change is not None and change[0] == i:
                shape[change[1]] = application.pick("change to", [d for d in DIMS if d != shape[change[1]]])
            application.data(i, tuple(shape), type.dtype, positive=application.op == "Pow")

    def _used(self, value: int) -> int:
        """What an operator that the pattern doesn't have computes from a root."""
        operators = frozenset(op for node in self.pattern.nodes for op in node.operators)
        truth = self.assembly.types[value].dtype == TensorProto.BOOL
        unary, binary = ("Not", "And") if truth else ("Neg", "Add")
        if unary not in operators:
            return self.assembly.apply(unary, "", {}, [value])[0]
        return self.assembly.apply(binary, "", {}, [value, value])[0]

    # Ranks

    def ranks_of(self, variable: Var | None) -> frozenset[int] | None:
        """Ranks of a variable that the operators reading it, and those after them, accept; None where any rank is."""
        if variable is None:
            return None
        if variable not in self._wanted:
            self._wanted[variable] = self._ranks(variable)
        return self._wanted[variable]

    def ranks_of_output(self, node: PatternNode) -> frozenset[int] | None:
        """Ranks that the readers of an operator's result accept; None where any rank is."""
        return self._ranks(PatternOutput(node, 0))

    def _ranks(self, value: PatternValue) -> frozenset[int] | None:
        found: frozenset[int] | None = None
        for node in self.pattern.nodes:
            for i, source in enumerate(node.inputs):
                if source != value:
                    continue
                wanted = self._ranks_at(node, i)
                if wanted is not None:
                    found = wanted if found is None else found & wanted or wanted
        return found

    def _ranks_at(self, node: PatternNode, i: int) -> frozenset[int] | None:
        (op, *others) = sorted(node.operators)
        wanted = None if others else _RANKS.get((op, i), _RANKS.get((op, -1) if i == 0 else (op, -2)))
        perm = node.attrs.get("perm")
        if op == "Transpose" and isinstance(perm, tuple):
            wanted = frozenset({len(perm)})
        if wanted is None and (i == 0 or node.commutative) and (others or op in _KEEPS_RANK):
            kept = not node.operators & _CHANGES_RANK
            return self._ranks(PatternOutput(node, 0)) if kept else None
        return wanted


_IMAGE, _MATRIX = frozenset({3, 4, 5}), frozenset({1, 2, 3, 4})
_RANKS: Mapping[tuple[str, int], frozenset[int]] = {
    **{(op, i): _IMAGE for op in ("Conv", "FusedConv", "MaxPool", "AveragePool", "GlobalAveragePool") for i in (0, 1)},
    **{(op, i): _MATRIX for op in ("MatMul", "FusedMatMul") for i in (0, 1)},
    **{("Gemm", i): frozenset({2}) for i in (0, 1)},
    **{("Attention", i): frozenset({3, 4}) for i in (0, 1, 2)},
    **{("MultiHeadAttention", i): frozenset({3}) for i in (0, 1, 2)},
    **{("SkipLayerNormalization", i): frozenset({2, 3}) for i in (0, 1)},
    ("BatchNormalization", 0): frozenset({2, 3, 4, 5}),
}
_KEEPS_RANK = frozenset({
    "Add", "Sub", "Mul", "Div", "Transpose", "Concat", "Split", "Slice", "Pad", "Softmax", "LayerNormalization",
    "BatchNormalization", "Relu", "Gelu", "Dropout", "Identity",
})  # fmt: skip
_CHANGES_RANK = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Gather"})


def element_types_of(pattern: Pattern) -> frozenset[int]:
    """Element types of DTYPES that the data of a pattern may have, as far as its operators tell."""
    usable = frozenset(DTYPES)
    for node in pattern.nodes:
        if node.domain:
            usable &= {TensorProto.FLOAT, TensorProto.FLOAT16}
        elif not node.operators & _CHANGES_TYPE:
            usable &= frozenset().union(*(element_types(op, 0) for op in node.operators))
        else:
            return frozenset(DTYPES)
    return usable or frozenset(DTYPES)


_CHANGES_TYPE = frozenset({"Cast", "Where", "Equal", "Less", "Greater", "IsNaN", "IsInf"})


def element_types(op: str, i: int) -> frozenset[int]:
    """Element types that a standard operator accepts as its input i; none where the operator set doesn't have it."""
    key = (op, i)
    if key not in _ELEMENTS:
        if not onnx.defs.has(op, OPSET, ""):
            return _ELEMENTS.setdefault(key, frozenset())
        schema = onnx.defs.get_schema(op, OPSET)
        names = schema.inputs[min(i, len(schema.inputs) - 1)].types
        known = {f"tensor({TensorProto.DataType.Name(dtype).lower()})": dtype for dtype in DTYPES}
        _ELEMENTS[key] = frozenset(known[name] for name in names if name in known)
    return _ELEMENTS[key]


_ELEMENTS: dict[tuple[str, int], frozenset[int]] = {}
