"""Weights in files beside the model file: checks that read none of them, and loading of those that cannot stay
there."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir

from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.subgraphs import attribute_graphs


class ModelLoadError(UserError):
    """A file is not an ONNX model that can be read; the message says what is wrong and what to do."""


def is_external(tensor: onnx.TensorProto) -> bool:
    return tensor.data_location == onnx.TensorProto.EXTERNAL


def check_tensor(tensor: onnx.TensorProto, folder: Path, model: str) -> None:
    """Check that a tensor has as many bytes as its shape and type need; external ones are looked at, not read.

    Raises:
        ModelLoadError: naming `model`, the tensor and what to do.
    """
    label = f"{model}: initializer {tensor.name!r}"
    try:
        dtype = onnx_ir.DataType(tensor.data_type)
    except ValueError as error:
        message = f"{label} has the unknown element type {tensor.data_type}; is the file damaged?"
        raise ModelLoadError(message) from error
    if dtype == onnx_ir.DataType.UNDEFINED or any(dim < 0 for dim in tensor.dims):
        raise ModelLoadError(f"{label} has no valid type ({dtype}{list(tensor.dims)}); is the file damaged?")
    if is_external(tensor) and dtype == onnx_ir.DataType.STRING:
        raise ModelLoadError(f"{label} holds strings in another file, which ONNX does not allow; save the model again")
    if is_external(tensor):
        _check_external(tensor, folder, label)
    else:
        _check_inline(tensor, dtype, label)


_DATA_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")


def _check_inline(tensor: onnx.TensorProto, dtype: onnx_ir.DataType, label: str) -> None:
    count = math.prod(tensor.dims)
    described = f"{dtype}{list(tensor.dims)}"
    if tensor.HasField("raw_data"):
        # ByteSize does not copy the data, len(raw_data) would.
        if dtype != onnx_ir.DataType.STRING and tensor.ByteSize() < _size(tensor):
            raise ModelLoadError(f"{label} has fewer bytes than {described} needs; is the file damaged?")
        return
    stored = max(len(getattr(tensor, field)) for field in _DATA_FIELDS)
    if dtype in (onnx_ir.DataType.COMPLEX64, onnx_ir.DataType.COMPLEX128):
        count *= 2
    packed = dtype != onnx_ir.DataType.STRING and dtype.bitwidth < 8
    if (count > 0 and stored == 0) or (not packed and stored != count):
        raise ModelLoadError(f"{label} holds {stored} numbers, {described} needs {count}; is the file damaged?")


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
    if offset < 0 or length < _size(tensor):
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
    """Refuse links that onnx-ir refuses when the data is read, or that ONNX Runtime refuses outside the folder."""
    real = Path(os.path.realpath(file))
    if not real.is_relative_to(os.path.realpath(folder)):
        raise ModelLoadError(
            f"{label}: {file} is a symbolic link to {real}, outside the model's folder, which neither onnx-ir nor"
            f" ONNX Runtime follows; copy model and weights to a folder of their own (cp -L)"
        )
    if real.stat().st_nlink > 1:
        raise ModelLoadError(f"{label}: {file} has several hard links, which onnx-ir refuses; make a copy of it (cp)")


def inline_nested(model: onnx.ModelProto, folder: Path, label: str) -> None:
    """Read external tensors inside attributes, subgraphs and functions into `model`, since they would be
    lost elsewhere."""
    for tensor in _nested_tensors(model):
        if is_external(tensor):
            check_tensor(tensor, folder, label)
            loaded = onnx_ir.serde.deserialize_tensor(tensor, folder)
            tensor.ClearField("external_data")
            tensor.data_location = onnx.TensorProto.DEFAULT
            tensor.raw_data = loaded.tobytes()


def _nested_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    for body in (model.graph.node, *(function.node for function in model.functions)):
        for node in body:
            yield from _attribute_tensors(node)


def _attribute_tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
    for graph in attribute_graphs(node):
        yield from graph.initializer
        for inner in graph.node:
            yield from _attribute_tensors(inner)
