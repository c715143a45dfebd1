"""Graphs over a `Domain`: constants as the expressions they were folded from, operators by their exact meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.ir.attributes import AttrValue, float32
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.evaluation import run_operator
from graph_rewrite.soundness.domains.prime_field import Array, Domain, NeedsIntegers, Unsupported
from graph_rewrite.soundness.domains.readings import HALF, SINGLE, Reading, root

FLOATS = frozenset(
    (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
)  # fmt: skip
"""Element types that stand for the real numbers."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """An array over a domain; or, where `known`, of the integers or truth values that it holds. `values` are the
    numbers of a constant; `held` is a type that holds every element exactly, where it is not `dtype`."""

    array: Array
    dtype: int
    known: bool = False
    values: Array | None = None
    held: int | None = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS


@dataclass(slots=True)
class Call:
    """An operator to be applied, as its meaning sees it."""

    domain: Domain
    reading: Reading
    op: str
    attrs: Mapping[str, AttrValue]
    inputs: tuple[Tensor | None, ...]
    opset: int
    outputs: int

    def array(self, index: int) -> Array:
        """Input `index` as elements of the domain; truth values are 0 and 1.

        Raises:
            Unsupported: the input was left out.
        """
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            raise Unsupported(f"{self.op} without input {index}")
        if tensor.dtype == TensorProto.BOOL and not tensor.known:
            one, zero = (np.broadcast_to(self.rational(n), tensor.array.shape) for n in (1, 0))
            return self.domain.select(tensor.array, one, zero)
        return self.reading.array(self.domain, tensor.array) if tensor.known else tensor.array

    def maybe(self, index: int) -> Array | None:
        """Input `index`, None where it was left out."""
        return self.array(index) if self.has(index) else None

    def has(self, index: int) -> bool:
        return index < len(self.inputs) and self.inputs[index] is not None

    def arrays(self) -> list[Array]:
        """All inputs."""
        return [self.array(i) for i in range(len(self.inputs))]

    def condition(self, index: int) -> Array:
        """An input of truth values."""
        tensor = self.inputs[index]
        assert tensor is not None
        return tensor.array

    def known(self, index: int) -> Array:
        """Input `index` as integers that don't depend on the graph's inputs.

        Raises:
            NeedsIntegers: they do depend on them.
        """
        tensor = self.inputs[index]
        if tensor is None or not tensor.known:
            raise NeedsIntegers(f"{self.op} reads indices or a shape that depend on the inputs")
        return tensor.array

    def attr(self, name: str, default: float) -> Array:
        """A float attribute as a scalar of the domain. Defaults are float32, as given ones are."""
        return self.number(float(self.attrs.get(name, float32(default))))

    def number(self, value: float) -> Array:
        """A float literal as a scalar of the domain."""
        half = bool(self.inputs) and self.first.dtype in (TensorProto.FLOAT16, TensorProto.BFLOAT16)
        return self.domain.array([self.domain.literal(*self.reading.number(value, HALF if half else SINGLE))], ())

    def rational(self, value: Fraction | int) -> Array:
        """A rational number as a scalar of the domain, exactly."""
        return self.domain.array([self.domain.literal(Fraction(value))], ())

    def root(self, square: Fraction) -> Array:
        """The root of a positive rational number as a scalar of the domain."""
        return self.domain.array([self.domain.literal(*root(square))], ())

    @property
    def first(self) -> Tensor:
        """The first input.

        Raises:
            Unsupported: there is none.
        """
        tensor = self.inputs[0] if self.inputs else None
        if tensor is None:
            raise Unsupported(f"{self.op} without its first input")
        return tensor


class Evaluator:
    """Evaluates graphs over one domain with one reading of constants.

    `free` names, by digest, constants that are variables like inputs: what holds for all weights holds for those given.
    `masks` names constants that are added to scores.
    """

    def __init__(
        self, domain: Domain, reading: Reading, free: frozenset[str] = frozenset(), masks: frozenset[str] = frozenset()
    ) -> None:
        self.domain, self.reading, self._free, self._masks = domain, reading, free, masks
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
        elements = self.reading.array(self.domain, np.asarray(constant.numpy()), constant.digest in self._masks)
        return Tensor(elements, dtype, values=_small(constant))

    def apply(
        self, op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[Tensor | None], outputs: int,
        opset: int,
    ) -> list[Tensor]:  # fmt: skip
        """The outputs of one operator; their element types are those of the first input where not clear otherwise."""
        from graph_rewrite.soundness.semantics.meanings import meaning_of

        if inputs and all(tensor is None or tensor.known for tensor in inputs):
            return self._concretely(op, domain, attrs, inputs, outputs, opset)
        meaning = meaning_of(op, domain)
        if meaning is None:
            raise Unsupported(f"no exact meaning of {op}")
        call = Call(self.domain, self.reading, op, attrs, tuple(inputs), opset, outputs)
        try:
            found = meaning(call)
        except (ValueError, IndexError, KeyError, ZeroDivisionError) as error:
            raise Unsupported(f"{op} cannot take these inputs: {error}") from error
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
        return Tensor(self.reading.array(self.domain, array), dtype)


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
