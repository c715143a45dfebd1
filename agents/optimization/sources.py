"""The models that `rewritegym.optimize` takes, as files: paths, ONNX models in memory, PyTorch modules."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
from google.protobuf.message import EncodeError
from onnx.external_data_helper import uses_external_data

from graph_rewrite.errors import UserError

INLINE_BYTES = 1 << 30
"""Weights beyond this size go to a file beside the model: a protobuf message may have 2 GiB."""


def as_file(model: Any, folder: Path, example_inputs: Any = None) -> Path:
    """Return a model as an ONNX file: its own, or one that is written into `folder`.

    Args:
        model: a path, an `onnx.ModelProto`, an `onnx_ir.Model`, or a `torch.nn.Module`, which is exported.
        example_inputs: for a module, its positional arguments as a tuple, or its keyword arguments as a mapping.

    Raises:
        UserError: a module without example inputs, or that PyTorch cannot export; weights that are not there.
        TypeError: another kind of object.
    """
    if isinstance(model, (str, os.PathLike)):
        return Path(model)
    path = folder / "model.onnx"
    if isinstance(model, onnx.ModelProto):
        model = _inlined(model)
    if isinstance(model, onnx.ModelProto) and _is_small(model):
        onnx.save_model(model, str(path))
        return path
    if isinstance(model, (onnx.ModelProto, onnx_ir.Model)):
        # `onnx.save_model` would take the weights out of the caller's own model.
        read = onnx_ir.serde.deserialize_model(model) if isinstance(model, onnx.ModelProto) else model
        onnx_ir.save(read, path, external_data="model.onnx.data")
        return path
    if _is_module(model):
        return _exported(model, path, example_inputs)
    raise TypeError(
        f"a model is a path, an onnx.ModelProto, an onnx_ir.Model or a torch.nn.Module, not {type(model).__name__}"
    )


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in memory whose initializers hold their elements: itself, or a copy of one that says that they lie
    in files, where they do or would if it were saved.

    Raises:
        UserError: they are neither in the model nor in such a file of the working directory.
    """
    if not any(map(uses_external_data, model.graph.initializer)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if uses_external_data(tensor) and tensor.HasField("raw_data"):
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    try:
        onnx.load_external_data_for_model(copy, os.getcwd())
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise UserError(
            f"the weights of this onnx.ModelProto lie in files that the working directory does not have ({error}): "
            "give the path of the model's file"
        ) from error
    return copy


def _is_small(model: onnx.ModelProto) -> bool:
    try:
        return bool(model.ByteSize() <= INLINE_BYTES)
    except EncodeError:  # more than protobuf can write at all
        return False


def _is_module(model: Any) -> bool:
    # Whoever hands over a module has imported PyTorch; nobody else needs it.
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _exported(model: Any, path: Path, example_inputs: Any) -> Path:
    import torch  # imported by the caller already

    if example_inputs is None:
        raise UserError("a torch.nn.Module needs example_inputs: a tuple of tensors, or a mapping of keyword arguments")
    arguments, named = ((), dict(example_inputs)) if isinstance(example_inputs, Mapping) else (example_inputs, None)
    if isinstance(arguments, torch.Tensor):
        arguments = (arguments,)
    training = {module: module.training for module in model.modules()}
    try:
        torch.onnx.export(
            model.eval(), tuple(arguments), str(path), kwargs=named, dynamo=True, external_data=False, verbose=False
        )
    except (torch.onnx.OnnxExporterError, RuntimeError) as error:
        raise UserError(
            f"PyTorch cannot export {type(model).__name__} to ONNX: {error}; export it yourself with torch.onnx.export "
            "and give the file"
        ) from error
    finally:
        for module, mode in training.items():  # parts may be frozen by a mode of their own
            module.training = mode
    return path
