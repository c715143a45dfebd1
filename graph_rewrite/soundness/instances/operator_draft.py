"""An operator of a source graph while its free inputs and attributes are being chosen."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.ir.attributes import float32
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.matching import schema_default
from graph_rewrite.rewriting.patterns import AttrVar, Const, Maybe, MaybeConst, PatternNode, Scalar, Var
from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.source_state import Array, Shape, SourceState

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
DIMS = (2, 3, 1, 4)
"""Sizes of an axis."""
SCALARS = (2.0, 0.5, -1.0, 1.0, 3.0, 0.0, 0.25, -0.5, 1e-3)
"""Contents of constants of one element."""
_ONCE: Mapping[str, Sequence[float]] = {"epsilon": (1e-5, 1e-3, 0.5, 1.0)}
"""Contents of constants by the name of the variable: below a root, a number must not be negative."""


@dataclass
class OperatorDraft:
    """An operator about to be applied. Its inputs are numbered as the operator's; each is known (it has a type),
    absent, or free: then a proposal gives it a type and, where it is constant, elements."""

    source: SourceState
    node: PatternNode
    op: str
    earlier: Sequence[OperatorDraft] = field(repr=False)
    """The operators applied before."""
    inputs: list[int | None] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    """Notes for later operators of the same kind."""

    def __post_init__(self) -> None:
        self._variables: list[Var | None] = [i if isinstance(i, Var) else None for i in self.node.inputs]
        self.tail: Var | None = None
        if self.node.variadic:
            self.tail = self._variables.pop()
        self.inputs = [self.source.value_of(i) for i in self.node.inputs[: len(self._variables)]]
        if self.tail is not None and self.tail.name in self.source.bound:
            self.inputs.extend(self.source.bound[self.tail.name])
            self._variables.extend([None] * len(self.source.bound[self.tail.name]))
            self.tail = None

    def pick(self, key: str, options: Sequence[Any], weights: Sequence[float] | None = None) -> Any:
        """One of the options, drawn by the chooser."""
        if not options:
            raise DeadEnd(key)
        return self.source.chooser.pick(f"{self.node.label} {key}", options, weights)

    # Inputs

    def known(self, i: int) -> bool:
        """Return whether input i has a type."""
        return i < len(self.inputs) and self.inputs[i] is not None

    def free(self, i: int) -> bool:
        """Return whether input i is to be given by a proposal."""
        if i >= len(self._variables):
            return self.tail is not None and i >= len(self.inputs)
        variable = self._variables[i]
        return variable is not None and variable.name not in self.source.bound

    def optional(self, i: int) -> bool:
        """Return whether input i, where it is free and may be left out, is to be given; it is left out else."""
        if not self.free(i):
            return False
        variable = self._variables[i] if i < len(self._variables) else None
        if variable is None:
            return bool(self.pick(f"input {i}", ("given", "left out")) == "given")
        if not issubclass(variable.kind, Maybe):
            return True
        given = bool(self.pick(f"input {i}", ("given", "left out")) == "given")
        if not given:
            self.source.bound[variable.name] = None
        return given

    def type(self, i: int) -> TensorType:
        """The type of a known input."""
        value = self.inputs[i]
        if value is None:
            raise DeadEnd(f"input {i} of {self.op} has no type")
        return self.source.assembly.types[value]

    def shape(self, i: int) -> Shape:
        """The shape of a known input."""
        return self.type(i).shape

    def array(self, i: int) -> Array | None:
        """The elements of a known constant input."""
        value = self.inputs[i] if i < len(self.inputs) else None
        constant = None if value is None else self.source.assembly.constants.get(value)
        return None if constant is None else constant.numpy()

    def dtype(self) -> int:
        """The element type of the first known input, or the one that the source is made for."""
        return next((self.type(i).dtype for i in range(len(self.inputs)) if self.known(i)), self.source.dtype)

    def data(self, i: int, shape: Shape, dtype: int | None = None, positive: bool = False) -> None:
        """Give a free input a type; it becomes an input of the graph, or a constant."""
        dtype = self.dtype() if dtype is None else dtype
        variable, name = self._place(i)
        if self.is_constant(i):
            if variable.kind is Scalar:
                shape = self.pick(f"{name} shape", ((), (1,), (1, 1)), (6, 3, 1))
            self._bind(i, self.source.assembly.constant(name, self._content(variable, name, shape, dtype, positive)))
        else:
            self._bind(i, self.source.assembly.input(name, TensorType(dtype, shape)))

    def parameter(self, i: int, numbers: Sequence[int] | Array) -> None:
        """Give a free input int64 elements: a shape, axes, indices."""
        self.parameter_of(i, np.asarray(numbers, dtype=np.int64))

    def parameter_of(self, i: int, array: Any) -> None:
        """Give a free input these elements."""
        self._bind(i, self.source.assembly.constant(self._place(i)[1], np.asarray(array)))

    def _place(self, i: int) -> tuple[Var, str]:
        if i < len(self._variables):
            variable = self._variables[i]
            if variable is None:
                raise DeadEnd(f"input {i} of {self.op} is not free")
            return variable, variable.name
        if self.tail is None:
            raise DeadEnd(f"{self.op} takes no input {i}")
        return self.tail, f"{self.tail.name}{i - len(self._variables)}"

    def _bind(self, i: int, value: int) -> None:
        if i < len(self._variables):
            variable = self._variables[i]
            if variable is not None:
                self.source.bound[variable.name] = value
                for k, other in enumerate(self._variables):
                    if other is variable:
                        self.inputs[k] = value
        else:
            if i != len(self.inputs):
                raise DeadEnd(f"input {len(self.inputs)} of {self.op} is left out")
            self.inputs.append(value)

    def close(self) -> None:
        """Bind the variable for all other inputs, and leave out what no proposal gave."""
        if self.tail is not None:
            self.source.bound[self.tail.name] = tuple(self.inputs[len(self._variables) :])
        for variable in self._variables:
            if variable is not None and variable.name not in self.source.bound:
                if not issubclass(variable.kind, Maybe):
                    raise DeadEnd(f"no proposal for {variable.name} of {self.op}")
                self.source.bound[variable.name] = None

    def _content(self, variable: Var, name: str, shape: Shape, dtype: int, positive: bool) -> Array:
        kind = np.dtype(helper.tensor_dtype_to_np_dtype(dtype))
        examples = self.source.examples.get(variable.name, _ONCE.get(variable.name))
        if examples is not None:
            number = self.pick(f"{name} content", tuple(examples))
            if kind.kind != "f" and not abs(number) < 100:
                raise DeadEnd("not a small whole number")
            _require_size(shape)
            return np.full(shape, number, dtype=kind)
        if variable.kind is Scalar or shape == ():
            return np.full(shape, self.pick(f"{name} content", SCALARS), dtype=np.float64).astype(kind)
        options = ["random"]
        if not positive and issubclass(variable.kind, (Const, MaybeConst)):
            options += ["zeros", "ones", *(["identity"] if len(shape) == 2 and shape[0] == shape[1] else [])]
        content = self.pick(f"{name} content", options, [4, 1, 1, 3][: len(options)])
        _require_size(shape)
        if content == "random":
            return self.source.random(shape, kind, positive)
        return np.eye(shape[0], dtype=kind) if content == "identity" else np.full(shape, content == "ones", dtype=kind)

    # Attributes

    def attr(self, name: str, options: Sequence[Hashable], weights: Sequence[float] | None = None) -> Any:
        """The value of an attribute: that of the pattern, or one of the options (None: left out)."""
        wanted = self.node.attrs.get(name)
        if name in self.node.attrs and not isinstance(wanted, AttrVar):
            usual = not self.node.domain and schema_default(self.op, name) == wanted
            if not usual or self.pick(f"{name} written", (True, False)):
                self.attrs[name] = wanted
            return wanted
        if isinstance(wanted, AttrVar) and wanted.name in self.source.attrs:
            value = self.source.attrs[wanted.name]
            if value is not None and not (value == wanted.default and name not in self.attrs):
                self.attrs[name] = value
            return value
        value = self.attrs[name] if name in self.attrs else self.pick(name, options, weights)
        value = float32(value) if isinstance(value, float) else value
        if value is not None:
            self.attrs[name] = value
        if isinstance(wanted, AttrVar):
            self.source.attrs[wanted.name] = wanted.default if value is None else value
        return value

    # Shapes

    def fresh(self, name: str, ranks: Sequence[int], dims: Sequence[int] = DIMS) -> Shape:
        """A shape of one of these ranks; those that the operators further on need come first."""
        wanted = self.source.ranks.of_variable(self._variable_named(name))
        allowed = [rank for rank in ranks if rank in wanted] if wanted else []
        earlier = self.source.shapes_so_far(allowed or list(ranks))
        like = self.pick(f"{name} shape like", (*earlier, None)) if earlier else None
        if like is not None:
            shape = list(earlier[like])
            change = self.pick(f"{name} change", (None, *range(-len(shape), 0)))
            if change is not None:
                shape[change] = self.pick(f"{name} change to", [dim for dim in dims if dim != shape[change]])
            return tuple(shape)
        rank = self.pick(f"{name} rank", allowed or list(ranks))
        return tuple(self.pick(f"{name} axis {axis}", dims) for axis in range(rank))

    def fresh_input(self, i: int, ranks: Sequence[int], dims: Sequence[int] = DIMS, dtype: int | None = None) -> None:
        """Give input i, where it is free, a fresh shape."""
        if self.free(i):
            self.data(i, self.fresh(self._place(i)[1], ranks, dims), dtype)

    def variable(self, i: int) -> Var | None:
        """The pattern's variable at input i."""
        return self._variables[i] if i < len(self._variables) else self.tail

    def is_constant(self, i: int) -> bool:
        """Return whether a free input is to be a constant."""
        variable = self._place(i)[0]
        return issubclass(variable.kind, (Const, MaybeConst)) or self.source.is_constant(variable)

    def variable_name(self, i: int) -> str:
        """Name of the variable at a free input."""
        return self._place(i)[1]

    def fixed(self, name: str) -> Any:
        """The value of an attribute that the pattern, or an earlier operator, has set already; None else."""
        wanted = self.node.attrs.get(name)
        return self.source.attrs.get(wanted.name) if isinstance(wanted, AttrVar) else wanted

    def numpy_dtype(self) -> np.dtype[Any]:
        """NumPy's element type of the operator's first input."""
        return np.dtype(helper.tensor_dtype_to_np_dtype(self.dtype()))

    def _variable_named(self, name: str) -> Var | None:
        return next((v for v in (*self._variables, self.tail) if v is not None and v.name == name), None)


Proposal = Callable[[OperatorDraft], None]
"""Gives the free inputs and attributes of an operator types and contents."""


def _require_size(shape: Shape) -> None:
    """Check that a constant of this shape exists: onnx infers negative sizes where no window fits into an image."""
    if any(dim < 0 for dim in shape):
        raise DeadEnd(f"no array has the shape {shape}")


def axes_of(rank: int) -> list[int]:
    """All axes of a value, counted from the front and from the end."""
    return [*range(rank), *range(-rank, 0)]
