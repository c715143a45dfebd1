"""Inputs to run a model with: seeded random values, extreme ones, or the caller's own from an .npz file."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from .patterns import PATTERNS, patterned_floats, patterned_integers

Feeds = dict[str, NDArray[Any]]

_DTYPES: dict[str, type[np.generic]] = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "string": np.str_,
}  # fmt: skip


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
    """

    seed: int = 0
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    npz: str | None = None
    pattern: str = ""
    item: int | None = None

    def to_json(self) -> dict[str, Any]:
        ranges = {name: list(limits) for name, limits in self.input_ranges.items()}
        values: dict[str, Any] = {"seed": self.seed, "input_ranges": ranges, "npz": self.npz}
        # Named only where they are set: the text tells measurements apart that were taken before there were any.
        if self.pattern:
            values["pattern"] = self.pattern
        if self.item is not None:
            values["item"] = self.item
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        ranges = {name: (low, high) for name, (low, high) in values["input_ranges"].items()}
        return cls(values["seed"], ranges, values["npz"], values.get("pattern", ""), values.get("item"))

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
            values["npz"] = hashlib.sha256(Path(self.npz).read_bytes()).hexdigest()
        return json.dumps(values, sort_keys=True)


def make_feeds(inputs: Sequence[ModelInput], spec: FeedSpec) -> Feeds:
    """Make arrays for all `inputs`, by name. Raises ValueError that names the input it cannot make, and why."""
    if spec.npz is None:
        return {item.name: _random(item, spec) for item in inputs}
    given = load_npz(spec.npz)
    return {item.name: _checked(item, given, spec) for item in inputs}


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
    if _fits(array.shape, item.shape):
        return 0
    if _fits(array.shape[1:], item.shape):
        return len(array)
    stacked = item.shape[:1] == (1,) and array.ndim > 0 and _fits((1, *array.shape[1:]), item.shape)
    return len(array) if stacked else None


def _fits(shape: Sequence[int], wanted: Sequence[int | str | None]) -> bool:
    return len(shape) == len(wanted) and all(
        not isinstance(want, int) or want == got for want, got in zip(wanted, shape, strict=True)
    )


def _checked(item: ModelInput, given: Feeds, spec: FeedSpec) -> NDArray[Any]:
    if item.name not in given:
        raise ValueError(f"the .npz of feeds has no array for input {item.name!r}; it has {sorted(given)}")
    array, dtype = given[item.name], dtype_of(item)
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
    return chosen if _fits(chosen.shape, item.shape) else chosen[None]


def dtype_of(item: ModelInput) -> type[np.generic]:
    """Return the NumPy type of an input's elements. Raises ValueError for those that cannot be made."""
    element = item.type.removeprefix("tensor(").removesuffix(")")
    if element not in _DTYPES:
        raise ValueError(f"input {item.name!r} is {item.type}; feeds can be made for tensors of {sorted(_DTYPES)}")
    return _DTYPES[element]


def _random(item: ModelInput, spec: FeedSpec) -> NDArray[Any]:
    dtype = dtype_of(item)
    shape = [size for size in item.shape if isinstance(size, int)]
    if len(shape) != len(item.shape):
        raise ValueError(f"input {item.name!r} has symbolic dimensions {list(item.shape)}; fix them before measuring")
    # Seeded by name as well, so a model whose inputs come in another order gets the same values.
    rng = np.random.default_rng([spec.seed, zlib.crc32(item.name.encode())])
    limits = spec.input_ranges.get(item.name)
    if dtype is np.str_:
        # Numerals: models that read numbers from texts take them too.
        return np.asarray(rng.integers(0, 100, shape)).astype(str).astype(object)
    if dtype is np.bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        low, high = limits if limits is not None else _integer_range(item.name, dtype)
        drawn = np.asarray(rng.integers(int(low), int(high), shape)).astype(dtype)
        return patterned_integers(drawn, spec.pattern, int(low), int(high))
    if limits is not None:
        return np.asarray(rng.uniform(limits[0], limits[1], shape)).astype(dtype)
    return patterned_floats(np.asarray(rng.standard_normal(shape)).astype(dtype), spec.pattern, rng)


def _integer_range(name: str, dtype: type[np.generic]) -> tuple[int, int]:
    lowered = name.lower()
    if "mask" in lowered:
        return 1, 2
    if "type" in lowered or "segment" in lowered:
        return 0, 2
    return 0, min(1000, int(np.iinfo(np.dtype(dtype)).max) + 1)
