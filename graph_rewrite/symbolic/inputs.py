"""The symbolic dimensions that a model declares for its inputs, and the shapes that follow from values for them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import onnx

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Place:
    """An axis of an input that a symbol is the size of."""

    input: str
    axis: int
    rank: int


@dataclass(frozen=True)
class SymbolicInputs:
    """The declared dimensions of inputs by name: a size, or the name of a symbol. A dimension without a name is called
    after its input and axis. A sum of symbols and numbers, such as `past + 1`, is no symbol of its own."""

    dims: Mapping[str, tuple[int | str, ...]]
    open: frozenset[str] = frozenset()
    """Inputs whose number of dimensions is open."""

    @cached_property
    def symbols(self) -> dict[str, Place]:
        """Return the symbols, with the first place of each."""
        found: dict[str, Place] = {}
        for name, dims in self.dims.items():
            for axis, dim in enumerate(dims):
                if isinstance(dim, str):
                    found.setdefault(dim, Place(name, axis, len(dims)))
        return {name: place for name, place in found.items() if not _is_sum(name, found)}

    @property
    def is_static(self) -> bool:
        """True where no input has a symbolic dimension."""
        return not self.symbols and not self.open

    @property
    def symbolic(self) -> list[str]:
        """The names of the inputs with symbolic dimensions."""
        return [name for name, dims in self.dims.items() if any(isinstance(dim, str) for dim in dims)]

    def shapes(self, values: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the inputs with symbolic dimensions, for values of all symbols."""
        return {name: tuple(_size(dim, values) for dim in self.dims[name]) for name in self.symbolic}

    def values(self, shapes: Shapes) -> dict[str, int]:
        """Return the values of the symbols that some shapes give.

        Raises:
            UserError: an input that there is not, another number of dimensions, another size than declared, different
                sizes for one symbol, or another size than a sum of symbols gives.
        """
        found: dict[str, int] = {}
        for name, shape in shapes.items():
            dims = self._declared(name, shape)
            for dim, size in zip(dims, shape, strict=True):
                if dim in self.symbols and found.setdefault(str(dim), size) != size:
                    raise UserError(
                        f"--shape {name}: the dimension {dim} is {found[str(dim)]} elsewhere and {size} here; it has"
                        " the same size wherever the model names it so"
                    )
        self._check_sums(shapes, found)
        return found

    def _check_sums(self, shapes: Shapes, values: Mapping[str, int]) -> None:
        for name, shape in shapes.items():
            for dim, size in zip(self.dims[name], shape, strict=True):
                if isinstance(dim, int) or dim in self.symbols:
                    continue
                known = all(part in values for part in _parts(dim) if not part.isdigit())
                if known and (wanted := _size(dim, values)) != size:
                    raise UserError(
                        f"--shape {name}: the dimension {dim} is {wanted} by the other dimensions, not {size}"
                    )

    def _declared(self, name: str, shape: Sequence[int]) -> tuple[int | str, ...]:
        if name not in self.dims:
            raise UserError(f"--shape {name}: there is no such input; the inputs are {', '.join(self.dims)}")
        dims = self.dims[name]
        fits = len(dims) == len(shape) and all(
            isinstance(dim, str) or dim == size for dim, size in zip(dims, shape, strict=True)
        )
        if not fits or min(shape, default=1) < 0:
            raise UserError(
                f"--shape {name}: the input is declared as [{', '.join(map(str, dims))}], which"
                f" {list(shape)} contradicts; only symbolic dimensions can be set"
            )
        return dims


def symbolic_inputs(graph: Graph) -> SymbolicInputs:
    """Return the declared dimensions of a loaded model's tensor inputs. Those that have a default value are left
    out."""
    found: dict[str, tuple[int | str, ...]] = {}
    unranked: set[str] = set()
    for info, value in zip(graph.header.graph.input, graph.inputs, strict=True):
        if value in graph.stored or not info.type.HasField("tensor_type"):
            continue
        if not info.type.tensor_type.HasField("shape"):
            unranked.add(info.name)
            continue
        dims = info.type.tensor_type.shape.dim
        found[info.name] = tuple(_dim(info.name, axis, dim) for axis, dim in enumerate(dims))
    return SymbolicInputs(found, frozenset(unranked))


def _dim(name: str, axis: int, dim: onnx.TensorShapeProto.Dimension) -> int | str:
    if dim.HasField("dim_value"):
        return int(dim.dim_value)
    return dim.dim_param or f"{name}.{axis}"


def _parts(dim: str) -> list[str]:
    return [part.strip() for part in dim.split("+")]


def _is_sum(dim: str, known: Mapping[str, object]) -> bool:
    parts = _parts(dim)
    return len(parts) > 1 and all(part in known or re.fullmatch(r"\d+", part) for part in parts)


def _size(dim: int | str, values: Mapping[str, int]) -> int:
    if isinstance(dim, int):
        return dim
    if dim in values:
        return values[dim]
    return sum(int(part) if part.isdigit() else values[part] for part in _parts(dim))
