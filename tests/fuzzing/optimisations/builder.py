"""A model under construction: values with their types, nodes, constants, and random choices among them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Dim = int | str
Array = np.ndarray[Any, Any]

FLOAT, DOUBLE, HALF = int(TensorProto.FLOAT), int(TensorProto.DOUBLE), int(TensorProto.FLOAT16)
INT64, INT32, UINT8, INT8, BOOL = (
    int(TensorProto.INT64), int(TensorProto.INT32), int(TensorProto.UINT8), int(TensorProto.INT8), int(TensorProto.BOOL)
)  # fmt: skip
FLOATS = (FLOAT, DOUBLE, HALF)
BATCH = "batch"
"""The symbolic dimension, which is the first one of every value that depends on an input."""
MOST_ELEMENTS = 4096
_RECENT = 5
_REFUSALS = (onnx.defs.SchemaError, onnx.shape_inference.InferenceError, onnx.checker.ValidationError)


class Unfit(Exception):
    """A step does not fit the values that there are; the model stays as it was before the step."""


@dataclass(frozen=True)
class Value:
    """A tensor of a model under construction."""

    name: str
    dtype: int
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOATS

    def dim(self, axis: int) -> int:
        """The size of an axis. Raises Unfit where it is symbolic or missing."""
        if not -self.rank <= axis < self.rank or isinstance(size := self.shape[axis], str):
            raise Unfit(f"{self.shape} has no fixed axis {axis}")
        return size

    @property
    def dims(self) -> tuple[int, ...]:
        """All sizes. Raises Unfit where one is symbolic."""
        return tuple(self.dim(axis) for axis in range(self.rank))


@dataclass(frozen=True)
class Input:
    """An input: integers lie in [low, high)."""

    value: Value
    low: int = 0
    high: int = 2


@dataclass
class Builder:
    """A model under construction; `rng` makes every choice."""

    rng: random.Random
    opset: int
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    as_nodes: set[str] = field(default_factory=set)
    """Constants that are nodes; the others are initializers."""
    overridable: set[str] = field(default_factory=set)
    """Initializers that are inputs too."""
    _count: int = 0

    def __post_init__(self) -> None:
        self.numbers = np.random.default_rng(self.rng.getrandbits(32))

    def op(self, op: str, *inputs: Value | None, domain: str = "", type: Value | None = None, **attrs: Any) -> Value:
        """Add a node with one output, whose type is inferred, or is that of `type`."""
        return self.several(op, 1, *inputs, domain=domain, type=type, **attrs)[0]

    def several(
        self, op: str, outputs: int, *inputs: Value | None, domain: str = "", type: Value | None = None, **attrs: Any
    ) -> list[Value]:
        """Add a node with several outputs. Raises Unfit where it would be invalid."""
        names = [self.fresh() for _ in range(outputs)]
        given = {key: value for key, value in attrs.items() if value is not None}
        operands = [value.name if value is not None else "" for value in inputs]
        node = helper.make_node(op, operands, names, f"{op}_{names[0]}", domain=domain, **given)
        if type is not None:
            made = [Value(name, type.dtype, type.shape) for name in names]
        else:
            made = self._inferred(node, [value for value in inputs if value is not None])
        if any(np.prod([dim for dim in one.shape if isinstance(dim, int)]) > MOST_ELEMENTS for one in made):
            raise Unfit("too large")
        self.nodes.append(node)
        self.values += made
        return made

    def _inferred(self, node: onnx.NodeProto, inputs: Sequence[Value]) -> list[Value]:
        known = {tensor.name: tensor for tensor in self.constants}
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
            found = onnx.shape_inference.infer_node_outputs(
                schema, node, {value.name: type_proto(value) for value in inputs},
                {value.name: known[value.name] for value in inputs if value.name in known},
                opset_imports=[helper.make_opsetid("", self.opset)],
            )  # fmt: skip
        except (*_REFUSALS, RuntimeError) as error:
            raise Unfit(f"{node.op_type}: {error}") from error
        return [_value(name, found.get(name)) for name in node.output]

    def constant(self, array: Any, dtype: int | None = None) -> Value:
        """Add a constant: an initializer, or now and then a node."""
        data = np.asarray(array)
        if dtype is not None:
            data = data.astype(helper.tensor_dtype_to_np_dtype(dtype))
        value = Value(self.fresh("c"), helper.np_dtype_to_tensor_dtype(data.dtype), data.shape)
        if self.chance(0.1):
            self.as_nodes.add(value.name)
        elif data.ndim and data.dtype.kind == "f" and self.chance(0.01):
            self.overridable.add(value.name)
        self.constants.append(numpy_helper.from_array(data, value.name))
        return value

    def weight(self, *shape: int, dtype: int = FLOAT, fan_in: int = 1) -> Value:
        """Add normal weights of variance 1/fan_in; now and then all equal, or the same as another's."""
        same = [t for t in self.constants if tuple(t.dims) == shape and t.data_type == dtype and fan_in > 1]
        if same and self.chance(0.1):
            return Value(same[0].name, dtype, shape)
        drawn = self.numbers.standard_normal(shape) / np.sqrt(fan_in)
        return self.constant(drawn, dtype)

    def positive(self, *shape: int, dtype: int = FLOAT) -> Value:
        """Add weights between 0.5 and 1.5."""
        return self.constant(self.numbers.uniform(0.5, 1.5, shape), dtype)

    def ints(self, *numbers: int) -> Value:
        """Add a vector of int64."""
        return self.constant(np.asarray(numbers, np.int64))

    def input(self, dtype: int, shape: Sequence[Dim], low: int = 0, high: int = 2) -> Value:
        """Add an input of the model."""
        value = Value(self.fresh("x"), dtype, tuple(shape))
        self.inputs.append(Input(value, low, high))
        self.values.append(value)
        return value

    def fresh(self, prefix: str = "v") -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def choice(self, options: Sequence[Any]) -> Any:
        """Return one of some options. Raises Unfit where there is none."""
        if not options:
            raise Unfit("nothing to choose from")
        return options[self.rng.randrange(len(options))]

    def pick(self, fits: Callable[[Value], bool]) -> Value:
        """Return a value, rather a recent one. Raises Unfit where none fits."""
        found = [value for value in self.values if fits(value)]
        recent = found[-_RECENT:]
        chosen: Value = self.choice(recent if self.chance(0.7) else found)
        return chosen

    def like(self, x: Value, constant: float = 0.4) -> Value:
        """Return another operand of an element-wise operator: a value of the type of `x`, or a constant."""
        same = [value for value in self.values if (value.dtype, value.shape) == (x.dtype, x.shape) and value != x]
        if same and not self.chance(constant):
            picked: Value = self.choice(same)
            return picked
        fixed = [dim if isinstance(dim, int) and self.chance(0.7) else 1 for dim in x.shape]
        shape = fixed[self.rng.randrange(len(fixed)) :] if fixed and self.chance(0.6) else fixed
        return self.positive(*shape, dtype=x.dtype) if x.is_float else self.constant(
            self.numbers.integers(0, 3, shape), x.dtype
        )  # fmt: skip

    @contextmanager
    def undone_where_unfit(self) -> Iterator[None]:
        """Take back what a step added where it raises Unfit, which goes on."""
        lists: tuple[list[Any], ...] = (self.values, self.nodes, self.constants, self.inputs, self.functions)
        lengths = [len(each) for each in lists]
        try:
            yield
        except Unfit:
            for each, length in zip(lists, lengths, strict=True):
                del each[length:]
            raise

    def proto(self, outputs: Sequence[Value]) -> onnx.ModelProto:
        """Return the model with these outputs."""
        stored = [tensor for tensor in self.constants if tensor.name not in self.as_nodes]
        nodes = [helper.make_node("Constant", [], [tensor.name], f"Constant_{tensor.name}", value=tensor)
                 for tensor in self.constants if tensor.name in self.as_nodes]  # fmt: skip
        given = [each.value for each in self.inputs]
        given += [Value(t.name, t.data_type, tuple(t.dims)) for t in stored if t.name in self.overridable]
        infos = [[helper.make_value_info(v.name, type_proto(v)) for v in side] for side in (given, outputs)]
        graph = helper.make_graph([*nodes, *self.nodes], "random", *infos, stored)
        domains = {node.domain for node in self.nodes if node.domain}
        imports = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(name, 1) for name in sorted(domains))]
        return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=self.functions)


def type_proto(value: Value) -> onnx.TypeProto:
    return helper.make_tensor_type_proto(value.dtype, value.shape)


def _value(name: str, proto: onnx.TypeProto | None) -> Value:
    if proto is None or not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        raise Unfit("its shape is not known")
    dims: list[Dim] = []
    for dim in proto.tensor_type.shape.dim:
        size = dim.dim_value if dim.HasField("dim_value") else dim.dim_param
        if size == "" or (isinstance(size, str) and (size != BATCH or dims)):
            raise Unfit("its shape depends on values")
        dims.append(size)
    return Value(name, proto.tensor_type.elem_type, tuple(dims))
