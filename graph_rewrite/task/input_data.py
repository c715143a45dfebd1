"""The user's inputs: .npz files with an array per input of the model, or with several inputs at once."""

from __future__ import annotations

import glob
import lzma
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import TensorProto

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.input_types import element_shapes
from graph_rewrite.runtime import FeedSpec
from graph_rewrite.runtime.ort_worker.feeds import Feeds, ModelInput, dtype_of, items_in, load_npz
from graph_rewrite.runtime.ort_worker.narrow_floats import read_as

MOST_INPUTS = 32
"""Inputs that are used, at most: the first ones."""

# What NumPy and the libraries under it raise for damaged, encrypted and unusually compressed archives.
_DAMAGED = (
    ValueError, TypeError, EOFError, AttributeError, KeyError, OverflowError, RuntimeError, struct.error,
    lzma.LZMAError, tokenize.TokenError, SyntaxError, zlib.error, zipfile.BadZipFile,
)  # fmt: skip


def read_input_data(patterns: Sequence[str], graph: Graph) -> tuple[FeedSpec, ...]:
    """Return recipes for the inputs in some files.

    A file holds an array per input of the model, by name. An array of the input's shape is one input. One with a
    dimension more in front holds several, and so does one with several items where the input's first dimension is 1;
    then arrays of exactly the input's shape belong to each.

    Args:
        patterns: paths of .npz files, or globs of them.
        graph: the model.

    Raises:
        UserError: no such file, one that cannot be read, or an array that is missing, of no input of the model, or of
            another type or shape.
    """
    if not patterns:
        return ()
    inputs = model_inputs(graph)
    specs = [spec for path in _paths(patterns) for spec in _specs(path, inputs)]
    return tuple(replace(spec, element_shapes=element_shapes(graph)) for spec in specs[:MOST_INPUTS])


def _no_tensors(graph: Graph) -> frozenset[str]:
    """Return the inputs that are sequences or optional values. No file holds those; they are random."""
    return frozenset(info.name for info in graph.header.graph.input if not info.type.HasField("tensor_type"))


def model_inputs(graph: Graph) -> list[ModelInput]:
    """Return the inputs of a model that a user's file must have: the tensors without a default value.

    Raises:
        UserError: one that is no tensor of a fixed shape.
    """
    others = _no_tensors(graph)
    values = [value for value in graph.inputs if value not in graph.stored and graph.names[value] not in others]
    return [_model_input(graph, value) for value in values]


def _paths(patterns: Sequence[str]) -> list[Path]:
    found: dict[Path, None] = {}
    for pattern in patterns:
        paths = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern, recursive=True))
        if not paths:
            raise UserError(f"--input-data {pattern}: there is no such file")
        found.update((Path(path).resolve(), None) for path in paths)
    return list(found)


def _specs(path: Path, inputs: Sequence[ModelInput]) -> list[FeedSpec]:
    try:
        given = load_npz(str(path))
    except OSError as error:
        raise UserError(f"--input-data {path}: cannot be read: {error.strerror or error}") from error
    except MemoryError as error:
        raise UserError(f"--input-data {path}: an array says that it is larger than the memory: {error}") from error
    except _DAMAGED as error:
        # numpy's own message would advise to unpickle it.
        raise UserError(
            f"--input-data {path}: no .npz file of numbers; write one with numpy.savez(path, NAME=array, ...)"
        ) from error
    names = [item.name for item in inputs]
    missing, unknown = sorted(set(names) - set(given)), sorted(set(given) - set(names))
    if missing or unknown:
        lacking = f"has no array for the input {missing[0]!r}" if missing else f"has an array {unknown[0]!r}"
        raise UserError(f"--input-data {path} {lacking}; the model's inputs are {', '.join(names)}")
    counts = {item.name: _count(path, given, item) for item in inputs}
    several = {name: count for name, count in counts.items() if count}
    if len(set(several.values())) > 1:
        raise UserError(f"--input-data {path}: {_lengths(several)}: all must hold the same number of inputs")
    if not several:
        return [FeedSpec(npz=str(path))]
    return [FeedSpec(npz=str(path), item=i) for i in range(next(iter(several.values())))]


def _count(path: Path, given: Feeds, item: ModelInput) -> int:
    """Return the number of inputs in an array; 0 for one alone."""
    try:
        dtype = np.dtype(dtype_of(item))
        array = read_as(given[item.name], dtype.type)
    except ValueError as error:
        raise UserError(f"--input-data {path}: {error}") from error
    count = items_in(array, item)
    if array.dtype != dtype and not (dtype.kind == array.dtype.kind == "U"):
        raise UserError(
            f"--input-data {path}: {item.name!r} is of type {array.dtype}, the model wants {dtype}:"
            f" write array.astype(numpy.{dtype if hasattr(np, dtype.name) else 'float32'})"
        )
    if count is None:
        wanted = list(item.shape)
        raise UserError(
            f"--input-data {path}: {item.name!r} is of shape {list(array.shape)}, the model wants {wanted}, or several"
            f" of them as [N, {', '.join(map(str, wanted))}]"
        )
    if count == 0 and array.ndim > len(item.shape):
        raise UserError(f"--input-data {path}: {item.name!r} holds no inputs")
    return count


def _lengths(several: Mapping[str, int]) -> str:
    return ", ".join(f"{name!r} holds {count} inputs" for name, count in several.items())


def _model_input(graph: Graph, value: int) -> ModelInput:
    name, type = graph.names[value], graph.types[value]
    if type is None:
        raise UserError(f"--input-data: the input {name!r} is no tensor of a fixed shape; leave the flag out")
    return ModelInput(name, f"tensor({TensorProto.DataType.Name(type.dtype).lower()})", tuple(type.shape))
