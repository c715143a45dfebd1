"""Weights in files beside the model file: checks that read none of them, and loading of those that cannot stay
there."""

from __future__ import annotations

import math
import mmap
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.subgraphs import attribute_graphs


class ModelLoadError(UserError):
    """A file is not an ONNX model that can be read; the message says what is wrong and what to do."""


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def check_tensor(tensor: onnx.TensorProto, folder: Path, label: str) -> None:
    """Check that a tensor has as many bytes as its shape and type need; external ones are looked at, not read.

    Raises:
        ModelLoadError: beginning with `label`, which names the file and the tensor, and saying what to do.
    """
    try:
        dtype = onnx_ir.DataType(tensor.data_type)
    except ValueError as error:
        message = f"{label} has the unknown element type {tensor.data_type}; is the file damaged?"
        raise ModelLoadError(message) from error
    if dtype == onnx_ir.DataType.UNDEFINED or any(dim < 0 for dim in tensor.dims):
        raise ModelLoadError(f"{label} has no valid type ({dtype}{list(tensor.dims)}); is the file damaged?")
    if is_absurd(tensor.dims):
        raise ModelLoadError(f"{label} is too large for any machine ({dtype}{list(tensor.dims)}); is the file damaged?")
    if is_external(tensor) and dtype == onnx_ir.DataType.STRING:
        raise ModelLoadError(f"{label} holds strings in another file, which ONNX does not allow; save the model again")
    if is_external(tensor):
        _check_external(tensor, folder, label)
    else:
        _check_inline(tensor, dtype, label)


MOST_ELEMENTS = 2**45
"""No tensor of more elements is read, written or computed: they take at least 4 TiB."""


def is_absurd(dims: Iterable[int]) -> bool:
    """Tell whether a shape is too large for any machine. Dimensions of 0 do not make it smaller, since other shapes are
    computed from it."""
    return math.prod(dim for dim in dims if dim) > MOST_ELEMENTS


_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD_OF = {
    onnx_ir.DataType.FLOAT: "float_data", onnx_ir.DataType.COMPLEX64: "float_data",
    onnx_ir.DataType.DOUBLE: "double_data", onnx_ir.DataType.COMPLEX128: "double_data",
    onnx_ir.DataType.INT64: "int64_data", onnx_ir.DataType.UINT64: "uint64_data",
    onnx_ir.DataType.UINT32: "uint64_data", onnx_ir.DataType.STRING: "string_data",
}  # fmt: skip


def _check_inline(tensor: onnx.TensorProto, dtype: onnx_ir.DataType, label: str) -> None:
    count = math.prod(tensor.dims)
    described = f"{dtype}{list(tensor.dims)}"
    if tensor.HasField("raw_data"):
        if dtype == onnx_ir.DataType.STRING:
            raise ModelLoadError(f"{label} holds strings as bytes, which ONNX does not allow; save the model again")
        stored, needed = _raw_bytes(tensor, _size(tensor)), _size(tensor)
        if stored != needed:
            kind = "fewer" if stored < needed else "more"
            raise ModelLoadError(
                f"{label} has {kind} bytes than {described} needs ({stored} instead of {needed}); is the file damaged?"
            )
        return
    field = _FIELD_OF.get(dtype, "int32_data")
    if dtype in (onnx_ir.DataType.COMPLEX64, onnx_ir.DataType.COMPLEX128):
        count *= 2
    elif dtype != onnx_ir.DataType.STRING and dtype.bitwidth < 8:
        count = _size(tensor)
    others = [name for name in _DATA_FIELDS if name != field and len(getattr(tensor, name))]
    stored = len(getattr(tensor, field))
    if stored != count:
        raise ModelLoadError(f"{label} holds {stored} numbers, {described} needs {count}; is the file damaged?")
    if others:
        raise ModelLoadError(f"{label} is {described} but has data in {', '.join(others)}; is the file damaged?")


def _raw_bytes(tensor: onnx.TensorProto, expected: int) -> int:
    """Return the number of bytes in `raw_data`; where it is the expected one, as it nearly always is, without the copy
    of all elements that reading the field makes."""
    bare = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, raw_data=b"")
    length_prefix = max(1, -(-expected.bit_length() // 7))
    as_expected = tensor.ByteSize() == bare.ByteSize() - 1 + length_prefix + expected
    if as_expected and not len(UnknownFieldSet(tensor)):
        return expected
    return len(tensor.raw_data)


def _size(tensor: onnx.TensorProto) -> int:
    bits: int = math.prod(tensor.dims) * onnx_ir.DataType(tensor.data_type).bitwidth
    return (bits + 7) // 8


def _check_external(tensor: onnx.TensorProto, folder: Path, label: str) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    if not location:
        raise ModelLoadError(f"{label} is external but names no file; save the model again")
    file = Path(os.path.abspath(folder / location))
    if not file.is_relative_to(os.path.abspath(folder)):
        raise ModelLoadError(f"{label} lies in {location!r}, outside the model's folder; move it there")
    if not file.is_file():
        raise ModelLoadError(f"{label} should lie in {file}, which does not exist; copy it beside the model")
    _check_links(file, folder, label)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", _size(tensor)))
    except ValueError as error:
        raise ModelLoadError(f"{label} has no valid offset and length ({error}); is the file damaged?") from error
    if offset < 0 or length != _size(tensor):
        raise ModelLoadError(
            f"{label} needs {_size(tensor)} bytes, the model gives it {length} at offset {offset} of {file};"
            " is the file damaged?"
        )
    present = file.stat().st_size
    if present < offset + length:
        raise ModelLoadError(
            f"{label} ends at byte {offset + length} of {file}, which has only {present}; copy or download it again"
        )


def _check_links(file: Path, folder: Path, label: str) -> None:
    """Refuse links that lead out of the model's folder, or that onnx-ir refuses when the data is read."""
    real = Path(os.path.realpath(file))
    if not any(real.is_relative_to(os.path.realpath(home)) for home in (folder, *_blobs(folder))):
        raise ModelLoadError(
            f"{label}: {file} is a symbolic link to {real}, outside the model's folder; links are followed there and in"
            " the blobs of a Hugging Face cache; copy model and weights to a folder of their own (cp -L)"
        )
    if real.stat().st_nlink > 1:
        raise ModelLoadError(f"{label}: {file} has several hard links, which onnx-ir refuses; make a copy of it (cp)")


def _blobs(folder: Path) -> Iterator[Path]:
    """Yield the folder in which a Hugging Face cache keeps the files of the repository that a model belongs to:
    `REPOSITORY/blobs` for a model in `REPOSITORY/snapshots/REVISION` or below."""
    absolute = Path(os.path.abspath(folder))
    for revision in (absolute, *absolute.parents):
        if revision.parent.name == "snapshots":
            yield revision.parent.with_name("blobs")
            return


def read_tensor(tensor: onnx.TensorProto, folder: Path) -> onnx_ir.TensorProtocol:
    """Return a tensor that `check_tensor` accepted; external data is opened where it really lies, since onnx-ir follows
    no link out of the folder."""
    if not is_external(tensor):
        return onnx_ir.serde.deserialize_tensor(tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    real = Path(os.path.realpath(folder / entries["location"]))
    located = onnx.TensorProto()
    located.CopyFrom(tensor)
    for entry in located.external_data:
        if entry.key == "location":
            entry.value = real.name
    return onnx_ir.serde.deserialize_tensor(located, real.parent)


class MappedFiles:
    """Files of external data, each mapped into memory once, however many tensors lie in it: every mapping holds a file
    descriptor, and a process may not have many."""

    def __init__(self) -> None:
        self._known: dict[str, mmap.mmap] = {}

    def tensor(self, tensor: onnx.TensorProto, folder: Path) -> onnx_ir.TensorProtocol:
        """Return an external tensor that `check_tensor` accepted. It is mapped now, and not when it is first read: a
        model saved over its own files then does no harm.

        Raises:
            OSError: the file cannot be read any more.
        """
        dtype, shape = onnx_ir.DataType(tensor.data_type), tuple(tensor.dims)
        stored = self._bytes(tensor, folder)
        if dtype.bitwidth < 8 and len(stored):
            return onnx_ir.PackedTensor(stored, dtype, shape=shape, name=tensor.name)
        kind = dtype.numpy() if sys.byteorder == "little" else dtype.numpy().newbyteorder("<")
        array = stored.view(kind) if len(stored) else np.empty(0, kind)
        return onnx_ir.Tensor(array.reshape(shape), dtype, name=tensor.name)

    def _bytes(self, tensor: onnx.TensorProto, folder: Path) -> NDArray[np.uint8]:
        if not (size := _size(tensor)):
            return np.empty(0, np.uint8)
        entries = {entry.key: entry.value for entry in tensor.external_data}
        path = os.path.realpath(folder / entries["location"])
        if path not in self._known:
            with open(path, "rb") as file:
                self._known[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return np.frombuffer(self._known[path], np.uint8, size, int(entries.get("offset", 0)))


def check_tensors(model: onnx.ModelProto, folder: Path, label: str) -> None:
    """Check all tensors of a model as `check_tensor` does, and read external ones inside attributes, subgraphs and
    functions into `model`, since they would be lost elsewhere.

    Raises:
        ModelLoadError: naming the model by `label`, and the tensor.
    """
    for tensor in model.graph.initializer:
        check_tensor(tensor, folder, f"{label}: initializer {tensor.name!r}")
    for sparse in model.graph.sparse_initializer:
        for tensor in (sparse.values, sparse.indices):
            check_tensor(tensor, folder, f"{label}: sparse initializer {sparse.values.name!r}")
    for tensor, where in _nested_tensors(model):
        named = f"{label}: {where}" + (f" {tensor.name!r}" if tensor.name else "")
        check_tensor(tensor, folder, named)
        if is_external(tensor):
            loaded = read_tensor(tensor, folder)
            tensor.ClearField("external_data")
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.raw_data = loaded.tobytes()


def _nested_tensors(model: onnx.ModelProto) -> Iterator[tuple[onnx.TensorProto, str]]:
    for body in (model.graph.node, *(function.node for function in model.functions)):
        for node in body:
            yield from _attribute_tensors(node)


def _attribute_tensors(node: onnx.NodeProto) -> Iterator[tuple[onnx.TensorProto, str]]:
    where = f"of {node.op_type} {node.name!r}" if node.name else f"of {node.op_type}"
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t, f"attribute {attribute.name!r} {where}"
        for tensor in attribute.tensors:
            yield tensor, f"attribute {attribute.name!r} {where}"
    for graph in attribute_graphs(node):
        for tensor in graph.initializer:
            yield tensor, f"initializer in a subgraph {where}"
        for inner in graph.node:
            yield from _attribute_tensors(inner)
