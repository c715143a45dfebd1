"""The exact evaluation of graphs over a domain.

A constant is evaluated by the expression that it was folded from; an operator by its semantics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from onnx import helper

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.evaluation import run_operator
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_semantics import EvaluationError
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.soundness.domains.domain import Array, Domain, Unsupported
from graph_rewrite.soundness.domains.interpretation import Interpretation
from graph_rewrite.soundness.semantics.call import FLOATS, Call, Tensor
from graph_rewrite.soundness.semantics.lookup import semantics_of


class Evaluator:
    """Evaluates graphs over one domain with one interpretation of constants.

    `free` names, by digest, constants that are variables like inputs: what holds for all weights holds for those given.
    `masks` names constants that are added to scores.
    """

    def __init__(
        self,
        domain: Domain,
        interpretation: Interpretation,
        free: frozenset[str] = frozenset(),
        masks: frozenset[str] = frozenset(),
    ) -> None:
        self.domain, self.interpretation, self._free, self._masks = domain, interpretation, free, masks
        self._constants: dict[int, tuple[Constant, Tensor]] = {}

    def outputs(self, graph: Graph, inputs: Mapping[str, Tensor]) -> list[Tensor]:
        """The outputs of a graph whose inputs, by name, have these values.

        Raises:
            Unsupported: an operator, a constant or a type has no exact meaning here.
            DivisorIsZero: a divisor is zero at these inputs.
        """
        if graph.stored:
            raise Unsupported("inputs with initializers, and sparse ones")
        values = {value: inputs[graph.names[value]] for value in graph.inputs}
        for node in graph.order():
            if node.opaque:
                raise Unsupported(f"{node.op} is opaque")
            sources = [None if v is None else self._value(graph, values, v) for v in node.inputs]
            results = self.apply(node.op, node.domain, node.attrs, sources, len(node.outputs), graph.opset)
            for value, result in zip(node.outputs, results, strict=False):
                type = graph.types[value]
                if type is not None and type.shape != result.array.shape:
                    raise Unsupported(f"{node.op} gives shape {result.array.shape} here, not {type.shape}")
                values[value] = result if type is None else replace(result, dtype=type.dtype)
        return [self._value(graph, values, value) for value in graph.outputs]

    def _value(self, graph: Graph, values: Mapping[int, Tensor], value: int) -> Tensor:
        found = values.get(value)
        return self.constant(graph.constants[value]) if found is None else found

    def constant(self, constant: Constant) -> Tensor:
        """A constant: by the expression it was folded from, else by its elements."""
        known = self._constants.get(id(constant))
        if known is None:
            known = self._constants[id(constant)] = constant, self._read(constant)
        return known[1]

    def _read(self, constant: Constant) -> Tensor:
        dtype, source = constant.type.dtype, constant.origin
        if dtype not in FLOATS:
            return Tensor(np.asarray(constant.numpy()), dtype, True, _small(constant))
        if source is not None:
            inputs = [None if part is None else self.constant(part) for part in source.inputs]
            results = self.apply(source.op, source.domain, source.attrs, inputs, source.outputs, source.opset)
            return Tensor(results[source.index].array, dtype, values=_small(constant))
        if constant.digest in self._free:
            return Tensor(self.domain.variables(f"weight {constant.digest}", constant.type.shape), dtype)
        elements = self.interpretation.array(self.domain, np.asarray(constant.numpy()), constant.digest in self._masks)
        return Tensor(elements, dtype, values=_small(constant))

    def apply(
        self, op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Tensor | None], outputs: int,
        opset: int,
    ) -> list[Tensor]:  # fmt: skip
        """Return the outputs of one operator; their element type is that of the first input unless semantics set it.

        Raises:
            Unsupported: the operator has no exact meaning, or not for these inputs.
        """
        try:
            if inputs and all(tensor is None or tensor.known for tensor in inputs):
                return self._concretely(op, domain, attrs, inputs, outputs, opset)
            call = Call(self.domain, self.interpretation, op, attrs, tuple(inputs), opset, outputs)
            return self._exactly(call, domain)
        except EvaluationError as error:
            raise Unsupported(f"{op} cannot take these inputs: {error}") from error

    def _exactly(self, call: Call, domain: str) -> list[Tensor]:
        semantics = semantics_of(call.op, domain)
        if semantics is None:
            raise Unsupported(f"no exact meaning of {call.op}")
        try:
            found = semantics(call)
        except (ValueError, IndexError):
            _require_valid(call, domain)
            raise
        dtype = call.first.dtype
        results = found if isinstance(found, (list, tuple)) else [found]
        return [r if isinstance(r, Tensor) else Tensor(np.asarray(r), dtype) for r in results]

    def _concretely(
        self, op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Tensor | None], outputs: int,
        opset: int,
    ) -> list[Tensor]:  # fmt: skip
        arrays = run_operator(op, domain, attrs, [None if t is None else t.array for t in inputs], opset, outputs)
        return [self._lifted(np.asarray(array)) for array in arrays]

    def _lifted(self, array: Array) -> Tensor:
        dtype = int(helper.np_dtype_to_tensor_dtype(array.dtype))
        if dtype not in FLOATS:
            return Tensor(array, dtype, known=True)
        return Tensor(self.interpretation.array(self.domain, array), dtype)


def _require_valid(call: Call, domain: str) -> None:
    """Check that an operator takes inputs of such types: not every graph has been through type inference.

    Raises:
        Unsupported: it does not.
    """
    entries = [None if t is None else (TensorType(t.dtype, t.array.shape), None) for t in call.inputs]
    try:
        infer(call.op, domain, call.attrs, entries, call.outputs, call.opset)
    except TypeInferenceError as error:
        raise Unsupported(f"{call.op} cannot take these inputs: {error}") from error


def _small(constant: Constant) -> Array | None:
    return np.asarray(constant.numpy()) if constant.is_small else None


def inputs_of(graph: Graph, domain: Domain, trial: int, integers: bool) -> dict[str, Tensor]:
    """Inputs of a graph as variables; truth values are free, and integers are 0 or 1 at random where `integers`.

    Raises:
        Unsupported: an input has no static type, or one that is no number.
    """
    found = {}
    for value in graph.inputs:
        name, type = graph.names[value], graph.types[value]
        found[name] = _input(name, type, domain, trial, integers)
    return found


def _input(name: str, type: TensorType | None, domain: Domain, trial: int, integers: bool) -> Tensor:
    if type is None:
        raise Unsupported(f"input {name} has no static type")
    if type.dtype in FLOATS:
        return Tensor(domain.variables(name, type.shape), type.dtype)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(type.dtype))
    if dtype.kind == "b":
        return Tensor(domain.truths(name, type.shape), type.dtype)
    if dtype.kind not in "iu":
        raise Unsupported(f"input {name} has elements of type {dtype}")
    if integers:
        rng = np.random.default_rng((trial, len(name)))
        return Tensor(rng.integers(0, 2, type.shape).astype(dtype), type.dtype, known=True)
    return Tensor(domain.variables(name, type.shape), type.dtype)
