"""Inputs to time a model with: seeded random values, or the caller's own from an .npz file."""

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

Feeds = dict[str, NDArray[Any]]

_DTYPES: dict[str, type[np.generic]] = {
    "float": np.float32, "double": np.float64, "float16": np.float16, "bool": np.bool_,
    "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64,
}  # fmt: skip


class ModelInput(NamedTuple):
    """An input as a session reports it: `type` like `tensor(float)`, a symbolic dimension as a str or None."""

    name: str
    type: str
    shape: tuple[int | str | None, ...]


@dataclass(frozen=True)
class FeedSpec:
    """A recipe for a model's inputs. The same spec gives the same values for an input of the same name and shape.

    By default floats are standard normal, booleans fair coins, and integers are drawn by their input's name: all 1
    with `mask` in it, 0 or 1 with `type` or `segment`, else token ids in [0, 1000). `input_ranges` gives (low, high)
    per input instead, high exclusive; `npz` is a file with one array per input.
    """

    seed: int = 0
    input_ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    npz: str | None = None

    def to_json(self) -> dict[str, Any]:
        ranges = {name: list(limits) for name, limits in self.input_ranges.items()}
        return {"seed": self.seed, "input_ranges": ranges, "npz": self.npz}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        ranges = {name: (low, high) for name, (low, high) in values["input_ranges"].items()}
        return cls(values["seed"], ranges, values["npz"])

    @property
    def key(self) -> str:
        """Stable text that tells two specs apart; an .npz file counts by content, not by name."""
        values = self.to_json()
        if self.npz is not None:
            values["npz"] = hashlib.sha256(Path(self.npz).read_bytes()).hexdigest()
        return json.dumps(values, sort_keys=True)


def make_feeds(inputs: Sequence[ModelInput], spec: FeedSpec) -> Feeds:
    """Make arrays for all `inputs`, by name. Raises ValueError that names the input it cannot make, and why."""
    given = _load_npz(spec.npz) if spec.npz is not None else {}
    return {item.name: _checked(item, given) if spec.npz is not None else _random(item, spec) for item in inputs}


def _load_npz(path: str) -> Feeds:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def _checked(item: ModelInput, given: Feeds) -> NDArray[Any]:
    if item.name not in given:
        raise ValueError(f"the .npz of feeds has no array for input {item.name!r}; it has {sorted(given)}")
    array, dtype = given[item.name], _dtype(item)
    fits = len(array.shape) == len(item.shape) and all(
        not isinstance(want, int) or want == got for want, got in zip(item.shape, array.shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise ValueError(
            f"the .npz of feeds gives {item.name!r} as {array.dtype}{list(array.shape)},"
            f" the model wants {np.dtype(dtype)}{list(item.shape)}"
        )
    return array


def _dtype(item: ModelInput) -> type[np.generic]:
    element = item.type.removeprefix("tensor(").removesuffix(")")
    if element not in _DTYPES:
        raise ValueError(f"input {item.name!r} is {item.type}; feeds can be made for tensors of {sorted(_DTYPES)}")
    return _DTYPES[element]


def _random(item: ModelInput, spec: FeedSpec) -> NDArray[Any]:
    dtype = _dtype(item)
    shape = [size for size in item.shape if isinstance(size, int)]
    if len(shape) != len(item.shape):
        raise ValueError(f"input {item.name!r} has symbolic dimensions {list(item.shape)}; fix them before measuring")
    # Seeded by name as well, so a model whose inputs come in another order gets the same values.
    rng = np.random.default_rng([spec.seed, zlib.crc32(item.name.encode())])
    limits = spec.input_ranges.get(item.name)
    if dtype is np.bool_:
        return np.asarray(rng.integers(0, 2, shape)).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        low, high = limits if limits is not None else _integer_range(item.name, dtype)
        return np.asarray(rng.integers(int(low), int(high), shape)).astype(dtype)
    if limits is not None:
        return np.asarray(rng.uniform(limits[0], limits[1], shape)).astype(dtype)
    return np.asarray(rng.standard_normal(shape)).astype(dtype)


def _integer_range(name: str, dtype: type[np.generic]) -> tuple[int, int]:
    lowered = name.lower()
    if "mask" in lowered:
        return 1, 2
    if "type" in lowered or "segment" in lowered:
        return 0, 2
    return 0, min(1000, int(np.iinfo(np.dtype(dtype)).max) + 1)
