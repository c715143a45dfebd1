"""Inputs to run a model with: seeded random values, extreme ones, or the caller's own from an .npz file. A value is an
array, for a sequence a list of arrays, and None for an optional input that is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .narrow_floats import NARROW, narrow_type, narrowed, read_as
from .patterns import ABSENT, PATTERNS, patterned_floats, patterned_integers

Feeds = dict[str, Any]

ELEMENTS = 3
"""Elements of a sequence."""

_DTYPES: dict[str, type[np.generic]] = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "string": np.str_,
}  # fmt: skip


FEEDABLE = NARROW | frozenset(_DTYPES)
"""Names of the element types that values can be made of."""


class ModelInput(NamedTuple):
    """An input as a session reports it: `type` like `tensor(float)`, a symbolic dimension as a str or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class FeedSpec:
    """A recipe for a model's inputs. The same spec gives the same values for an input of the same name and shape.

    By default floats are standard normal, booleans fair coins, strings numerals, and integers are drawn by their
    input's name: all 1 with `mask` in it, 0 or 1 with `type` or `segment`, else token ids in [0, 1000). `input_ranges`
    gives (low, high) per input instead, high exclusive; `npz` is a file with one array per input.

    `pattern` makes extreme inputs (`patterns.PATTERNS`) of random ones. `item` takes one of several inputs that an .npz
    file holds: arrays with one dimension more than the input, in front, or with several items where the input's first
    dimension is 1. An array of exactly the input's shape belongs to all of them.

    `element_shapes` gives the shape of an optional tensor and of the elements of a sequence, by input: a session does
    not tell them. Such inputs are random also where the others come from a file.

    `values` are the elements, as nested lists or one number for all, of inputs that are always the same.

    `rotated` names the inputs that change from run to run of a measurement (`rotating.rotation`), all of them for None.
    """

    seed: int = 0
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    npz: str | None = None
    pattern: str = ""
    item: int | None = None
    element_shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    rotated: tuple[str, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        ranges = {name: list(limits) for name, limits in self.input_ranges.items()}
        values: dict[str, Any] = {"seed": self.seed, "input_ranges": ranges, "npz": self.npz}
        # Named only where they are set: the text tells measurements apart that were taken before there were any.
        if self.pattern:
            values["pattern"] = self.pattern
        if self.item is not None:
            values["item"] = self.item
        if self.element_shapes:
            values["element_shapes"] = {name: list(shape) for name, shape in self.element_shapes.items()}
        if self.values:
            values["values"] = dict(self.values)
        if self.rotated is not None:
            values["rotated"] = list(self.rotated)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        ranges = {name: (low, high) for name, (low, high) in values["input_ranges"].items()}
        shapes = {name: tuple(shape) for name, shape in values.get("element_shapes", {}).items()}
        rotated = values.get("rotated")
        return cls(
            values["seed"], ranges, values["npz"], values.get("pattern", ""), values.get("item"), shapes,
            values.get("values", {}), None if rotated is None else tuple(rotated),
        )  # fmt: skip

    @property
    def label(self) -> str:
        """The inputs in words, as in `output 'y' with seed 3`."""
        if self.npz is not None:
            return f"on {Path(self.npz).name}" + ("" if self.item is None else f"[{self.item}]")
        return f"on {PATTERNS[self.pattern]}" if self.pattern else f"with seed {self.seed}"

    @property
    def key(self) -> str:
        """Stable text that tells two specs apart; an .npz file counts by content, not by name."""
        values = self.to_json()
        if self.npz is not None:
            about = os.stat(self.npz)
            values["npz"] = _digest(self.npz, about.st_mtime_ns, about.st_size)
        return json.dumps(values, sort_keys=True)


@lru_cache(maxsize=64)
def _digest(path: str, _changed_ns: int, _size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def make_feeds(inputs: Sequence[ModelInput], spec: FeedSpec, given: Feeds | None = None) -> Feeds:
    """Make values for all `inputs`, by name; `given` are the arrays of the .npz file where it is read already. Raises
    ValueError that names the input it cannot make, and why."""
    if spec.npz is None:
        return {item.name: _made(item, spec) for item in inputs}
    given = load_npz(spec.npz) if given is None else given
    return {item.name: _checked(item, given, spec) if is_tensor(item) else _made(item, spec) for item in inputs}


def is_tensor(item: ModelInput) -> bool:
    """Tell whether an input is a tensor, and not a sequence, an optional value or a map."""
    return item.type.startswith("tensor(")


def load_npz(path: str) -> Feeds:
    """Return the arrays of an .npz file by name. Raises ValueError for a file of another kind."""
    archive = np.load(path, allow_pickle=False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise ValueError("it is a single array")
    with archive:
        return {name: archive[name] for name in archive.files}


def items_in(array: NDArray[Any], item: ModelInput) -> int | None:
    """Return the number of inputs that an array holds for `item`, 0 where it is one alone; None where the shape does
    not fit."""
    if fits(array.shape, item.shape):
        return 0
    if fits(array.shape[1:], item.shape):
        return len(array)
    stacked = item.shape[:1] == (1,) and array.ndim > 0 and fits((1, *array.shape[1:]), item.shape)
    return len(array) if stacked else None


def fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    """Tell whether a shape is the wanted one, in which dimensions may be symbolic."""
    return len(shape) == len(wanted) and all(
        not isinstance(want, int) or want == got for want, got in zip(wanted, shape, strict=True)
    )


def _checked(item: ModelInput, given: Feeds, spec: FeedSpec) -> NDArray[Any]:
    if item.name not in given:
        raise ValueError(f"the .npz of feeds has no array for input {item.name!r}; it has {sorted(given)}")
    dtype = dtype_of(item)
    array = read_as(given[item.name], dtype)
    count = items_in(array, item)
    if dtype is np.str_ and array.dtype.kind == "U":
        array = array.astype(object)
    elif array.dtype != dtype:
        count = None
    if count is None or (count and not 0 <= (spec.item or 0) < count):
        raise ValueError(
            f"the .npz of feeds gives {item.name!r} as {array.dtype}{list(array.shape)},"
            f" the model wants {np.dtype(dtype)}{list(item.shape)}"
        )
    if not count:
        return array
    chosen = np.asarray(array[spec.item or 0])
    return chosen if fits(chosen.shape, item.shape) else chosen[None]


def dtype_of(item: ModelInput) -> type[np.generic]:
    """Return the NumPy type of an input's elements. Raises ValueError for those that cannot be made."""
    element = item.type.removeprefix("tensor(").removesuffix(")")
    if element in NARROW:
        return narrow_type(element)
    if element not in _DTYPES:
        raise _cannot_make(item)
    return _DTYPES[element]


def _cannot_make(item: ModelInput) -> ValueError:
    return ValueError(
        f"input {item.name!r} is {item.type}; feeds can be made for tensors of {sorted(FEEDABLE)}, and for"
        " sequences and optional values of them"
    )


def _made(item: ModelInput, spec: FeedSpec) -> Any:
    """Make a value of any type: a tensor, a sequence of some tensors, or an optional one of these."""
    kind, _, inner = item.type.removesuffix(")").partition("(")
    if kind == "optional":
        return None if spec.pattern == ABSENT else _made(item._replace(type=inner), spec)
    if kind == "seq" and inner.startswith("tensor("):
        element = item._replace(type=inner, shape=_element_shape(item, spec))
        return [_random(element, spec, number) for number in range(ELEMENTS)]
    if kind != "tensor":
        raise _cannot_make(item)
    return _random(item._replace(shape=spec.element_shapes.get(item.name, item.shape)), spec)


def _element_shape(item: ModelInput, spec: FeedSpec) -> tuple[int, ...]:
    if item.name not in spec.element_shapes:
        raise ValueError(
            f"input {item.name!r} is {item.type}, and the model declares no fixed shape for its elements, so that no"
            " values can be made; declare one, as onnx.helper.make_tensor_sequence_value_info does"
        )
    return spec.element_shapes[item.name]


def _random(item: ModelInput, spec: FeedSpec, number: int = 0) -> NDArray[Any]:
    """Make a tensor, or the one of this number in a sequence."""
    dtype = dtype_of(item)
    shape = [size for size in item.shape if isinstance(size, int)]
    if len(shape) != len(item.shape):
        raise ValueError(f"input {item.name!r} has symbolic dimensions {list(item.shape)}; fix them before measuring")
    if item.name in spec.values:
        return np.broadcast_to(np.asarray(spec.values[item.name]).astype(dtype), shape).copy()
    # Seeded by name as well, so a model whose inputs come in another order gets the same values.
    rng = np.random.default_rng([spec.seed, zlib.crc32(item.name.encode()), *([number] if number else [])])
    limits = spec.input_ranges.get(item.name)
    if dtype is np.str_:
        # Numerals: models that read numbers from texts take them too.
        return np.asarray(rng.integers(0, 100, shape)).astype(str).astype(object)
    if dtype is np.bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        low, high = integer_limits(item, spec)
        drawn = np.asarray(rng.integers(low, high, shape)).astype(dtype)
        return patterned_integers(drawn, spec.pattern, low, high)
    is_narrow = item.type.removeprefix("tensor(").removesuffix(")") in NARROW
    drawn_as = np.float32 if is_narrow else dtype
    if limits is not None:
        floats = np.asarray(rng.uniform(limits[0], limits[1], shape)).astype(drawn_as)
    else:
        floats = patterned_floats(np.asarray(rng.standard_normal(shape)).astype(drawn_as), spec.pattern, rng)
    return narrowed(floats, dtype) if is_narrow else floats


def integer_limits(item: ModelInput, spec: FeedSpec) -> tuple[int, int]:
    """Return the range that an input of integers is drawn from, the upper end exclusive."""
    if (limits := spec.input_ranges.get(item.name)) is not None:
        return int(limits[0]), int(limits[1])
    lowered = item.name.lower()
    if "mask" in lowered:
        return 1, 2
    if "type" in lowered or "segment" in lowered:
        return 0, 2
    return 0, min(1000, int(np.iinfo(np.dtype(dtype_of(item))).max) + 1)
